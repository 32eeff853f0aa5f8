"""What the node itself is: its addresses, the source that it prefers, the MTU of its uplink.

The preferred source is asked of the kernel: connecting a datagram socket looks the route up and sends nothing.

If the process dies on any line: nothing was changed.
"""

import contextlib
import socket
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv6Address

from flock.model.family import FAMILIES, Address, Family, parse_address
from flock.model.ownership import HOST_PREFIX
from flock.netlink import constants as nl
from flock.netlink import messages
from flock.netlink.messages import Link, LinkAddress
from flock.netlink.socket import NetlinkSocket
from flock.netlink.wire import message
from flock.pods.plan import NodeFacts

DEFAULT_MTU = 1500
LEAST_MTU = 1280
"""RFC 8200, section 5: IPv6 runs on nothing smaller."""

_ALL_LINKS = message(nl.RTM_GETLINK, nl.NLM_F_DUMP, messages.ifinfo(0))

_FAR_AWAY = {Family.IPV6: "2002::1", Family.IPV4: "192.88.99.1"}
"""Somewhere outside (both deprecated for 6to4, RFC 7526): only the route is looked up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNetwork:
    """One look at the node. ``addresses`` are its own, of every link but pods'; ``uplink_mtu`` is its uplink's."""

    addresses: tuple[Address, ...]
    source: dict[Family, Address | None]
    uplink_mtu: int

    def facts(self, mtu: int | None) -> NodeFacts:
        """For pods' wiring; ``mtu`` is the NodeConfig's, which wins."""
        return NodeFacts(mtu=mtu or self.uplink_mtu, source=self.source)


def read_node_network() -> NodeNetwork:
    """Ask the kernel. Blocking, some milliseconds: not in the event loop."""
    with NetlinkSocket() as sock:
        links = _links(sock)
        answers = sock.dump(messages.dump_addresses(), "addresses")
        entries = [entry for answer in answers if (entry := messages.parse_address(answer.body)) is not None]
    entries = [entry for entry in entries if entry.ifindex in links]
    source = {family: _preferred_source(family) for family in FAMILIES}
    return NodeNetwork(
        addresses=tuple(entry.address for entry in entries if not entry.address.is_loopback),
        source={family: address or _first_global(entries, family) for family, address in source.items()},
        uplink_mtu=_uplink_mtu(links, entries, source.values()),
    )


def _links(sock: NetlinkSocket) -> dict[int, Link]:
    """The node's links but pods', by index."""
    found = (messages.parse_link(answer.body) for answer in sock.dump(_ALL_LINKS, "links"))
    return {link.ifindex: link for link in found if link is not None and not link.name.startswith(HOST_PREFIX)}


def _preferred_source(family: Family) -> Address | None:
    with contextlib.suppress(OSError, ValueError), socket.socket(family.value, socket.SOCK_DGRAM) as probe:
        probe.connect((_FAR_AWAY[family], 9))
        address = parse_address(probe.getsockname()[0])
        return None if address.is_loopback or address.is_unspecified else address
    return None


def _first_global(entries: list[LinkAddress], family: Family) -> Address | None:
    for entry in entries:
        address = entry.address
        local = address.is_loopback or address.is_link_local
        if not local and isinstance(address, IPv6Address) == (family is Family.IPV6):
            return address
    return None


def _uplink_mtu(links: dict[int, Link], entries: list[LinkAddress], sources: Collection[Address | None]) -> int:
    mtus = [links[entry.ifindex].mtu for entry in entries if entry.address in sources]
    return max(LEAST_MTU, min(mtus)) if mtus else DEFAULT_MTU
