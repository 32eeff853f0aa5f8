"""One end of a pod's link through a netlink socket: apply steps, read it back.

Invariant: a step is applied whole or an error leaves. Two refusals are answered by trying otherwise: IPv6 that is
switched off on the end (EACCES) is switched on, and a route whose preferred source the node no longer has (EINVAL) is
made without one.

If the process dies on any line: the end is half made; the attachment is pending then, and is torn down at the next
start.
"""

import errno
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from flock.model.family import FAMILIES
from flock.netlink import constants as nl
from flock.netlink.messages import (
    Link,
    dump_addresses,
    dump_neighbours,
    dump_veths,
    get_link,
    parse_address,
    parse_link,
    parse_neighbour,
)
from flock.netlink.routes import dump_routes, replace_route
from flock.netlink.socket import NetlinkError, NetlinkSocket, Refusal
from flock.pods.batches import Batch
from flock.pods.observe import ObservedLink, observe
from flock.pods.steps import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A socket in the end's namespace, and how IPv6 is switched on for its interface."""

    sock: NetlinkSocket
    what: str
    enable_ipv6: Callable[[], None]

    def apply(self, steps: Sequence[Step]) -> None:
        """Apply steps; NetlinkError names the one that can't be."""
        self.finish(steps, self.attempt(steps))

    def attempt(self, steps: Sequence[Step]) -> Sequence[Refusal]:
        """Send steps in one go; what the kernel refused."""
        try:
            self.sock.run([step.request for step in steps], self.what)
        except NetlinkError as error:
            return error.refusals
        return ()

    def send(self, batch: Batch) -> Sequence[Refusal]:
        """Send a prepared batch in one go; what the kernel refused."""
        return self.sock.send(batch.data, batch.messages, self.what)

    def finish(self, steps: Sequence[Step], refusals: Sequence[Refusal]) -> None:
        """Try otherwise what was refused. All steps here are idempotent, so they may be sent again."""
        if any(refusal.errno == errno.EACCES for refusal in refusals):
            self.enable_ipv6()
            refusals = self.attempt(steps)
        again: list[bytes] = []
        for refusal in refusals:
            route = steps[refusal.index].route
            if refusal.errno != errno.EINVAL or route is None or route.prefsrc is None:
                raise NetlinkError(f"{steps[refusal.index]} on {self.what}", [refusal])
            again.append(replace_route(replace(route, prefsrc=None)))
        if again:
            self.sock.run(again, f"routes without preferred source on {self.what}")


def activate(sock: NetlinkSocket, ifindex: int) -> None:
    """Let the host end send from now on: its carrier came when the pod's end went up.

    The kernel has a work queue notice that; until then what the host sends is dropped: a pod's first answer. Asking for
    a link takes it out of that queue (linkwatch_sync_dev in rtnl_getlink, Linux 6.8; before, the queue alone does it).
    """
    sock.get(get_link(ifindex=ifindex), "the new link")


def find_link(sock: NetlinkSocket, name: str) -> Link | None:
    """A link by its name."""
    answer = sock.get(get_link(name=name), f"interface {name}")
    return None if answer is None else parse_link(answer.body)


def read_link(sock: NetlinkSocket, name: str) -> ObservedLink | None:
    """One link by name, with all that hangs off it."""
    link = find_link(sock, name)
    return None if link is None else _observe(sock, [link], link.ifindex)[0]


def read_links(sock: NetlinkSocket, wanted: Callable[[Link], bool]) -> tuple[ObservedLink, ...]:
    """Some of the veth ends of a namespace, each with all that hangs off it: one dump of each kind."""
    answers = sock.dump(dump_veths(), "links")
    links = [link for answer in answers if (link := parse_link(answer.body)) is not None and wanted(link)]
    return _observe(sock, links, 0) if links else ()


def _observe(sock: NetlinkSocket, links: Iterable[Link], ifindex: int) -> tuple[ObservedLink, ...]:
    addresses = [
        address
        for family in FAMILIES
        for answer in sock.dump(dump_addresses(family.value, ifindex), "addresses")
        if (address := parse_address(answer.body)) is not None
    ]
    neighbours = [
        neighbour
        for answer in sock.dump(dump_neighbours(ifindex), "neighbours")
        if (neighbour := parse_neighbour(answer.body)) is not None
    ]
    return observe(links, addresses, neighbours, dump_routes(sock, table=nl.RT_TABLE_MAIN))
