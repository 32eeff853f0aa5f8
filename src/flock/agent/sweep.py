"""Keeping the kernel as the store says: at once after a notice of loss, and all of it once per longest gap.

Only committed attachments are mended, never one that is leaving, and only in the worker's thread, so that a mend and a
DEL of one attachment can't cross. A store entry whose link is missing in two sweeps in a row is released: the pod's
network ended without a DEL (its namespace was deleted), and its addresses would be lost.

If the process dies on any line: the next start compares everything anew.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from flock.agent.logs import ctx
from flock.agent.state import NodeState
from flock.errors import FlockError
from flock.ipam.store import Store
from flock.model.attachment import Attachment
from flock.model.ids import AttachmentKey
from flock.netlink.events import Event, LinkGone, Overflow, RouteGone
from flock.pods.observe import ObservedLink, host_differences

log = logging.getLogger("flock.sweep")


class Sweep:
    """``notice`` is called in the loop's thread with each event; ``run`` is the action of a loop."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self.poke_all: Callable[[str], None] = lambda _reason: None
        self.poke_summaries: Callable[[str], None] = lambda _reason: None
        self._missing: set[AttachmentKey] = set()

    def notice(self, event: Event) -> None:
        """React to one notification of the kernel. Cheap: the mending itself is the worker's."""
        state = self._state
        match event:
            case LinkGone():
                state.wiring.link_gone(event.ifindex)
                key = state.links.pop(event.ifindex, None)
                if key is not None and key not in state.leaving and state.store.get(key) is not None:
                    log.warning("a pod's link vanished", extra=ctx(key=key, link=event.name))
            case Overflow():
                self.poke_all("kernel notices were lost")
            case RouteGone(ifindex=0):
                self.poke_summaries("a summary route is gone")
            case _:
                if event.ifindex in state.links:
                    state.worker.post(partial(self._heal, event, event.ifindex))

    def _heal(self, event: Event, ifindex: int) -> None:
        entry = self._entry_of(ifindex)
        if entry is None:
            return
        try:
            healed = self._state.wiring.heal(event, self._state.plan(entry))
        except FlockError as error:
            log.debug("not mended at once", extra=ctx(key=entry.key, error=error))
            return
        if healed:
            self._count(entry, "notice", str(event))

    def _entry_of(self, ifindex: int) -> Attachment | None:
        key = self._state.links.get(ifindex)
        if key is None or key in self._state.leaving:
            return None
        return self._state.store.get(key)

    async def run(self) -> None:
        """Compare every attachment with the kernel and mend what differs."""
        state = self._state
        store: Store = state.store
        if not store.intact():
            log.warning("the allocations folder vanished, it is written anew", extra=ctx(entries=len(store)))
            state.worker.post(store.rewrite)
        expected = store.committed()
        links = await asyncio.to_thread(state.wiring.scan)
        by_key = {key: link for link in links if (key := link.key) is not None}
        for entry in expected:
            link = by_key.get(entry.key)
            if link is None:
                continue
            state.links.setdefault(link.ifindex, entry.key)
            self._compare(entry, link)
            # A slice for the loop between two attachments: an ADD must not wait for the whole sweep.
            await asyncio.sleep(0)
        self._release_missing({entry.key for entry in expected} - by_key.keys())
        state.metrics.attachments.set(len(store))

    def _compare(self, entry: Attachment, link: ObservedLink) -> None:
        if host_differences(self._state.plan(entry), link):
            self._state.worker.post(partial(self._mend, entry.key))

    def _mend(self, key: AttachmentKey) -> None:
        """In the worker: look again, since the sweep's view is old by now, then put right."""
        state = self._state
        entry = state.store.get(key)
        if entry is None or key in state.leaving:
            return
        plan = state.plan(entry)
        state.complete(key)
        try:
            differences = state.wiring.check(plan, None)
            if differences:
                state.wiring.repair(plan, differences)
                self._count(entry, "sweep", "; ".join(map(str, differences)))
        except FlockError as error:
            log.warning("a pod's link can't be mended", extra=ctx(key=key, error=error))

    def _release_missing(self, missing: set[AttachmentKey]) -> None:
        again, self._missing = self._missing & missing, missing
        for key in again:
            self._state.worker.post(partial(self._release, key))

    def _release(self, key: AttachmentKey) -> None:
        """In the worker: a link missing for a whole gap is gone for good."""
        state = self._state
        if key in state.leaving:
            return
        now = state.clock.uptime()
        try:
            released = state.store.release(key, now)
        except FlockError as error:
            log.warning("a lost attachment can't be released", extra=ctx(key=key, error=error))
            return
        if released is not None:
            state.leaves(released)
            state.allocator.release(tuple(released.addresses()), now, released.owner)
            log.warning("attachment released: its link is gone", extra=ctx(pod=released.owner, key=key))

    def _count(self, entry: Attachment, how: str, what: str) -> None:
        self._state.metrics.healed.labels(how).inc()
        log.warning("put back what was taken away", extra=ctx(pod=entry.owner, key=entry.key, how=how, what=what))
