"""Pods' links in the kernel: made, checked, mended, removed.

    wiring = PodWiring()
    wiring.start()                                   # the reaper threads of unwire_async; close() ends them

    # ADD, in a worker thread; the netns descriptor is the caller's and stays open
    wired = wiring.wire(plan, netns_fd)              # AlreadyAttached, InvalidNetns or IOFailure; then nothing is left

    # DEL, in a worker thread
    if not wiring.unwire_async(host_ifname, gone):   # False: there is no such link (any more), gone isn't called
        reply()
    # gone(None) is called once the link is gone, gone(error) when the kernel refused; once, from any thread.
    # The loop thread feeds the monitor's LinkGone events:  wiring.link_gone(event.ifindex)

    wiring.unwire(host_ifname)                       # blocking: rollback, sweep; True if there was a link
    wiring.check(plan, netns_fd)                     # for CHECK, both sides; netns_fd None: host side alone
    wiring.scan()                                    # every host end of flock's, for rebuild and sweep
    wiring.repair(plan, differences, netns_fd)       # puts right what check or the sweep found
    wiring.heal(event, plan)                         # puts back exactly what an event says was taken

Every method is synchronous, may take RTNL (never call it in the loop thread) and is safe to call from several threads.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flock.errors import FlockError
from flock.netlink.events import Event
from flock.pods.observe import Difference, ObservedLink
from flock.pods.plan import Wiring

Gone = Callable[[FlockError | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wired:
    """The indexes that a new link got, each in its own namespace."""

    host_ifindex: int
    pod_ifindex: int


class PodWiring:
    """The one writer of pods' links on this node."""

    def start(self) -> None:
        """Start the reaper threads."""
        raise NotImplementedError

    def close(self) -> None:
        """Let the reapers finish what they were given, then end them."""
        raise NotImplementedError

    def wire(self, wiring: Wiring, netns_fd: int) -> Wired:
        """Make both ends of one attachment's link, whole or not at all."""
        raise NotImplementedError

    def unwire_async(self, host_ifname: str, gone: Gone) -> bool:
        """Have a link removed; False where there is none. A link that isn't flock's is refused with IOFailure."""
        raise NotImplementedError

    def link_gone(self, ifindex: int) -> None:
        """The kernel's notice that a link is gone; cheap, for the loop thread. Unknown indexes are fine."""
        raise NotImplementedError

    def unwire(self, host_ifname: str) -> bool:
        """Remove a link and wait for it; False where there is none."""
        raise NotImplementedError

    def check(self, wiring: Wiring, netns_fd: int | None) -> tuple[Difference, ...]:
        """What differs from the plan, on both sides, or on the host's alone where the netns isn't at hand."""
        raise NotImplementedError

    def scan(self) -> tuple[ObservedLink, ...]:
        """All host ends of flock's on this node, with addresses, neighbours and routes; one quick dump each."""
        raise NotImplementedError

    def repair(self, wiring: Wiring, differences: Iterable[Difference], netns_fd: int | None = None) -> None:
        """Put right what was found; differences of the pod's side need its netns."""
        raise NotImplementedError

    def heal(self, event: Event, wiring: Wiring) -> bool:
        """Put back what an event says was taken from a live attachment; False where nothing of it was ours."""
        raise NotImplementedError
