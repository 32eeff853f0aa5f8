"""What the kernel must hold for one attachment, decided before anything is touched. Pure.

Invariant: a Wiring is a function of the attachment, the node's facts and what is announced; wiring, CHECK, the sweep
and the healing all start from it, so they can't disagree.

How it is used::

    facts = NodeFacts(mtu=1500, source={Family.IPV6: node6, Family.IPV4: node4})     # once per change of the node
    attachment = Attachment(..., mtu=facts.mtu)                                      # ADD decides the MTU and stores it
    wiring = plan_wiring(attachment, facts, announced=lambda address: False)

The two ends of the veth: the pod's has the addresses, ``fe80::`` of its MAC, and default routes via ``fe80::1`` and
``169.254.1.1``; the host's has these two gateway addresses and the routes to the pod. Neighbour entries on both sides
are permanent, so no packet ever waits for NDP or ARP.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_network

from flock.model.attachment import Attachment
from flock.model.family import Address, Family, family_of
from flock.model.ids import AttachmentKey
from flock.model.ownership import (
    GATEWAY4,
    GATEWAY6,
    PROTO_ANNOUNCED,
    PROTO_HOME,
    host_ifalias,
    host_ifname,
    host_mac,
    pod_mac,
)
from flock.netlink.routes import Route

GATEWAYS: Mapping[Family, Address] = {Family.IPV6: IPv6Address(GATEWAY6), Family.IPV4: IPv4Address(GATEWAY4)}
"""The host end's address that a pod's default route of each family goes to."""

GATEWAY_LENGTHS: Mapping[Family, int] = {Family.IPV6: 64, Family.IPV4: 32}
"""Their prefix lengths: /64 gives the host its link-local route, by which it answers the pod's link-local address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What of the node goes into a pod's wiring.

    ``mtu`` is what a new attachment gets (``Attachment.mtu``); a stored one keeps its own. ``source`` is the node's
    preferred source address on pod routes; a family that is missing or None leaves the choice to the kernel.
    """

    mtu: int
    source: Mapping[Family, Address | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAddress:
    """One address of a pod, and how the host routes it: rtm_protocol and preferred source."""

    address: Address
    proto: int
    source: Address | None

    @property
    def family(self) -> Family:
        return family_of(self.address)

    def host_route(self, ifindex: int) -> Route:
        """The host's route to it, once the host end's index is known."""
        return Route(dst=ip_network(self.address), proto=self.proto, ifindex=ifindex, prefsrc=self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """Everything that one attachment needs of the kernel.

    ``addresses``: IPv6 first, at most one of each family. ``pod_link_local`` is None without an IPv6 address: the link
    then speaks no IPv6 at all.
    """

    key: AttachmentKey
    ifname: str
    host_ifname: str
    alias: str
    mtu: int
    pod_mac: bytes
    host_mac: bytes
    pod_link_local: IPv6Address | None
    addresses: tuple[PodAddress, ...]


def plan_wiring(attachment: Attachment, facts: NodeFacts, announced: Callable[[Address], bool]) -> Wiring:
    """Decide the wiring of one attachment; ``announced`` says which addresses BIRD announces one by one."""
    key, mac = attachment.key, pod_mac(attachment.key)
    addresses = tuple([_pod_address(address, facts, announced) for address in attachment.addresses()])
    return Wiring(
        key=key,
        ifname=attachment.ifname,
        host_ifname=host_ifname(key),
        alias=host_ifalias(key),
        mtu=attachment.mtu,
        pod_mac=mac,
        host_mac=host_mac(key),
        pod_link_local=link_local(mac) if attachment.ip6 else None,
        addresses=addresses,
    )


def _pod_address(address: Address, facts: NodeFacts, announced: Callable[[Address], bool]) -> PodAddress:
    proto = PROTO_ANNOUNCED if announced(address) else PROTO_HOME
    return PodAddress(address=address, proto=proto, source=facts.source.get(family_of(address)))


def link_local(mac: bytes) -> IPv6Address:
    """``fe80::/64`` and the modified EUI-64 of a MAC (RFC 4291, appendix A)."""
    return IPv6Address(b"\xfe\x80" + bytes(6) + bytes([mac[0] ^ 2]) + mac[1:3] + b"\xff\xfe" + mac[3:6])
