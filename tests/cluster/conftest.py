"""One lab for every test of this folder: a router and three nodes, each with what runs containers on it.

node-1 has Debian's containerd and Debian's plugins (so its conflist speaks 1.0.0), node-2 the current containerd and
the current plugins (1.1.0: STATUS is asked), node-3 podman and cnitool and no other plugin.
"""

import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cluster.cnitool import Cnitool
from tests.cluster.containerd import Containerd, Flavour
from tests.cluster.podman import LAST_WITH_CNI, Podman, version

from flock.model.family import FAMILIES
from flock.model.ownership import CNI_BIN_DIR
from flock.testing.wait import wait_until
from flock_lab import cgroups
from flock_lab.gobuild import built
from flock_lab.host import Host
from flock_lab.images import write_archive
from flock_lab.lab import Lab
from flock_lab.node import Node

DEBIAN_PLUGINS = Path("/usr/lib/cni")
_PLUGINS = ("loopback", "portmap", "bandwidth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A containerd that answers, and the router beyond its node."""

    containerd: Containerd
    router: Host

    @property
    def node(self) -> Node:
        return self.containerd.node


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("images") / "images.tar", platform.machine())


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    with Lab.up(f"runtimes-{os.getpid()}", nodes=3) as made:
        _install_plugins(made.node(1), DEBIAN_PLUGINS)
        _install_plugins(made.node(2), built("plugins"))
        made.start()
        # What BIRD has yet to learn would look like something that a pod has left.
        wait_until(lambda: all(map(_has_defaults, made.nodes)), 20.0, "the nodes' default routes")
        yield made
    left = [line for node in made.nodes for line in cgroups.remove(node)]
    assert left == []


@pytest.fixture(scope="session")
def debian(lab: Lab, archive: Path) -> Runtime:
    return _start(lab, lab.node(1), Flavour.debian(), archive)


@pytest.fixture(scope="session")
def current(lab: Lab, archive: Path) -> Runtime:
    return _start(lab, lab.node(2), Flavour.current(), archive)


@pytest.fixture(params=["debian", "current"], ids=["Debian's containerd", "containerd 2.4"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Runtime)
    return found


@pytest.fixture(scope="session")
def podman(lab: Lab, archive: Path) -> Podman:
    if (major := version()) > LAST_WITH_CNI:
        pytest.skip(f"podman {major} has no CNI backend any more")
    made = Podman(node=lab.node(3))
    made.set_up(archive)
    return made


@pytest.fixture(scope="session")
def cnitool(lab: Lab) -> Cnitool:
    return Cnitool(node=lab.node(3))


def _install_plugins(node: Node, source: Path) -> None:
    """Before the agent starts, since it chains what it finds."""
    for name in _PLUGINS:
        shutil.copy(source / name, node.path(CNI_BIN_DIR / name))


def _has_defaults(node: Node) -> bool:
    return all(node.run("ip", f"-{family.suffix}", "route", "show", "default").stdout for family in FAMILIES)


def _start(lab: Lab, node: Node, flavour: Flavour, archive: Path) -> Runtime:
    containerd = Containerd(node=node, flavour=flavour)
    containerd.start(archive)
    return Runtime(containerd=containerd, router=lab.router)


