"""The runner: pokes, gaps, failures, the safety net, and the state that health shows."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from flock.errors import TryAgain
from flock.loops.backoff import Backoff
from flock.loops.runner import Runner, RunnerState
from flock.testing.clock import ManualClock


class Recorder:
    """An action that counts, and fails as long as it is told to."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.times: list[float] = []
        self.failing = False
        self.gate: asyncio.Event | None = None

    async def __call__(self) -> None:
        self.times.append(self.clock.monotonic() - 1000)
        if self.gate is not None:
            await self.gate.wait()
        if self.failing:
            raise RuntimeError("no")


@contextlib.asynccontextmanager
async def running(runner: Runner) -> AsyncIterator[None]:
    task = asyncio.create_task(runner.run())
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def action(clock: ManualClock) -> Recorder:
    return Recorder(clock)


async def test_it_runs_at_start_after_a_poke_and_after_the_longest_gap(clock: ManualClock, action: Recorder) -> None:
    runner = Runner("x", action, clock, longest_gap=30)
    assert not runner.state.healthy
    async with running(runner):
        await clock.settle()
        assert (action.times, runner.state.reasons) == ([0], ("start",))
        await clock.advance(5)
        runner.poke("pod")
        await clock.settle()
        assert (action.times, runner.state.reasons) == ([0, 5], ("pod",))
        await clock.advance(60)
        assert action.times == [0, 5, 35, 65]
        assert runner.state.healthy


async def test_pokes_that_come_together_cost_one_run(clock: ManualClock, action: Recorder) -> None:
    runner = Runner("x", action, clock, shortest_gap=2)
    async with running(runner):
        await clock.settle()
        for reason in ("b", "a", "b"):
            runner.poke(reason)
        await clock.advance(1.9)
        assert action.times == [0]
        await clock.advance(0.1)
        assert (action.times, runner.state.reasons) == ([0, 2], ("b", "a"))


async def test_a_poke_while_the_action_runs_causes_another_run(clock: ManualClock, action: Recorder) -> None:
    runner = Runner("x", action, clock)
    action.gate = asyncio.Event()
    async with running(runner):
        await clock.settle()
        assert runner.state.running_since == 1000
        runner.poke("late")
        action.gate.set()
        await clock.settle()
        assert len(action.times) == 2
        assert runner.state.running_since is None


async def test_failures_are_shown_and_retried_for_ever_and_capped(clock: ManualClock, action: Recorder) -> None:
    failures: list[tuple[RunnerState, Exception]] = []
    runner = Runner("x", action, clock, retry=Backoff(first=1, cap=4), longest_gap=100,
                    on_failure=lambda state, error: failures.append((state, error)))
    action.failing = True
    async with running(runner):
        await clock.advance(15)
        assert action.times == [0, 1, 3, 7, 11, 15]
        assert (runner.state.failures, runner.state.error, runner.state.healthy) == (6, "no", False)
        assert [state.failures for state, _ in failures] == [1, 2, 3, 4, 5, 6]
        action.failing = False
        await clock.advance(4)
        assert (runner.state.failures, runner.state.error, runner.state.last_success) == (0, "", 1019)
        await clock.advance(99)
        assert len(action.times) == 7


async def test_a_poke_shortens_the_wait_after_a_failure_but_never_hammers(clock: ManualClock, action: Recorder) -> None:
    runner = Runner("x", action, clock, retry=Backoff(first=1, cap=64))
    action.failing = True
    async with running(runner):
        await clock.advance(7)
        assert action.times == [0, 1, 3, 7]
        await clock.advance(2)
        runner.poke("pod")
        await clock.settle()
        assert action.times[-1] == 9
        for _ in range(10):
            runner.poke("pod")
            await clock.advance(0.1)
        assert action.times[-1] == 10


async def test_who_asks_to_be_left_alone_is_left_alone_whoever_pokes(clock: ManualClock) -> None:
    times: list[float] = []

    async def throttled() -> None:
        times.append(clock.monotonic() - 1000)
        error = TryAgain("not now")
        error.retry_after = 7.0
        raise error

    runner = Runner("loop", throttled, clock, retry=Backoff(first=0.1))
    async with running(runner):
        for moment in (1.0, 6.9, 7.0):
            await clock.settle()
            runner.poke("again")
            await clock.advance(moment - (clock.monotonic() - 1000))
    assert times == [0.0, 7.0]


async def test_any_thread_may_poke(clock: ManualClock, action: Recorder) -> None:
    runner = Runner("x", action, clock)
    runner.poke("before it runs")
    async with running(runner):
        await clock.settle()
        assert list(runner.state.reasons) == ["start", "before it runs"]
        await asyncio.to_thread(runner.poke, "thread")
        await clock.settle()
        assert list(runner.state.reasons) == ["thread"]


async def test_a_poke_after_the_end_is_no_error(clock: ManualClock, action: Recorder) -> None:
    runner = Runner("x", action, clock)
    async with running(runner):
        await clock.settle()
    runner.poke("late")
    assert runner.state.runs == 1


@pytest.mark.parametrize("error", [ValueError(), OSError("x"), KeyError("k")])
async def test_an_error_without_words_is_shown_by_its_name(clock: ManualClock, error: Exception) -> None:
    async def action() -> None:
        raise error

    runner = Runner("x", action, clock)
    async with running(runner):
        await clock.settle()
        assert runner.state.error in {str(error), type(error).__name__}
        assert runner.state.error


async def test_nothing_is_left_asleep(clock: ManualClock, action: Recorder) -> None:
    runner = Runner("x", action, clock, longest_gap=30)
    async with running(runner):
        await clock.settle()
        for _ in range(5):
            runner.poke("pod")
            await clock.settle()
        assert clock.sleepers == 1
    assert clock.sleepers == 0


def test_the_clock_wakes_sleepers_in_order() -> None:
    woken: list[int] = []

    async def sleeper(clock: ManualClock, seconds: int, then: Callable[[int], None]) -> None:
        await clock.sleep(seconds)
        then(seconds)

    async def body() -> None:
        clock = ManualClock()
        async with asyncio.TaskGroup() as tasks:
            for seconds in (3, 1, 2):
                tasks.create_task(sleeper(clock, seconds, woken.append))
            await clock.advance(2)
            assert woken == [1, 2]
            await clock.advance(1)
        assert clock.wall() - clock.monotonic() == pytest.approx(1_800_000_000 - 1000)

    asyncio.run(body())
    assert woken == [1, 2, 3]
