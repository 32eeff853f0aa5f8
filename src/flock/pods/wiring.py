"""Pods' links in the kernel: made, checked, mended, removed.

    wiring = PodWiring()
    wiring.start([plan])                             # the reaper threads of unwire_async; close() ends them

    # ADD, in a worker thread; the netns descriptor is the caller's and stays open
    wired = wiring.attach(plan, netns_fd)            # AlreadyAttached, InvalidNetns or IOFailure; then nothing is left
    wiring.complete(plan, wired.host_ifindex)        # the gateway's addresses; may come after the reply

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

Every method is synchronous, may wait for RTNL (never call it in the loop thread) and is safe to call from several
threads: each thread has its own socket, and lives in the namespace where it first called. Invariant: a link is touched
only if its name and its alias are flock's.

If the process dies on any line: the link is there whole, in part or not at all, under a name that the attachment's key
gives; a pending attachment is torn down by that name at the next start.
"""

import errno
import itertools
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from flock.errors import AlreadyAttached, FlockError, InvalidNetns, IOFailure
from flock.model.ownership import HOST_PREFIX, host_ifname, parse_ifalias
from flock.netlink.events import Event
from flock.netlink.messages import Link, delete_link
from flock.netlink.netns import HomeNetns
from flock.netlink.socket import NetlinkError, NetlinkSocket, Refusal, interface_name
from flock.pods.batches import host_batch, pod_batch, prepare
from flock.pods.ends import End, activate, find_link, read_link, read_links
from flock.pods.healing import steps_against
from flock.pods.observe import Difference, ObservedLink, Side, host_differences, pod_differences
from flock.pods.plan import Wiring
from flock.pods.reaper import Gone, Reaper
from flock.pods.steps import gateway_steps, pod_steps, vital_host_steps
from flock.system.sysctl import write_sysctl

FIRST_INDEX = 1 << 20
"""Host ends' indexes are chosen from here on, far from the kernel's own, so that the batch that makes a link can name
it without asking first."""

POD_INDEX = 2
"""The index after that of ``lo``; taken where a namespace has tunnel devices or another network's interface."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wired:
    """The indexes that a new link got, each in its own namespace."""

    host_ifindex: int
    pod_ifindex: int


class _IndexTaken(IOFailure):
    """The kernel has a link with that index, here or in the pod's namespace."""


class _Here:
    """What a thread has of its own: its home and a socket that speaks to it."""

    __slots__ = ("home", "sock")

    def __init__(self) -> None:
        self.home = HomeNetns()
        self.sock = NetlinkSocket()

    def __del__(self) -> None:
        # The thread has ended.
        self.sock.close()
        self.home.close()


class PodWiring:
    """The one writer of pods' links on this node."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._reaper = Reaper()
        self._indexes = itertools.count(FIRST_INDEX + secrets.randbelow(1 << 20))

    def start(self, likely: Iterable[Wiring] = ()) -> None:
        """Start the reaper threads, and get ready for wirings like these (of their shape: lengths, families)."""
        self._reaper.start()
        for wiring in likely:
            prepare(wiring)

    def close(self) -> None:
        """Let the reapers finish what they were given, then end them."""
        self._reaper.close()

    def wire(self, wiring: Wiring, netns_fd: int) -> Wired:
        """``attach`` and ``complete``, whole or not at all."""
        wired = self.attach(wiring, netns_fd)
        try:
            self.complete(wiring, wired.host_ifindex)
        except BaseException:
            self._undo(wired.host_ifindex)
            raise
        return wired

    def complete(self, wiring: Wiring, host_ifindex: int) -> None:
        """Give the host end its own addresses, so that the pod can ping its gateway; a link that is gone is fine.

        No packet needs them: the neighbour entries are permanent. With as many pods as a node has, each new address
        that all host ends share costs the kernel a walk over the others, a sixth of what the whole link costs.
        """
        try:
            self._host_end(wiring.host_ifname).apply(gateway_steps(wiring, host_ifindex))
        except NetlinkError as error:
            if error.errno != errno.ENODEV:
                raise

    def attach(self, wiring: Wiring, netns_fd: int) -> Wired:
        """Make both ends of one attachment's link and all that its traffic needs, whole or not at all."""
        self._here().home.check(netns_fd)
        with self._pod_end(wiring, netns_fd) as pod:
            wired = self._wire_host(wiring, netns_fd)
            try:
                refusals = pod.send(pod_batch(wiring, wired.pod_ifindex))
                if refusals:
                    pod.finish(pod_steps(wiring, wired.pod_ifindex), refusals)
                activate(self._here().sock, wired.host_ifindex)
            except BaseException:
                self._undo(wired.host_ifindex)
                raise
        return wired

    def _wire_host(self, wiring: Wiring, netns_fd: int) -> Wired:
        """Make the link and complete its host end; other indexes are tried where one is taken."""
        try:
            return self._try_host(wiring, netns_fd, self._free_index(), POD_INDEX)
        except _IndexTaken:
            index = self._free_index()
        try:
            return self._try_host(wiring, netns_fd, index, index)
        except _IndexTaken as error:
            raise IOFailure(f"no free index for interface {wiring.host_ifname}", f"{index} is taken too") from error

    def _try_host(self, wiring: Wiring, netns_fd: int, index: int, pod_index: int) -> Wired:
        end = self._host_end(wiring.host_ifname)
        refusals = end.send(host_batch(wiring, index, pod_index, netns_fd))
        if refusals and refusals[0].index == 0:
            raise self._not_created(wiring, refusals[0])
        if refusals:
            self._finish_host(end, wiring, index, refusals)
        return Wired(host_ifindex=index, pod_ifindex=pod_index)

    def _finish_host(self, end: End, wiring: Wiring, index: int, refusals: Sequence[Refusal]) -> None:
        """The link exists; what else was refused is tried otherwise, or the link goes again."""
        try:
            end.finish(vital_host_steps(wiring, index), [refusal.after(1) for refusal in refusals])
        except BaseException:
            self._undo(index)
            raise

    def _free_index(self) -> int:
        """An index that no link has: the rest of a batch must never hit another's link."""
        sock = self._here().sock
        while interface_name(sock, index := next(self._indexes)) is not None:
            pass
        return index

    def _not_created(self, wiring: Wiring, refusal: Refusal) -> FlockError:
        """Why there is no link, for the runtime."""
        if refusal.errno == errno.EBUSY:
            return _IndexTaken(wiring.host_ifname)
        if refusal.errno != errno.EEXIST:
            if refusal.errno == errno.EBADF:
                return InvalidNetns("the pod's network namespace is gone", refusal.text)
            return NetlinkError(f"link {wiring.host_ifname}", [refusal])
        if find_link(self._here().sock, wiring.host_ifname) is not None:
            return AlreadyAttached(f"{wiring.key} is attached already, by interface {wiring.host_ifname} of the node")
        return AlreadyAttached(f"interface {wiring.ifname} exists in the pod's network namespace already")

    def _undo(self, ifindex: int) -> None:
        with suppress(FlockError):
            self._here().sock.run([delete_link(ifindex)], "the removal of a half-made link")

    def unwire_async(self, host_ifname: str, gone: Gone) -> bool:
        """Have a link removed; False where there is none. A link that isn't flock's is refused with IOFailure."""
        link = self._own_link(host_ifname)
        if link is not None:
            self._reaper.remove(link.ifindex, link.name, gone)
        return link is not None

    def link_gone(self, ifindex: int) -> None:
        """The kernel's notice that a link is gone; cheap, for the loop thread. Unknown indexes are fine."""
        self._reaper.settle(ifindex)

    def unwire(self, host_ifname: str) -> bool:
        """Remove a link and wait for it; False where there is none."""
        link = self._own_link(host_ifname)
        if link is None:
            return False
        try:
            self._here().sock.run([delete_link(link.ifindex)], f"the removal of interface {host_ifname}")
        except NetlinkError as error:
            if error.errno != errno.ENODEV:
                raise
        return True

    def _own_link(self, name: str) -> Link | None:
        link = find_link(self._here().sock, name)
        if link is not None and not is_own(link):
            raise IOFailure(f"interface {name} is not flock's, it is left alone", f"its alias is {link.alias[:80]!r}")
        return link

    def check(self, wiring: Wiring, netns_fd: int | None) -> tuple[Difference, ...]:
        """What differs from the plan, on both sides, or on the host's alone where the netns isn't at hand."""
        here = self._here()
        found = host_differences(wiring, read_link(here.sock, wiring.host_ifname))
        if netns_fd is None:
            return found
        here.home.check(netns_fd)
        with here.home.socket_in(netns_fd) as sock:
            return found + pod_differences(wiring, read_link(sock, wiring.ifname))

    def scan(self) -> tuple[ObservedLink, ...]:
        """All host ends of flock's on this node, with addresses, neighbours and routes; one quick dump each."""
        return read_links(self._here().sock, is_own)

    def repair(self, wiring: Wiring, differences: Iterable[Difference], netns_fd: int | None = None) -> None:
        """Put right what was found; differences of the pod's side need its netns."""
        found = tuple(differences)
        steps = [each.repair for each in found if each.side is Side.HOST and each.repair is not None]
        if steps:
            self._host_end(wiring.host_ifname).apply(steps)
        inner = [each.repair for each in found if each.side is Side.POD and each.repair is not None]
        if inner and netns_fd is not None:
            self._here().home.check(netns_fd)
            with self._pod_end(wiring, netns_fd) as pod:
                pod.apply(inner)

    def heal(self, event: Event, wiring: Wiring) -> bool:
        """Put back what an event says was taken from a live attachment; False where nothing of it was ours."""
        steps = steps_against(event, wiring)
        if not steps:
            return False
        try:
            self._host_end(wiring.host_ifname).apply(steps)
        except NetlinkError as error:
            if error.errno != errno.ENODEV:
                raise
            return False
        return True

    def _here(self) -> _Here:
        here: _Here | None = getattr(self._local, "here", None)
        if here is None or here.sock.fileno() < 0:
            here = self._local.here = _Here()
        return here

    def _host_end(self, name: str) -> End:
        return End(sock=self._here().sock, what=f"the host end {name}", enable_ipv6=partial(_enable_ipv6, name))

    @contextmanager
    def _pod_end(self, wiring: Wiring, netns_fd: int) -> Iterator[End]:
        home = self._here().home

        def enable_ipv6() -> None:
            with home.inside(netns_fd):
                _enable_ipv6(wiring.ifname)

        with home.socket_in(netns_fd) as sock:
            yield End(sock=sock, what=f"the pod's {wiring.ifname}", enable_ipv6=enable_ipv6)


def is_own(link: Link) -> bool:
    """Is it a link that flock made? Its name follows from the key that its alias names.

    An agent that was killed inside the batch may have left one without alias; no other program makes such names.
    """
    if link.kind != "veth" or not link.name.startswith(HOST_PREFIX):
        return False
    key = parse_ifalias(link.alias)
    return not link.alias if key is None else host_ifname(key) == link.name


def _enable_ipv6(name: str) -> None:
    """Switch IPv6 on where the namespace's default has it off. Only on refusal: a write there costs much."""
    write_sysctl(f"net/ipv6/conf/{name}/disable_ipv6", 0)
