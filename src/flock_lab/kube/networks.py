"""What gives a cluster's pods their network: flock, as on any lab node, or the reference plugins with static routes.

``boot`` is what a node does at each of its starts, before any daemon; ``prepare`` is done once, after that; ``start``
once the API server is ready.

If the process dies on any line: all of it is in the hosts' namespaces.
"""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import yaml

from flock.model.family import Family
from flock.model.ownership import CNI_BIN_DIR, CNI_CONF_DIR
from flock.testing.wait import wait_until
from flock_lab import manifests
from flock_lab.gobuild import built
from flock_lab.kube import documents
from flock_lab.kube.api import Api
from flock_lab.kube.control import ControlPlane
from flock_lab.kube.plan import ADMIN, User
from flock_lab.lab import Lab
from flock_lab.node import Node
from flock_lab.plan import UPLINK, WORLD

NODE_CONFIGS = "/apis/flock.fritzlab.net/v1alpha1/nodeconfigs"
KUBECONFIG = "/etc/flock/kubeconfig"
DEBIAN_PLUGINS = Path("/usr/lib/cni")
PTP_CONFLIST = "10-ptp.conflist"
_CHAINED = ("loopback", "portmap", "bandwidth")
_REFERENCE = ("loopback", "portmap", "ptp", "host-local")
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CRD = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes" / "crd.yaml"


class Network(Protocol):
    """One way to give pods a network. ``images`` are archives that its nodes need beside the cluster's own."""

    def images(self) -> Sequence[Path]: ...
    def boot(self, node: Node, control: ControlPlane) -> None: ...
    def prepare(self, lab: Lab, control: ControlPlane) -> None: ...
    def start(self, lab: Lab, control: ControlPlane) -> None: ...


class Flock:
    """Agents and BIRDs as processes of the nodes; the NodeConfigs are manifests, or objects of the API."""

    def __init__(self, user: User | None = ADMIN) -> None:
        """``user`` is whom the agents are to the API server; None: they read manifests and know no pod."""
        self._user = user

    def images(self) -> Sequence[Path]:
        return ()

    def boot(self, node: Node, control: ControlPlane) -> None:
        _install(node, built("plugins"), _CHAINED)
        node.batch(api_routes(node))
        if self._user is not None:
            node.path(KUBECONFIG).write_text(control.kubeconfig(self._user))
            node.source = ("--kubeconfig", KUBECONFIG)

    def prepare(self, lab: Lab, control: ControlPlane) -> None:
        """Nothing more."""

    def start(self, lab: Lab, control: ControlPlane) -> None:
        if self._user is not None:
            _define(control.api)
            for node in lab.nodes:
                control.api.create(NODE_CONFIGS, yaml.safe_load(manifests.node_config(node.plan)))
        lab.start()
        for node in lab.nodes:
            wait_until(lambda node=node: has_defaults(node), 20.0, f"the default routes of {node.name}")  # type: ignore[misc]


class Reference:
    """ptp and host-local, the plugins that flock is compared with; every route is static."""

    def __init__(self, families: Sequence[Family], nodes: Sequence[int] = ()) -> None:
        """``nodes``: the numbers of those that it is for; all, if none is named."""
        self._families = tuple(families)
        self._numbers = frozenset(nodes)

    def images(self) -> Sequence[Path]:
        return ()

    def boot(self, node: Node, control: ControlPlane) -> None:  # noqa: ARG002 - the other ones need it
        _install(node, DEBIAN_PLUGINS, _REFERENCE)
        node.sysctl("net/ipv4/ip_forward", 1)
        node.sysctl("net/ipv6/conf/all/forwarding", 1)
        links = node.plan.links.values()
        node.batch([*api_routes(node), *(f"route add default via {link.router} dev {UPLINK}" for link in links)])
        node.path(CNI_CONF_DIR / PTP_CONFLIST).write_text(documents.ptp(node.plan, self._families))

    def prepare(self, lab: Lab, control: ControlPlane) -> None:  # noqa: ARG002 - the other ones need it
        lab.router.batch([
            f"route add {node.plan.cidrs[family]} via {link.node}"
            for node in lab.nodes if not self._numbers or node.plan.number in self._numbers
            for family, link in node.plan.links.items()])

    def start(self, lab: Lab, control: ControlPlane) -> None:
        """Nothing runs."""


def _install(node: Node, source: Path, names: Iterable[str]) -> None:
    for name in names:
        shutil.copy(source / name, node.path(CNI_BIN_DIR / name))


def api_routes(node: Node) -> list[str]:
    """The node's way to the API server, which no BGP has a part in."""
    return [f"route add {WORLD[family]} via {link.router} dev {UPLINK}" for family, link in node.plan.links.items()]


def has_defaults(node: Node) -> bool:
    """Whether BIRD has learned the router's default routes."""
    return all(node.run("ip", f"-{family.suffix}", "route", "show", "default").stdout for family in Family)


def _define(api: Api) -> None:
    """Create the CRD and wait until its objects can be created."""
    document = yaml.safe_load(_CRD.read_text())
    api.create(_CRDS, document)
    path = f"{_CRDS}/{document['metadata']['name']}"
    wait_until(lambda: _established(api.get(path)), 20.0, "the CRD")
    wait_until(lambda: api.find(NODE_CONFIGS) is not None, 20.0, "the CRD's objects")


def _established(document: dict[str, object]) -> bool:
    status = document.get("status")
    conditions = (status.get("conditions") or []) if isinstance(status, dict) else []
    return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)
