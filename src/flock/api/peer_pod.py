"""Any pod of the cluster, as policy needs it: in the narrowest form, since there are thousands on every node. Pure.

Invariant: what is kept of a pod is what selectors and their addresses depend on; an update of anything else gives an
equal ``PeerPod``. Sources: k8s.io/api, core/v1/types.go; a restartable init container's named ports count as well.
"""

# ruff: noqa: N815
from collections.abc import Iterator, Mapping

import msgspec

from flock.api.raw import RawMeta, RawPodIP

ANYCAST = "flock.fritzlab.net/anycast"
FINISHED = frozenset({"Succeeded", "Failed"})


class NamedPort(msgspec.Struct, frozen=True):
    """A port that policies may call by its name."""

    name: str
    port: int
    protocol: str


class PeerPod(msgspec.Struct, frozen=True, kw_only=True):
    """One pod. ``anycast`` is its annotation as written; ``finished``: its addresses are no longer its own."""

    namespace: str
    name: str
    uid: str = ""
    labels: Mapping[str, str] = {}
    node_name: str = ""
    host_network: bool = False
    finished: bool = False
    pod_ips: tuple[str, ...] = ()
    ports: tuple[NamedPort, ...] = ()
    anycast: str = ""


class _Port(msgspec.Struct, gc=False):
    name: str | None = None
    containerPort: int | None = None
    protocol: str | None = None


class _Container(msgspec.Struct, gc=False):
    restartPolicy: str | None = None
    ports: list[_Port] | None = None


class _Spec(msgspec.Struct, gc=False):
    nodeName: str | None = None
    hostNetwork: bool | None = None
    containers: list[_Container] | None = None
    initContainers: list[_Container] | None = None


class _Status(msgspec.Struct, gc=False):
    phase: str | None = None
    podIPs: list[RawPodIP] | None = None


class RawPeerPod(msgspec.Struct, gc=False):
    """A pod as it comes, reduced to what is read here."""

    metadata: RawMeta = msgspec.field(default_factory=RawMeta)
    spec: _Spec | None = None
    status: _Status | None = None


def peer_pod(pod: RawPeerPod) -> PeerPod:
    """What is kept of a pod."""
    meta, spec, status = pod.metadata, pod.spec or _Spec(), pod.status or _Status()
    return PeerPod(
        namespace=meta.namespace or "default",
        name=meta.name,
        uid=meta.uid or "",
        labels=meta.labels or {},
        node_name=spec.nodeName or "",
        host_network=bool(spec.hostNetwork),
        finished=status.phase in FINISHED,
        pod_ips=tuple([one.ip for one in status.podIPs or () if one.ip]),
        ports=tuple(_ports(spec)),
        anycast=meta.annotations.get(ANYCAST, "") if meta.annotations else "",
    )


def _ports(spec: _Spec) -> Iterator[NamedPort]:
    for container in spec.containers or ():
        yield from _named(container)
    for container in spec.initContainers or ():
        if container.restartPolicy == "Always":
            yield from _named(container)


def _named(container: _Container) -> Iterator[NamedPort]:
    for port in container.ports or ():
        if port.name and port.containerPort is not None:
            yield NamedPort(port.name, port.containerPort, port.protocol or "TCP")
