"""Time as something that is handed in: product code asks a Clock, tests hand in `flock.testing.clock.ManualClock`.

If the process dies on any line: nothing is kept here.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """``monotonic`` for gaps and deadlines, ``uptime`` for times that outlive the process, ``sleep`` for every wait;
    ``wall`` for what people and other machines read, since it jumps.
    """

    def monotonic(self) -> float:
        """Seconds that never go back; the start is arbitrary."""
        ...

    def uptime(self) -> float:
        """Seconds since the machine's start, in sleep too: they never jump, and every process counts the same."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch; anybody may set it to anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``; cancelling it is safe."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def uptime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
