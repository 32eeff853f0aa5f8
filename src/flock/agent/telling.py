"""Events, written: what ``EventLog`` holds goes to the API server, a loop's run at a time.

Nothing waits for it: whoever notes something goes on at once. Imported only where there is an API.

If the process dies on any line: Events that were not written are lost; kubelet's own says the same of a pod.
"""

import logging
import secrets

from flock.agent.event_log import EventLog, Subject, Told
from flock.agent.logs import ctx
from flock.agent.metrics import Metrics
from flock.cluster.errors import ApiConflict, ApiForbidden, ApiNotFound, ApiRefused
from flock.cluster.writes import ApiWrites
from flock.errors import FlockError
from flock.system.clock import Clock

UNAUTHORIZED = 401
LONGEST_RUN = 30.0
"""Seconds; where the API server is slow the rest waits for the next run, so the loop is never stuck."""

log = logging.getLogger("flock.events")


class Telling:
    """One agent's Events; ``run`` is the action of a loop."""

    def __init__(self, node: str, writes: ApiWrites, clock: Clock, metrics: Metrics) -> None:
        self._writes = writes
        self._clock = clock
        self._metrics = metrics
        self._events = EventLog(node, secrets.token_hex(8))
        self._complaint = ""

    def note(self, subject: Subject, reason: str, message: str) -> bool:
        """Something happened; True where it is worth a write at once. In the loop's thread."""
        before = self._events.dropped
        new = self._events.note(subject, reason, message, self._clock.wall())
        self._metrics.events_dropped.inc(self._events.dropped - before)
        return new

    async def run(self) -> None:
        """Write what waits. One that the API server refuses for good is given up, one that it can't take now waits
        behind the others.
        """
        began = self._clock.monotonic()
        for told in self._events.due(began):
            if self._clock.monotonic() - began >= LONGEST_RUN:
                return
            count = told.count
            try:
                await self._write(told)
            except ApiNotFound:
                # Its namespace is gone, or the API server has forgotten it: the next time begins anew.
                self._events.forget(told)
            except ApiRefused as error:
                if isinstance(error, ApiForbidden) and error.status == UNAUTHORIZED:
                    raise
                # A namespace that is being deleted takes none either, so the others go on.
                self._events.forget(told)
                self._complain(error)
            except FlockError:
                self._events.postpone(told)
                raise
            else:
                self._events.wrote(told, count, self._clock.monotonic())
                self._complaint = ""

    async def _write(self, told: Told) -> None:
        if told.written:
            await self._repeat(told)
            return
        try:
            await self._writes.create_event(told.namespace, self._events.document(told))
        except ApiConflict:
            # A former try was served and its answer lost.
            await self._repeat(told)

    async def _repeat(self, told: Told) -> None:
        await self._writes.repeat_event(told.namespace, self._events.name(told), self._events.changes(told))

    def _complain(self, error: ApiRefused) -> None:
        """Once in a row: an agent that may write no Events is refused each of them."""
        if str(error) != self._complaint:
            log.warning("an Event was refused", extra=ctx(error=error))
        self._complaint = str(error)
