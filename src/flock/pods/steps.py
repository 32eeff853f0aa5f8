"""The requests that make one attachment's wiring, end by end. Pure.

Invariant: all but the creation of the link are idempotent (create or replace), so the same steps make, complete and
mend an end; and they are in an order that works from nothing: options before the link has a carrier, addresses before
the routes that need them.
"""

from collections.abc import Iterator
from ipaddress import ip_network
from typing import NamedTuple

from flock.model.family import Address, Family, Network, family_of
from flock.model.ownership import PROTO_HOME
from flock.netlink.messages import (
    LOOSE_RP_FILTER,
    NO_LINK_LOCAL,
    ensure_address,
    ensure_neighbour,
    new_veth,
    set_family_options,
    set_link,
)
from flock.netlink.routes import Route, replace_route, take_as_own
from flock.pods.plan import GATEWAY_LENGTHS, GATEWAYS, PodAddress, Wiring

ANYWHERE: dict[Family, Network] = {Family.IPV6: ip_network("::/0"), Family.IPV4: ip_network("0.0.0.0/0")}


class Step(NamedTuple):
    """One request, what it is for, and the route that it sets, if it sets one."""

    what: str
    request: bytes
    subject: Address | Network | None = None
    route: Route | None = None

    @property
    def family(self) -> Family | None:
        return None if self.subject is None else family_of(self.subject)

    def __str__(self) -> str:
        # Put together for an error alone: writing an address out costs more than sending it.
        return self.what if self.subject is None else f"{self.what} {self.subject}"


def create_link(wiring: Wiring, ifindex: int, pod_ifindex: int, netns_fd: int) -> Step:
    """The one request that makes both ends, the pod's inside its namespace."""
    request = new_veth(
        name=wiring.host_ifname,
        ifindex=ifindex,
        mac=wiring.host_mac,
        peer=wiring.ifname,
        peer_ifindex=pod_ifindex,
        peer_mac=wiring.pod_mac,
        netns_fd=netns_fd,
        mtu=wiring.mtu,
    )
    return Step("the link", request)


def host_steps(wiring: Wiring, ifindex: int) -> list[Step]:
    """All that the host end needs once the link is there."""
    return [*vital_host_steps(wiring, ifindex), *gateway_steps(wiring, ifindex)]


def vital_host_steps(wiring: Wiring, ifindex: int) -> list[Step]:
    """What the pod's traffic needs of the host end: all but the addresses that answer its pings."""
    return [
        Step("alias and options", host_options(wiring, ifindex)),
        Step("link up", set_link(ifindex, up=True)),
        *host_neighbour_steps(wiring, ifindex),
        *host_route_steps(wiring, ifindex),
    ]


def gateway_steps(wiring: Wiring, ifindex: int) -> list[Step]:
    """The host end's own addresses."""
    return [
        Step("gateway address", ensure_address(ifindex, address, length), address)
        for address, length in gateway_addresses(wiring)
    ]


def host_neighbour_steps(wiring: Wiring, ifindex: int) -> list[Step]:
    """Whom the host reaches over the link."""
    return [
        Step("neighbour", ensure_neighbour(ifindex, address, wiring.pod_mac), address)
        for address in host_neighbours(wiring)
    ]


def host_route_steps(wiring: Wiring, ifindex: int) -> list[Step]:
    """The host's routes to the pod's addresses."""
    return [host_route_step(entry, ifindex) for entry in wiring.addresses]


def pod_steps(wiring: Wiring, ifindex: int) -> list[Step]:
    """What the pod's end needs once the link is there; ``lo`` is the runtime's, and every runtime raises it."""
    return [
        Step("options", pod_options(ifindex)),
        Step("link up", set_link(ifindex, up=True)),
        *(
            Step("address", ensure_address(ifindex, address, length), address)
            for address, length in pod_addresses(wiring)
        ),
        *(
            Step("address taken as own", take_as_own(entry.address, ifindex), entry.address)
            for entry in wiring.addresses
            if entry.family is Family.IPV6  # IPv4 does it at once
        ),
        *(
            Step("neighbour", pod_neighbour(wiring, ifindex, GATEWAYS[entry.family]), GATEWAYS[entry.family])
            for entry in wiring.addresses
        ),
        *(pod_route_step(entry, ifindex) for entry in wiring.addresses),
    ]


def host_options(wiring: Wiring, ifindex: int) -> bytes:
    """Alias, reverse path filter, and no link-local address but ``fe80::1``."""
    return set_family_options(ifindex, LOOSE_RP_FILTER, NO_LINK_LOCAL, alias=wiring.alias)


def pod_options(ifindex: int) -> bytes:
    """No link-local address of the kernel's own making, in a pod without IPv6 neither."""
    return set_family_options(ifindex, NO_LINK_LOCAL)


def gateway_addresses(wiring: Wiring) -> Iterator[tuple[Address, int]]:
    """The host end's addresses and their prefix lengths."""
    for entry in wiring.addresses:
        yield GATEWAYS[entry.family], GATEWAY_LENGTHS[entry.family]


def host_neighbours(wiring: Wiring) -> Iterator[Address]:
    """The addresses that the host reaches at the pod's MAC."""
    if wiring.pod_link_local is not None:
        yield wiring.pod_link_local
    for entry in wiring.addresses:
        yield entry.address


def pod_addresses(wiring: Wiring) -> Iterator[tuple[Address, int]]:
    """The pod end's addresses and their prefix lengths; the link-local one makes the link's own route."""
    if wiring.pod_link_local is not None:
        yield wiring.pod_link_local, 64
    for entry in wiring.addresses:
        yield entry.address, entry.address.max_prefixlen


def pod_neighbour(wiring: Wiring, ifindex: int, gateway: Address) -> bytes:
    """The pod reaches its gateway at the host end's MAC."""
    return ensure_neighbour(ifindex, gateway, wiring.host_mac)


def host_route_step(entry: PodAddress, ifindex: int) -> Step:
    """The host's route to one address of the pod."""
    route = entry.host_route(ifindex)
    return Step("route to", replace_route(route), route.dst, route)


def pod_route(entry: PodAddress, ifindex: int) -> Route:
    """The pod's default route of the family of one of its addresses."""
    return Route(dst=ANYWHERE[entry.family], proto=PROTO_HOME, ifindex=ifindex, gateway=GATEWAYS[entry.family])


def pod_route_step(entry: PodAddress, ifindex: int) -> Step:
    """The request that sets the pod's default route of one family."""
    route = pod_route(entry, ifindex)
    return Step("default route", replace_route(route), route.dst, route)
