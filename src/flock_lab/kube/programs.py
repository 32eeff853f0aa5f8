"""Where the programs of a cluster are; ``flock_lab.gobuild`` builds them, minutes long, before anything starts.

The daemons are one file, told apart by the name that it is called by.
"""

import os
from pathlib import Path

from flock_lab.gobuild import built

NAME = "kubernetes"


def daemon(name: str) -> list[str]:
    """The beginning of a daemon's command line."""
    return [str(built(NAME) / NAME), name]


def etcd() -> str:
    return str(built(NAME) / "server")


def kubectl() -> str:
    return str(built(NAME) / "kubectl")


def agnhost() -> Path:
    return built(NAME) / "agnhost"


def e2e() -> str:
    """The upstream specs of sig-network."""
    return str(built(NAME) / "e2e")


def coredns() -> Path:
    return built("coredns") / "coredns"


def containerd(name: str) -> str:
    return str(built("containerd") / name)


def path() -> str:
    """PATH for containerd and kubelet: a containerd finds its shim by it, and the one of its own release is meant."""
    return f"{built('containerd')}:{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
