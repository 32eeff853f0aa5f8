"""Which steps put back what one notice says was taken. Pure.

Invariant: only what the plan has is put back, so a notice about something else is no step at all. Where the kernel
takes more than it tells, all of that is put back: the removal of an interface's last IPv4 address silently empties its
routes and its neighbours (fib_disable_ip in net/ipv4/fib_frontend.c), a new MAC empties the neighbours, and a link that
went down loses everything.
"""

from flock.model.family import Address, family_of
from flock.netlink.events import AddressGone, Event, LinkChanged, NeighbourGone, RouteGone
from flock.netlink.messages import set_link
from flock.pods.plan import Wiring
from flock.pods.steps import (
    Step,
    gateway_steps,
    host_neighbour_steps,
    host_route_steps,
    host_steps,
)


def steps_against(event: Event, wiring: Wiring) -> list[Step]:
    """The steps for the host end of one attachment; none where the event takes nothing of it."""
    match event:
        case AddressGone(ifindex=index, address=lost):
            return _family_steps(wiring, index, lost)
        case NeighbourGone(ifindex=index, address=lost):
            return [step for step in host_neighbour_steps(wiring, index) if step.subject == lost]
        case RouteGone(ifindex=index, route=lost_route):
            return [step for step in host_route_steps(wiring, index) if step.subject == lost_route.dst]
        case LinkChanged():
            return _restore(event, wiring)
        case _:
            return []


def _family_steps(wiring: Wiring, index: int, lost: Address) -> list[Step]:
    """If it is a gateway address that went: all of its family."""
    gateways = gateway_steps(wiring, index)
    if all(step.subject != lost for step in gateways):
        return []
    steps = [*gateways, *host_neighbour_steps(wiring, index), *host_route_steps(wiring, index)]
    return [step for step in steps if step.family is family_of(lost)]


def _restore(event: LinkChanged, wiring: Wiring) -> list[Step]:
    """The MAC first, since a new one empties what hangs off the link."""
    index = event.ifindex
    if event.mac != wiring.host_mac:
        return [Step("MAC", set_link(index, mac=wiring.host_mac)), *host_steps(wiring, index)]
    return [] if event.up else host_steps(wiring, index)
