"""Orphans removed: at the start, and every 60 s (R5, R11).

Two sightings some seconds apart, then a live read of each pod, and only then a link is cut. What can't be read stays.

If the process dies on any line: an orphan stays until the next start's first run.
"""

import logging
from functools import partial
from typing import Protocol

from flock.agent.logs import ctx
from flock.agent.orphans import Orphan, decide_orphans, find_owners, judge, seen_twice
from flock.agent.source import LiveSource
from flock.agent.state import NodeState
from flock.errors import FlockError
from flock.model.ids import AttachmentKey

COLLECT_GAP = 60.0
BETWEEN_SIGHTINGS = 5.0

log = logging.getLogger("flock.orphans")


class Removes(Protocol):
    """Who takes an attachment away: ``Deleting``."""

    async def removed(self, key: AttachmentKey, why: str) -> FlockError | None: ...


class Collector:
    """``run`` is the action of a loop."""

    def __init__(self, state: NodeState, source: LiveSource, deleting: Removes) -> None:
        self._state = state
        self._source = source
        self._deleting = deleting

    async def run(self) -> None:
        """Find, find again, ask, remove; one failure doesn't keep the others (R15)."""
        await self._source.listed()
        self._identify()
        first = self._look()
        if not first:
            return
        await self._state.clock.sleep(BETWEEN_SIGHTINGS)
        for orphan in seen_twice(first, self._look()):
            if await self._confirmed(orphan):
                await self._remove(orphan)

    def _identify(self) -> None:
        """Give rebuilt allocations back to their pods."""
        state = self._state
        for entry, pod in find_owners(state.store.committed(), state.view.snapshot.pods.values()):
            log.info("allocation known again by its addresses", extra=ctx(
                key=entry.key, pod=f"{pod.namespace}/{pod.name}"))
            state.worker.post(partial(state.store.identify, entry.key, pod.namespace, pod.name, pod.runtime_uid))

    def _look(self) -> tuple[Orphan, ...]:
        snapshot = self._state.view.snapshot
        return decide_orphans(self._state.store.committed(), snapshot.pods, complete=snapshot.complete,
                              now=self._state.clock.uptime())

    async def _confirmed(self, orphan: Orphan) -> bool:
        entry = orphan.attachment
        try:
            pod = await self._source.live_pod(entry.namespace, entry.pod)
        except FlockError as error:
            log.info("an orphan can't be confirmed, it stays", extra=ctx(key=entry.key, error=error))
            return False
        here = pod if pod is not None and pod.node_name == self._state.node else None
        still = self._state.store.get(entry.key)
        return still is not None and still.created == entry.created and judge(entry, here) is not None

    async def _remove(self, orphan: Orphan) -> None:
        error = await self._deleting.removed(orphan.attachment.key, f"orphan: {orphan.why.value}")
        if error is None:
            self._state.metrics.orphans.inc()
            log.warning("orphan removed", extra=ctx(pod=orphan.attachment.owner, key=orphan.attachment.key,
                                                    why=orphan.why.value))
