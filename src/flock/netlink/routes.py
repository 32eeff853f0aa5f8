"""Routes as flock means them: one frozen type for what is wanted and for what the kernel shows. Pure.

Invariant: a Route that was added and is read back is equal to the one that was meant, so desired and observed are
compared as sets. To that end the kernel's own defaults are filled in here: IPv6 takes metric 0 as 1024 and shows ``lo``
as the device of a blackhole (net/ipv6/route.c); IPv4 keeps 0 and shows none (net/ipv4/fib_frontend.c).

How it is used::

    wanted = {blackhole(cidr, PROTO_ANNOUNCED), ...}
    with NetlinkSocket() as sock:
        observed = set(dump_routes(sock, protos=FLOCK_PROTOS))
        sock.run([replace_route(r) for r in wanted - observed] + [delete_route(r) for r in gone], "summary routes")

``replace_route`` changes protocol or source of a route in place (71 → 70) while packets under way are delivered: the
kernel finds the old one by destination, table and metric. Sequence number and ACK flag are filled in by ``run``.
"""

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Network, IPv6Network
from typing import Protocol

from flock.model.family import FAMILIES, Address, Family, Network, family_of
from flock.model.ownership import PROTO_ANNOUNCED, PROTO_HOME
from flock.netlink import constants as nl
from flock.netlink.messages import read_address
from flock.netlink.wire import Message, attr, attr_u32, attributes, message, u32

DEFAULT_METRIC6 = 1024
"""IP6_RT_PRIO_USER: what IPv6 makes of metric 0."""

LAST_METRIC = 0xFFFFFFFF
"""The metric that loses against every other one: for the blackholes of node CIDRs."""

FLOCK_PROTOS = frozenset({PROTO_HOME, PROTO_ANNOUNCED})

_RTMSG = struct.Struct("=BBBBBBBBI")

_RTN_LOCAL, _RT_TABLE_LOCAL = 2, 255


class RouteKind(Enum):
    """What becomes of a packet; ``value`` is rtm_type."""

    UNICAST = nl.RTN_UNICAST
    BLACKHOLE = nl.RTN_BLACKHOLE


_KINDS = {kind.value: kind for kind in RouteKind}


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route. ``ifindex`` is None for a blackhole; ``metric`` 0 means the kernel's default of that family.

    ``onlink`` isn't part of what is compared: the kernel shows it in one family's way and hides it in the other's.
    ``nexthop_id`` is that of a next-hop group; the kernel then shows no device of its own.
    """

    dst: Network
    proto: int
    kind: RouteKind = RouteKind.UNICAST
    ifindex: int | None = None
    gateway: Address | None = None
    prefsrc: Address | None = None
    metric: int = 0
    table: int = nl.RT_TABLE_MAIN
    nexthop_id: int | None = None

    def __post_init__(self) -> None:
        if self.metric == 0 and family_of(self.dst) is Family.IPV6:
            object.__setattr__(self, "metric", DEFAULT_METRIC6)


class Dumper(Protocol):
    """What a dump needs of a socket; NetlinkSocket has it."""

    def dump(self, request: bytes, what: str) -> Iterator[Message]: ...


def blackhole(dst: Network, proto: int, metric: int = LAST_METRIC) -> Route:
    """A summary route: what no more specific or cheaper route takes is dropped (R7)."""
    return Route(dst=dst, proto=proto, kind=RouteKind.BLACKHOLE, metric=metric)


def replace_route(route: Route) -> bytes:
    """The request that makes a route, or changes the one with the same destination, table and metric in place."""
    return _request(nl.RTM_NEWROUTE, nl.NLM_F_CREATE | nl.NLM_F_REPLACE, route)


def add_route(route: Route) -> bytes:
    """The request that makes a route and fails with EEXIST where one with that destination and metric stands."""
    return _request(nl.RTM_NEWROUTE, nl.NLM_F_CREATE | nl.NLM_F_EXCL, route)


def take_as_own(address: Address, ifindex: int) -> bytes:
    """The request that makes the kernel take packets to an address that was just added for its own.

    IPv6 does that by itself, but from a work queue that waits for RTNL (addrconf_dad_work in net/ipv6/addrconf.c, also
    for addresses without duplicate detection); until then a packet to the address is routed away or dropped. This route
    stands beside the kernel's own, which has metric 0.
    """
    length = address.max_prefixlen
    head = _RTMSG.pack(
        family_of(address).value, length, 0, 0, _RT_TABLE_LOCAL, PROTO_HOME, nl.RT_SCOPE_UNIVERSE, _RTN_LOCAL, 0
    )
    parts = (
        attr(nl.RTA_DST, address.packed),
        attr_u32(nl.RTA_OIF, ifindex),
        attr_u32(nl.RTA_PRIORITY, DEFAULT_METRIC6),
        attr_u32(nl.RTA_TABLE, _RT_TABLE_LOCAL),
    )
    return message(nl.RTM_NEWROUTE, nl.NLM_F_CREATE | nl.NLM_F_REPLACE, head, *parts)


def delete_route(route: Route) -> bytes:
    """The request that removes exactly this route; ESRCH where it is gone already."""
    return _request(nl.RTM_DELROUTE, 0, route)


def _request(kind: int, flags: int, route: Route) -> bytes:
    family = family_of(route.dst)
    # A route without gateway reaches its hosts on the link itself; IPv4 refuses scope universe for it, IPv6 has none.
    direct = route.kind is RouteKind.UNICAST and route.gateway is None and route.nexthop_id is None
    scope = nl.RT_SCOPE_LINK if direct and family is Family.IPV4 else nl.RT_SCOPE_UNIVERSE
    # The gateway is the far end of a veth, on no prefix of the link: IPv4 must be told that it is on this link.
    onlink = nl.RTNH_F_ONLINK if route.gateway is not None and family is Family.IPV4 else 0
    table = route.table if route.table < 256 else nl.RT_TABLE_UNSPEC
    head = _RTMSG.pack(family.value, route.dst.prefixlen, 0, 0, table, route.proto, scope, route.kind.value, onlink)
    return message(kind, flags, head, *_attributes(route))


def _attributes(route: Route) -> Iterator[bytes]:
    if route.dst.prefixlen:
        yield attr(nl.RTA_DST, route.dst.network_address.packed)
    if route.ifindex is not None:
        yield attr_u32(nl.RTA_OIF, route.ifindex)
    if route.gateway is not None:
        yield attr(nl.RTA_GATEWAY, route.gateway.packed)
    if route.prefsrc is not None:
        yield attr(nl.RTA_PREFSRC, route.prefsrc.packed)
    if route.metric:
        yield attr_u32(nl.RTA_PRIORITY, route.metric)
    if route.nexthop_id is not None:
        yield attr_u32(nl.RTA_NH_ID, route.nexthop_id)
    yield attr_u32(nl.RTA_TABLE, route.table)


def dump_routes(
    sock: Dumper,
    families: Iterable[Family] = FAMILIES,
    protos: Collection[int] = FLOCK_PROTOS,
    table: int = nl.RT_TABLE_MAIN,
    kind: RouteKind | None = None,
) -> tuple[Route, ...]:
    """The routes of some protocols in one table, as the kernel has them now; of one kind alone the kernel picks."""
    found: list[Route] = []
    for family in families:
        head = _RTMSG.pack(family.value, 0, 0, 0, 0, 0, 0, kind.value if kind is not None else 0, 0)
        request = message(nl.RTM_GETROUTE, nl.NLM_F_DUMP, head, attr_u32(nl.RTA_TABLE, table))
        for answer in sock.dump(request, f"{family.label} routes"):
            # An old kernel takes the kind for a wish: it hands back all.
            if answer.body[5] in protos and (kind is None or answer.body[7] == kind.value):
                route = parse_route(answer.body)
                if route is not None and route.table == table:
                    found.append(route)
    return tuple(found)


def parse_route(body: memoryview) -> Route | None:
    """Read an rtmsg and its attributes; None for what flock never makes (cloned, multicast, multipath, local)."""
    if len(body) < _RTMSG.size:
        return None
    family_number, length, _, _, table, proto, _, type_number, flags = _RTMSG.unpack_from(body)
    kind = _KINDS.get(type_number)
    if kind is None or flags & nl.RTM_F_CLONED or family_number not in _NETWORKS:
        return None
    found = attributes(body, _RTMSG.size)
    nexthop = u32(found[nl.RTA_NH_ID]) if nl.RTA_NH_ID in found else None
    if nl.RTA_MULTIPATH in found and nexthop is None:
        return None
    device = kind is RouteKind.UNICAST and nexthop is None and nl.RTA_OIF in found
    return Route(
        dst=_network(family_number, found.get(nl.RTA_DST), length),
        proto=proto,
        kind=kind,
        ifindex=u32(found[nl.RTA_OIF]) if device else None,
        gateway=None if nexthop is not None else read_address(found.get(nl.RTA_GATEWAY)),
        prefsrc=read_address(found.get(nl.RTA_PREFSRC)),
        metric=u32(found[nl.RTA_PRIORITY]) if nl.RTA_PRIORITY in found else 0,
        table=u32(found[nl.RTA_TABLE]) if nl.RTA_TABLE in found else table,
        nexthop_id=nexthop,
    )


_NETWORKS: Mapping[int, type[IPv4Network] | type[IPv6Network]] = {
    Family.IPV4.value: IPv4Network,
    Family.IPV6.value: IPv6Network,
}


def _network(family: int, dst: memoryview | None, length: int) -> Network:
    size = 4 if family == nl.AF_INET else 16
    return _NETWORKS[family]((bytes(dst) if dst is not None else bytes(size), length))
