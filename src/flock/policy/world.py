"""What policy is judged by: the policies, the namespaces, and every pod of the cluster that has addresses. Pure.

Invariant: an address belongs to whoever has it now. A pod that has finished, or that lives in its node's network
namespace, has none of its own; a pod of this node has those that flock gave it, before any status says so.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from flock.api.named_ports import NamedPort
from flock.api.network_policy import NetworkPolicy
from flock.api.objects import PodView
from flock.api.peer_pod import FINISHED, PeerPod
from flock.model.family import parse_address

Key = tuple[str, str]
"""Namespace and name."""

MemberId = tuple[str, str, str]
"""Namespace, name, and interface for a pod of this node: a pod and its successor of the same name may both be wired."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A pod with addresses, packed (4 or 16 bytes). ``interface`` is the host end of its veth, "" on another node.

    Of a pod that no view knows, and of one that a runtime didn't name, namespace, name and labels are empty.
    """

    namespace: str = ""
    name: str = ""
    labels: Mapping[str, str] = {}
    addresses: tuple[bytes, ...] = ()
    ports: tuple[NamedPort, ...] = ()
    interface: str = ""

    @property
    def id(self) -> MemberId:
        return (self.namespace, self.name, self.interface)


class World(msgspec.Struct, frozen=True, kw_only=True):
    """One moment. ``namespaces`` are their labels, ``node`` this node's own addresses, packed."""

    policies: Mapping[Key, NetworkPolicy] = {}
    namespaces: Mapping[str, Mapping[str, str]] = {}
    members: Mapping[MemberId, Member] = {}
    node: frozenset[bytes] = frozenset()

    def subjects(self) -> Iterator[Member]:
        """The pods of this node."""
        return (member for member in self.members.values() if member.interface)


def peer_member(pod: PeerPod) -> Member | None:
    """A pod of another node, by what its status says; None where it has no addresses of its own."""
    addresses = () if pod.host_network or pod.finished else tuple(_packed(pod.pod_ips))
    if not addresses:
        return None
    return Member(namespace=pod.namespace, name=pod.name, labels=pod.labels, addresses=addresses, ports=pod.ports)


def view_member(pod: PodView) -> Member | None:
    """The same, of a pod as a manifest says it."""
    gone = pod.host_network or pod.phase in FINISHED
    addresses = () if gone else tuple(_packed(pod.pod_ips))
    if not addresses:
        return None
    return Member(namespace=pod.namespace, name=pod.name, labels=pod.labels, addresses=addresses, ports=pod.ports)


def _packed(texts: Iterable[str]) -> Iterator[bytes]:
    for text in texts:
        try:
            yield parse_address(text).packed
        except ValueError:
            continue
