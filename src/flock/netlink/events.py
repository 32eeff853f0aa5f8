"""What the kernel tells of losses: one frozen type for each, and how it is read from a notification. Pure.

Invariant: a notification that flock doesn't know becomes no event; Overflow says that some were lost, and whoever reads
it must look at everything (the sweep), since no single loss is known any more.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from flock.model.family import Address
from flock.netlink import constants as nl
from flock.netlink.messages import parse_address, parse_link, parse_link_name, parse_neighbour
from flock.netlink.routes import FLOCK_PROTOS, Route, parse_route
from flock.netlink.wire import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkGone:
    """RTM_DELLINK: at this moment GETLINK says ENODEV and the pod end is gone too."""

    ifindex: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkChanged:
    """RTM_NEWLINK of a link that is down, or whose MAC isn't one that flock gave."""

    ifindex: int
    name: str
    mac: bytes
    up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressGone:
    """RTM_DELADDR, of a global or a gateway address of any link."""

    ifindex: int
    address: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourGone:
    """RTM_DELNEIGH, of either family and any link."""

    ifindex: int
    address: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteGone:
    """RTM_DELROUTE of a route with one of flock's protocols; ``ifindex`` 0 for a blackhole or a next-hop group."""

    ifindex: int
    route: Route


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """Notifications were lost (ENOBUFS)."""


Event = LinkGone | LinkChanged | AddressGone | NeighbourGone | RouteGone | Overflow


Watched = Callable[[int], bool]
"""Says of a link's index whether its events matter: a DEL makes nine, which then cost a look each and no parse."""

_BY_INDEX = frozenset({nl.RTM_NEWLINK, nl.RTM_DELADDR, nl.RTM_DELNEIGH})
_INDEX = struct.Struct("=i")


def parse_event(message: Message, watched: Watched | None = None) -> Event | None:
    """The event that a notification is, or None. A link that is gone and a blackhole matter always."""
    if watched is not None and (index := _index(message)) and not watched(index):
        return None
    match message.kind:
        case nl.RTM_DELLINK | nl.RTM_NEWLINK:
            return _link_event(message)
        case nl.RTM_DELADDR:
            lost = parse_address(message.body)
            return AddressGone(ifindex=lost.ifindex, address=lost.address) if lost else None
        case nl.RTM_DELNEIGH:
            entry = parse_neighbour(message.body)
            return NeighbourGone(ifindex=entry.ifindex, address=entry.address) if entry else None
        case nl.RTM_DELROUTE:
            route = parse_route(message.body)
            return None if route is None else _route_event(route, watched)
        case _:
            return None


def _index(message: Message) -> int:
    """The link that a notification is of, if that can be told without parsing; else 0, which no link has."""
    # ifinfomsg, ifaddrmsg and ndmsg all have the index at the same place.
    known = message.kind in _BY_INDEX and len(message.body) >= 8
    return int(_INDEX.unpack_from(message.body, 4)[0]) if known else 0


def _route_event(route: Route, watched: Watched | None) -> RouteGone | None:
    ours = route.proto in FLOCK_PROTOS
    if ours and watched is not None and route.ifindex is not None:
        ours = watched(route.ifindex)
    return RouteGone(ifindex=route.ifindex or 0, route=route) if ours else None


def _link_event(message: Message) -> LinkGone | LinkChanged | None:
    if message.kind == nl.RTM_DELLINK:
        named = parse_link_name(message.body)
        return None if named is None else LinkGone(ifindex=named[0], name=named[1])
    link = parse_link(message.body)
    return None if link is None else LinkChanged(ifindex=link.ifindex, name=link.name, mac=link.mac, up=link.up)
