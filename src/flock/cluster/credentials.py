"""How the agent finds its cluster: a kubeconfig file, or what every pod is given.

If the process dies on any line: nothing is written.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from flock.cluster.access import ClusterAccess, TokenFile
from flock.cluster.kubeconfig import read_kubeconfig
from flock.cluster.tls import Tls, TlsSettings
from flock.errors import InvalidConfig
from flock.system.clock import Clock, SystemClock

__all__ = ["SERVICE_ACCOUNT", "ClusterAccess", "in_cluster", "load_kubeconfig"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load_kubeconfig(path: Path, context: str | None = None, *, clock: Clock | None = None) -> ClusterAccess:
    """What a kubeconfig file says; every error names the file, the field and the rule."""
    return read_kubeconfig(Path(path), context, clock or SystemClock())


def in_cluster(*, clock: Clock | None = None, env: Mapping[str, str] | None = None,
               folder: Path = SERVICE_ACCOUNT) -> ClusterAccess:
    """The API server and the service account that a pod finds in its environment and in its mounts."""
    variables = os.environ if env is None else env
    found: list[str] = []
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        if not (value := variables.get(name, "")):
            raise InvalidConfig(f"{name} is not set", "outside of a cluster a kubeconfig is needed")
        found.append(value)
    host, port = found
    if not (port.isascii() and port.isdigit()):
        raise InvalidConfig("KUBERNETES_SERVICE_PORT must be a port number")
    for name in ("token", "ca.crt"):
        if not (folder / name).exists():
            raise InvalidConfig(f"{folder / name} doesn't exist", "the pod has no service account token mounted")
    return ClusterAccess(
        f"https://{f'[{host}]' if ':' in host else host}:{port}",
        tls=Tls(TlsSettings(ca=folder / "ca.crt")),
        tokens=TokenFile(folder / "token", clock or SystemClock(), field="service account"),
    )
