"""A clock that moves only when a test says so.

Invariant: sleepers wake in the order of their times, and each has run as far as it can before the next one wakes, as
they would with hours between them.
"""

import asyncio
import heapq
from itertools import count

_SETTLE_STEPS = 50


class ManualClock:
    """`flock.system.clock.Clock` for tests: ``await clock.advance(30)`` is 30 seconds in no time."""

    def __init__(self, *, monotonic: float = 1000.0, wall: float = 1_800_000_000.0) -> None:
        self._now = monotonic
        self._offset = wall - monotonic
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        return self._now

    def uptime(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now + self._offset

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock; no time passes."""
        self._offset += seconds

    @property
    def sleepers(self) -> int:
        """How many coroutines sleep on this clock."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + max(seconds, 0.0), next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, waking sleepers one after the other."""
        await self.settle()
        end = self._now + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            moment, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                self._now = max(self._now, moment)
                future.set_result(None)
                await self.settle()
        self._now = end

    async def settle(self) -> None:
        """Let everything that can run without time passing run."""
        for _ in range(_SETTLE_STEPS):
            await asyncio.sleep(0)
