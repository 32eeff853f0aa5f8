"""``make cluster``: a cluster of real daemons on this machine that stays until it is taken down.

If the process dies on any line: ``python -m flock_lab.kube down NAME``, or the next ``up`` of that name.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from flock.errors import FlockError
from flock.model.family import Family
from flock.testing.wait import WaitTimeout
from flock_lab.gobuild import NotBuilt
from flock_lab.kube import documents, forward, programs
from flock_lab.kube.cluster import Cluster
from flock_lab.kube.plan import ADMIN, PORT, ClusterOptions, PodNetwork, ProxyMode

NAME = "cluster"


def main() -> int:
    options = _parser().parse_args()
    if os.geteuid() != 0:
        print("a cluster needs root: it makes namespaces, mounts and links", file=sys.stderr)
        return 1
    try:
        return _down(options) if options.verb == "down" else _up(options)
    except (FlockError, WaitTimeout, NotBuilt) as error:
        print(error, *getattr(error, "__notes__", []), sep="\n", file=sys.stderr)
        return 1


def _up(options: argparse.Namespace) -> int:
    begun = time.monotonic()
    if Cluster.down(options.name):
        print("(took down what an earlier run had left)")
    cluster = Cluster.up(options.name, ClusterOptions(
        nodes=options.nodes, primary=Family.IPV4 if options.primary == "ipv4" else Family.IPV6,
        proxy=ProxyMode(options.proxy), network=PodNetwork(options.network)), stay=True)
    port = forward.start(cluster.lab.router, str(cluster.options.api_address), PORT)
    kubeconfig = cluster.lab.record.folder / "kubeconfig"
    kubeconfig.write_text(documents.kubeconfig(f"https://127.0.0.1:{port}", cluster.control.pki.authority,
                                               cluster.control.pki.token(ADMIN)))
    print(f"{options.nodes} nodes are Ready after {time.monotonic() - begun:.0f} s.\n")
    print(cluster.kubectl("get", "nodes", "--output", "wide").stdout)
    cluster.leave()
    _say_how_to_look(options.name, kubeconfig)
    return 0


def _say_how_to_look(name: str, kubeconfig: Path) -> None:
    python = Path(sys.executable)
    here = python.relative_to(Path.cwd()) if python.is_relative_to(Path.cwd()) else python
    print(f"  export KUBECONFIG={kubeconfig}")
    print(f"  {programs.kubectl()} get pods --all-namespaces    # or any other kubectl")
    print(f"  {here.with_name('flockctl')} lab exec --lab {name} node-1    # a shell on a node")
    print(f"Logs of all daemons: {kubeconfig.parent}/*.log\nTo end it:\n  {here} -m flock_lab.kube down {name}")


def _down(options: argparse.Namespace) -> int:
    print(f"{options.name} is down" if Cluster.down(options.name) else f"there is no cluster {options.name}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m flock_lab.kube", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="make a cluster that stays")
    up.add_argument("name", nargs="?", default=NAME)
    up.add_argument("--nodes", type=int, default=2, help="workers (default: 2)")
    up.add_argument("--primary", choices=("ipv6", "ipv4"), default="ipv6", help="the cluster's first family")
    up.add_argument("--proxy", choices=[mode.value for mode in ProxyMode], default="nftables", help="kube-proxy's mode")
    up.add_argument("--network", choices=[kind.value for kind in PodNetwork], default="flock")
    down = verbs.add_parser("down", help="take one down")
    down.add_argument("name", nargs="?", default=NAME)
    return parser


if __name__ == "__main__":
    sys.exit(main())
