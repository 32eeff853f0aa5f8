"""Which steps put back what one notice says was taken. Pure.

Invariant: only what the plan has is put back, and exactly that, so a notice about something else is no step at all.
"""

from flock.netlink.events import AddressGone, Event, LinkChanged, NeighbourGone, RouteGone
from flock.netlink.messages import ensure_address, ensure_neighbour, set_link
from flock.pods.plan import Wiring
from flock.pods.steps import Step, gateway_addresses, host_neighbours, host_route_step, host_steps


def steps_against(event: Event, wiring: Wiring) -> list[Step]:
    """The steps for the host end of one attachment; none where the event takes nothing of it."""
    match event:
        case AddressGone(ifindex=index, address=lost):
            return [
                Step("gateway address", ensure_address(index, address, length), address)
                for address, length in gateway_addresses(wiring)
                if address == lost
            ]
        case NeighbourGone(ifindex=index, address=lost):
            return [
                Step("neighbour", ensure_neighbour(index, address, wiring.pod_mac), address)
                for address in host_neighbours(wiring)
                if address == lost
            ]
        case RouteGone(ifindex=index, route=lost_route):
            steps = [host_route_step(entry, index) for entry in wiring.addresses]
            return [step for step in steps if step.route is not None and step.route.dst == lost_route.dst]
        case LinkChanged():
            return _restore(event, wiring)
        case _:
            return []


def _restore(event: LinkChanged, wiring: Wiring) -> list[Step]:
    """MAC and state first: either change empties what hangs off the link (neigh_changeaddr, addrconf_ifdown)."""
    index = event.ifindex
    first = []
    if event.mac != wiring.host_mac:
        first.append(Step("MAC", set_link(index, mac=wiring.host_mac)))
    if not event.up:
        first.append(Step("link up", set_link(index, up=True)))
    return [*first, *host_steps(wiring, index)] if first else []
