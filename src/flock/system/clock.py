"""Time as something that is handed in: product code asks a Clock, tests hand in `flock.testing.clock.ManualClock`.

If the process dies on any line: nothing is kept here.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """``monotonic`` for gaps and deadlines, ``wall`` for what is written down, ``sleep`` for every wait."""

    def monotonic(self) -> float:
        """Seconds that never go back; the start is arbitrary."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``; cancelling it is safe."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
