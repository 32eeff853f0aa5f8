"""Pods that have outlived their CIDR: the NodeConfig has others now, and running pods keep their addresses (R14).

No summary stands for such an address any more, so it is announced by itself: a host route of protocol 71, let through
BIRD's export filter by name. Nothing is lost on the way: the host routes first, then BIRD's filter, which lets the
former summary pass too, and only then that goes. A BIRD that can't be told holds it up for ``PATIENCE`` at most: the
CIDR may be another node's by now.

If the process dies on any line: the next start finds the same pods in the store (``recover``), and announces them
before it serves.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from ipaddress import ip_network

from flock.agent.logs import ctx
from flock.agent.state import NodeState
from flock.api.node_config import NodeConfigSpec
from flock.errors import FlockError
from flock.model.attachment import Attachment
from flock.model.family import FAMILIES, Address, Network, family_of
from flock.model.ids import AttachmentKey

PATIENCE = 5.0
LONGEST_ADD = 60.0
"""Seconds after a change in which a pod that was under way may still come with an address of before."""

SLICE = 50

log = logging.getLogger("flock.node")


def find_left_behind(committed: Iterable[Attachment], cidrs: Sequence[Network]) -> frozenset[Address]:
    """The pods' addresses that lie in none of these CIDRs."""
    return frozenset(address for entry in committed for address in entry.addresses() if not _in_any(address, cidrs))


class LeftBehind:
    """Kept by the loops of BIRD and of the summaries, each of which asks ``announce`` before it does its part."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._cidrs: tuple[Network, ...] = ()
        self._former: tuple[Network, ...] = ()
        self._until = 0.0
        self._watchful_until = 0.0
        self._lock = asyncio.Lock()
        self.settled: Callable[[str], object] = str
        """Called when the former summaries may go."""

    @property
    def hosts(self) -> tuple[Network, ...]:
        """What is announced one by one, in an order of its own: equal sets give equal configurations."""
        return tuple(sorted(map(ip_network, self._state.left_behind), key=lambda net: (-net.version, int(net[0]))))

    @property
    def former(self) -> tuple[Network, ...]:
        """CIDRs of before whose summaries stand until BIRD announces the pods in them one by one."""
        return self._former if self._state.clock.monotonic() < self._until else ()

    async def announce(self) -> None:
        """Find them anew, and give their host routes the protocol that is announced; one failure keeps no other."""
        async with self._lock:
            spec = self._state.spec()
            if spec is None:
                return
            before = self._state.left_behind
            await self._look(spec)
            changed = before ^ self._state.left_behind
            keys = [entry.key for entry in self._state.store.committed()
                    if changed and not changed.isdisjoint(entry.addresses())]
            await asyncio.gather(*(self._in_worker(partial(self._mend, key)) for key in keys))

    def exported(self, hosts: Sequence[Network]) -> None:
        """BIRD has a configuration that lets these out."""
        if self._former and set(hosts) >= set(self.hosts):
            self._former = ()
            self.settled("pods of a former CIDR are announced one by one")

    async def _look(self, spec: NodeConfigSpec) -> None:
        state = self._state
        state.last_spec = spec
        now = state.clock.monotonic()
        cidrs = all_cidrs(spec)
        if cidrs == self._cidrs and not state.left_behind and now >= self._watchful_until:
            return
        left = await self._find(cidrs)
        if cidrs != self._cidrs:
            self._former = tuple(
                cidr for cidr in self._cidrs if cidr not in cidrs and any(_in_any(one, (cidr,)) for one in left))
            self._until = now + PATIENCE
            self._watchful_until = now + LONGEST_ADD
            self._cidrs = cidrs
        if left - state.left_behind:
            log.info("pods outlive their CIDR, each is announced by itself", extra=ctx(addresses=len(left)))
        state.left_behind = left

    async def _find(self, cidrs: tuple[Network, ...]) -> frozenset[Address]:
        """In slices of about a millisecond, between which an ADD has its turn."""
        committed = self._state.store.committed()
        found: set[Address] = set()
        for start in range(0, len(committed), SLICE):
            found |= find_left_behind(committed[start:start + SLICE], cidrs)
            await asyncio.sleep(0)
        return frozenset(found)

    def _mend(self, key: AttachmentKey) -> None:
        state = self._state
        entry = state.store.get(key)
        if entry is None or key in state.leaving:
            return
        plan = state.plan(entry)
        try:
            state.wiring.repair(plan, state.wiring.check(plan, None))
        except FlockError as error:
            log.warning("a pod's route can't be announced", extra=ctx(pod=entry.owner, key=key, error=error))

    async def _in_worker(self, job: Callable[[], None]) -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def run() -> None:
            try:
                job()
            finally:
                loop.call_soon_threadsafe(done.set)

        self._state.worker.post(run)
        await done.wait()


def all_cidrs(spec: NodeConfigSpec) -> tuple[Network, ...]:
    """Those of both families."""
    return tuple(cidr for family in FAMILIES for cidr in spec.cidrs(family))


def _in_any(address: Address, networks: Iterable[Network]) -> bool:
    return any(family_of(net) is family_of(address) and address in net for net in networks)
