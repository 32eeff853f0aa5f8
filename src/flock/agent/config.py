"""What the agent is told on its command line, parsed once."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from flock import __version__

DEFAULT_HEALTH = "[::1]:9477"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """One agent's settings.

    ``manifests`` and ``kubeconfig`` both None: the API with in-cluster credentials. ``health`` is (host, port), or None
    where the HTTP server is off. ``signs`` is a folder for the probes' files.
    """

    node: str
    manifests: Path | None
    kubeconfig: Path | None
    log_format: str
    log_level: str
    health: tuple[str, int] | None
    shim: Path | None
    signs: Path | None = None


def parse_arguments(argv: list[str] | None = None) -> AgentConfig:
    """Read the command line; a wrong one ends the process with status 2 and a sentence."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.manifests is not None and not options.manifests.is_dir():
        parser.error(f"--manifests {str(options.manifests)!r} is not a folder")
    try:
        health = parse_listen(options.health_listen)
    except ValueError as error:
        parser.error(f"--health-listen {options.health_listen!r} {error}")
    return AgentConfig(
        node=options.node,
        manifests=options.manifests,
        kubeconfig=options.kubeconfig,
        log_format=options.log_format,
        log_level=options.log_level,
        health=health,
        shim=options.install_shim,
        signs=options.signs,
    )


def parse_listen(text: str) -> tuple[str, int] | None:
    """``[::1]:9477`` or ``127.0.0.1:9477`` as (host, port); ``off`` as None; ValueError says the rule."""
    if text == "off":
        return None
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 <= int(port) <= 65535:
        raise ValueError("must be 'off' or HOST:PORT, an IPv6 host in brackets")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError("must have its IPv6 host in brackets")
    return host.strip("[]"), int(port)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flock-agent",
        description="The flock agent of one node: serves CNI, wires pods, keeps the kernel and BIRD right.",
    )
    parser.add_argument("--version", action="version", version=f"flock-agent {__version__}")
    parser.add_argument("--node", required=True, metavar="NAME", help="this node's name: its NodeConfig has the same")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--manifests", type=Path, metavar="DIR",
                        help="a folder of manifests (NodeConfig, Namespace, Pod), watched; no cluster is needed")
    source.add_argument("--kubeconfig", type=Path, metavar="FILE", help="the Kubernetes API that this file names")
    source.add_argument("--in-cluster", action="store_true",
                        help="the Kubernetes API, with the credentials of the pod that the agent runs in")
    parser.add_argument("--log-format", choices=("console", "json"), default="console", help="default: console")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info",
                        help="default: info")
    parser.add_argument("--health-listen", default=DEFAULT_HEALTH, metavar="HOST:PORT",
                        help=f"where /healthz, /readyz and /metrics are served, or 'off'; default: {DEFAULT_HEALTH}")
    parser.add_argument("--install-shim", type=Path, metavar="FILE",
                        help="install this shim as /opt/cni/bin/flock, by rename, before serving")
    parser.add_argument("--signs", type=Path, metavar="DIR",
                        help="keep the files 'prepared' and 'alive' there, for the probes of a container")
    return parser
