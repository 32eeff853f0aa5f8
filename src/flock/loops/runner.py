"""The one owner of waiting: runs an action after a poke, not too often, again after a failure, and for safety.

Events only poke. The action reads everything anew each time, so pokes that came together cost one run, and a lost
event costs at most the longest gap. Invariant: a poke that came while the action ran causes another run; a failure
never ends the loop; nothing of an error is hidden from ``state``.

If the process dies on any line: nothing is kept here; the first run after a start does all.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import NoReturn

from flock.errors import FlockError
from flock.loops.backoff import Backoff
from flock.system.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerState:
    """What health shows; times are the clock's monotonic seconds."""

    name: str
    runs: int = 0
    failures: int = 0
    error: str = ""
    reasons: tuple[str, ...] = ()
    last_success: float | None = None
    running_since: float | None = None

    @property
    def healthy(self) -> bool:
        """Its last run succeeded; a loop that never ran isn't healthy yet."""
        return self.failures == 0 and self.last_success is not None


class Runner:
    """Runs ``action`` at start, after pokes with ``shortest_gap`` between two starts, and after ``longest_gap``."""

    def __init__(self, name: str, action: Callable[[], Awaitable[None]], clock: Clock, *, shortest_gap: float = 0.0,
                 retry: Backoff | None = None, longest_gap: float = 30.0,
                 on_failure: Callable[[RunnerState, Exception], None] | None = None) -> None:
        self._action = action
        self._clock = clock
        self._shortest_gap = shortest_gap
        self._retry = retry or Backoff()
        self._longest_gap = longest_gap
        self._on_failure = on_failure
        self._poked = asyncio.Event()
        self._reasons: dict[str, None] = {"start": None}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._leave_alone = 0.0
        self._state = RunnerState(name=name)

    @property
    def state(self) -> RunnerState:
        return self._state

    def poke(self, reason: str) -> None:
        """Ask for a run. Callable from any thread; cheap, and the same reason twice is one."""
        self._reasons[reason] = None
        loop = self._loop
        if loop is None or threading.get_ident() == self._thread:
            self._poked.set()
        elif not loop.is_closed():
            loop.call_soon_threadsafe(self._poked.set)

    async def run(self) -> NoReturn:
        """Run until cancelled."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        while True:
            started = self._clock.monotonic()
            await self._run_once(started)
            if self._state.failures:
                wait = max(self._retry.delay(self._state.failures), self._leave_alone)
                await self._pause(wait, shortest=max(self._retry.first, self._leave_alone))
            else:
                await self._pause(self._longest_gap, shortest=0.0)
            await self._keep_gap(started)

    async def _run_once(self, started: float) -> None:
        self._poked.clear()
        reasons, self._reasons = tuple(self._reasons), {}
        self._state = replace(self._state, runs=self._state.runs + 1, reasons=reasons, running_since=started)
        try:
            await self._action()
        except Exception as error:  # noqa: BLE001 - the loop outlives whatever its action does; health shows it
            text = str(error) or type(error).__name__
            self._leave_alone = error.retry_after if isinstance(error, FlockError) else 0.0
            self._state = replace(self._state, failures=self._state.failures + 1, error=text, running_since=None)
            if self._on_failure is not None:
                self._on_failure(self._state, error)
        else:
            self._state = replace(self._state, failures=0, error="", running_since=None,
                                  last_success=self._clock.monotonic())

    async def _pause(self, longest: float, shortest: float) -> None:
        """Wait for a poke, at most ``longest`` and at least ``shortest``: pokes don't hammer what just failed."""
        began = self._clock.monotonic()
        if not self._poked.is_set():
            await self._poked_within(longest)
        await self._sleep_until(began + min(shortest, longest))

    async def _poked_within(self, seconds: float) -> None:
        poked = asyncio.ensure_future(self._poked.wait())
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((poked, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            poked.cancel()
            timer.cancel()

    async def _keep_gap(self, started: float) -> None:
        await self._sleep_until(started + self._shortest_gap)

    async def _sleep_until(self, moment: float) -> None:
        left = moment - self._clock.monotonic()
        if left > 0:
            await self._clock.sleep(left)
