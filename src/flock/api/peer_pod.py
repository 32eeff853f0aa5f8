"""Any pod of the cluster, as policy needs it: in the narrowest form, since there are thousands on every node. Pure.

Invariant: what is kept of a pod is what selectors and their addresses depend on; an update of anything else gives an
equal ``PeerPod``. Source: k8s.io/api, core/v1/types.go.
"""

# ruff: noqa: N815
from collections.abc import Mapping

import msgspec

from flock.api.named_ports import NamedPort, RawPorts, named_ports
from flock.api.raw import RawMeta, RawPodIP

ANYCAST = "flock.fritzlab.net/anycast"
FINISHED = frozenset({"Succeeded", "Failed"})


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


class _Spec(msgspec.Struct, gc=False):
    nodeName: str | None = None
    hostNetwork: bool | None = None
    containers: list[RawPorts] | None = None
    initContainers: list[RawPorts] | None = None


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
        ports=named_ports(spec.containers or (), spec.initContainers or ()),
        anycast=meta.annotations.get(ANYCAST, "") if meta.annotations else "",
    )
