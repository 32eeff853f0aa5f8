"""What the kernel holds of a pod's link, and how it differs from the plan. Pure.

    for link in pod_wiring.scan():            # ObservedLink of every host end
        link.key                              # AttachmentKey from the alias, None where the alias isn't flock's
        link.pod_addresses                    # what its host routes say the pod has: for a rebuild of the store
        for difference in host_differences(wiring, link): print(difference)

Invariant: only what is planned is looked for. More than that (a route, an address that a later plugin added) is no
difference, so nothing of a stranger's is ever reported or removed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from flock.model.family import Address, family_of
from flock.model.ids import AttachmentKey
from flock.model.ownership import parse_ifalias
from flock.netlink.constants import IFA_F_DADFAILED, IFA_F_TENTATIVE
from flock.netlink.messages import Link, LinkAddress, Neighbour, ensure_address, ensure_neighbour, set_link
from flock.netlink.routes import Route
from flock.pods.plan import GATEWAYS, Wiring
from flock.pods.steps import (
    Step,
    gateway_addresses,
    host_neighbours,
    host_options,
    host_route_step,
    pod_addresses,
    pod_neighbour,
    pod_route_step,
)


class Side(Enum):
    """Which end of the link a difference is on."""

    HOST = "host"
    POD = "pod"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that isn't as planned: ``what`` in plain English for users, ``repair`` the step that mends it.

    Without a repair it can't be mended in place (the link itself is missing). A ``minor`` one cuts nobody off (a
    route's preferred source after the node's address changed, another MTU inside): the sweep mends it, CHECK passes
    over it.
    """

    side: Side
    what: str
    repair: Step | None = None
    minor: bool = False

    def __str__(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedLink:
    """One end of a link with all that hangs off it, as read; usable addresses and permanent neighbours alone."""

    ifindex: int
    name: str
    alias: str
    mac: bytes
    mtu: int
    up: bool
    rp_filter: int
    addresses: frozenset[tuple[Address, int]]
    neighbours: frozenset[tuple[Address, bytes]]
    routes: frozenset[Route]

    @property
    def key(self) -> AttachmentKey | None:
        """The attachment that the alias names."""
        return parse_ifalias(self.alias)

    @property
    def pod_addresses(self) -> tuple[Address, ...]:
        """The addresses that the host routes to this link by flock's protocols, IPv6 first."""
        hosts = (route.dst for route in self.routes if route.dst.prefixlen == route.dst.max_prefixlen)
        return tuple(sorted((dst.network_address for dst in hosts), key=lambda address: -address.version))


def observe(
    links: Iterable[Link],
    addresses: Iterable[LinkAddress],
    neighbours: Iterable[Neighbour],
    routes: Iterable[Route],
) -> tuple[ObservedLink, ...]:
    """Join what four dumps say of some links."""
    owners = {link.ifindex: link for link in links}
    has: dict[int, set[tuple[Address, int]]] = {index: set() for index in owners}
    knows: dict[int, set[tuple[Address, bytes]]] = {index: set() for index in owners}
    routed: dict[int, set[Route]] = {index: set() for index in owners}
    for entry in addresses:
        if entry.ifindex in has and not entry.flags & (IFA_F_DADFAILED | IFA_F_TENTATIVE):
            has[entry.ifindex].add((entry.address, entry.length))
    for neighbour in neighbours:
        if neighbour.ifindex in knows and neighbour.permanent:
            knows[neighbour.ifindex].add((neighbour.address, neighbour.mac))
    for route in routes:
        if route.ifindex in routed:
            routed[route.ifindex].add(route)
    return tuple(
        ObservedLink(
            ifindex=index,
            name=link.name,
            alias=link.alias,
            mac=link.mac,
            mtu=link.mtu,
            up=link.up,
            rp_filter=link.rp_filter,
            addresses=frozenset(has[index]),
            neighbours=frozenset(knows[index]),
            routes=frozenset(routed[index]),
        )
        for index, link in owners.items()
    )


def host_differences(wiring: Wiring, link: ObservedLink | None) -> tuple[Difference, ...]:
    """How the host end differs from the plan; no link is one difference, without repair."""
    if link is None:
        return (Difference(side=Side.HOST, what=f"interface {wiring.host_ifname} is missing on the node"),)
    return tuple(_host_differences(wiring, link))


def _host_differences(wiring: Wiring, link: ObservedLink) -> Iterator[Difference]:
    side, name, index = Side.HOST, link.name, link.ifindex
    yield from _link_differences(side, link, wiring.host_mac, wiring.mtu)
    if link.alias != wiring.alias or link.rp_filter not in (2, -1):
        what = f"alias or reverse path filter of {name} was changed"
        yield Difference(side=side, what=what, repair=Step(what, host_options(wiring, index)))
    yield from _missing_addresses(side, link, gateway_addresses(wiring))
    for address in host_neighbours(wiring):
        if (address, wiring.pod_mac) not in link.neighbours:
            what = f"permanent neighbour entry of {address} is missing on {name}"
            repair = Step(what, ensure_neighbour(index, address, wiring.pod_mac))
            yield Difference(side=side, what=what, repair=repair)
    for entry in wiring.addresses:
        yield from _missing_route(side, link, host_route_step(entry, index))


def pod_differences(wiring: Wiring, link: ObservedLink | None) -> tuple[Difference, ...]:
    """How the pod's end differs from the plan; no link is one difference, without repair."""
    if link is None:
        return (Difference(side=Side.POD, what=f"interface {wiring.ifname} is missing in the pod"),)
    return tuple(_pod_differences(wiring, link))


def _pod_differences(wiring: Wiring, link: ObservedLink) -> Iterator[Difference]:
    side, index = Side.POD, link.ifindex
    yield from _link_differences(side, link, wiring.pod_mac, wiring.mtu)
    yield from _missing_addresses(side, link, pod_addresses(wiring))
    for entry in wiring.addresses:
        gateway = GATEWAYS[entry.family]
        if (gateway, wiring.host_mac) not in link.neighbours:
            what = f"permanent neighbour entry of {gateway} is missing on {link.name} in the pod"
            yield Difference(side=side, what=what, repair=Step(what, pod_neighbour(wiring, index, gateway)))
        yield from _missing_route(side, link, pod_route_step(entry, index))


def _link_differences(side: Side, link: ObservedLink, mac: bytes, mtu: int) -> Iterator[Difference]:
    name, index = link.name, link.ifindex
    if link.mac != mac:
        what = f"MAC of {name} is {link.mac.hex(':')}, not {mac.hex(':')}"
        yield Difference(side=side, what=what, repair=Step(what, set_link(index, mac=mac)))
    if not link.up:
        what = f"{name} is down"
        yield Difference(side=side, what=what, repair=Step(what, set_link(index, up=True)))
    if link.mtu != mtu:
        # A plugin chained after flock may set another one inside the pod.
        what = f"MTU of {name} is {link.mtu}, not {mtu}"
        minor = side is Side.POD
        yield Difference(side=side, what=what, repair=Step(what, set_link(index, mtu=mtu)), minor=minor)


def _missing_addresses(side: Side, link: ObservedLink, wanted: Iterable[tuple[Address, int]]) -> Iterator[Difference]:
    for address, length in wanted:
        if (address, length) not in link.addresses:
            what = f"address {address}/{length} is missing on {link.name}"
            repair = Step(what, ensure_address(link.ifindex, address, length))
            yield Difference(side=side, what=what, repair=repair)


def _missing_route(side: Side, link: ObservedLink, step: Step) -> Iterator[Difference]:
    wanted = step.route
    if wanted is None or wanted in link.routes:
        return
    delivers = any(replace(route, proto=wanted.proto, prefsrc=wanted.prefsrc) == wanted for route in link.routes)
    if delivers:
        what = f"protocol or source of the route to {wanted.dst} on {link.name} was changed"
    elif wanted.gateway is not None:
        what = f"{family_of(wanted.dst).label} default route via {wanted.gateway} is missing on {link.name}"
    else:
        what = f"route to {wanted.dst} via {link.name} is missing"
    yield Difference(side=side, what=what, repair=step._replace(what=what), minor=delivers)
