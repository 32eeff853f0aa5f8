"""What the kernel tells of losses: one frozen type for each, and how it is read from a notification. Pure.

Invariant: a notification that flock doesn't know becomes no event; Overflow says that some were lost, and whoever reads
it must look at everything (the sweep), since no single loss is known any more.
"""

from dataclasses import dataclass

from flock.model.family import Address
from flock.netlink import constants as nl
from flock.netlink.messages import parse_address, parse_link, parse_neighbour
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


def parse_event(message: Message) -> Event | None:
    """The event that a notification is, or None."""
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
            if route is None or route.proto not in FLOCK_PROTOS:
                return None
            return RouteGone(ifindex=route.ifindex or 0, route=route)
        case _:
            return None


def _link_event(message: Message) -> LinkGone | LinkChanged | None:
    link = parse_link(message.body)
    if link is None:
        return None
    if message.kind == nl.RTM_DELLINK:
        return LinkGone(ifindex=link.ifindex, name=link.name)
    return LinkChanged(ifindex=link.ifindex, name=link.name, mac=link.mac, up=link.up)
