"""Waiting for something to become true, with a deadline and words for what never did.

Tests await events; what has no event (the kernel, another process) is asked again after a short pause that grows a
little. A predicate's last value is returned, so that it can hand out what it found, and its last exception of the
kinds in ``forgive`` is told when time is over. Tests call these and never sleep by themselves.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar, overload

T = TypeVar("T")

FIRST_PAUSE = 0.001
LONGEST_PAUSE = 0.05


class WaitTimeout(AssertionError):
    """The deadline passed first; an AssertionError, since in a test that is what it means."""


def wait_until(
    predicate: Callable[[], T],
    deadline: float = 5.0,
    what: str = "",
    forgive: tuple[type[Exception], ...] = (),
) -> T:
    """Ask until the answer is true; blocks the thread, so it is not for code on an event loop."""
    last: Exception | None = None
    for pause in _pauses(deadline):
        try:
            if answer := predicate():
                return answer
            last = None
        except forgive as error:
            last = error
        time.sleep(pause)  # noqa: TID251 - the one place that may
    raise _never(what or _name(predicate), deadline, last)


@overload
async def await_until(
    predicate: Callable[[], Awaitable[T]],
    deadline: float = 5.0,
    what: str = "",
    forgive: tuple[type[Exception], ...] = (),
) -> T: ...


@overload
async def await_until(
    predicate: Callable[[], T],
    deadline: float = 5.0,
    what: str = "",
    forgive: tuple[type[Exception], ...] = (),
) -> T: ...


async def await_until(
    predicate: Callable[[], object],
    deadline: float = 5.0,
    what: str = "",
    forgive: tuple[type[Exception], ...] = (),
) -> object:
    """The same for code on an event loop; the predicate may be a coroutine function."""
    last: Exception | None = None
    for pause in _pauses(deadline):
        try:
            answer = predicate()
            if isinstance(answer, Awaitable):
                answer = await answer
            if answer:
                return answer
            last = None
        except forgive as error:
            last = error
        await asyncio.sleep(pause)
    raise _never(what or _name(predicate), deadline, last)


def _pauses(deadline: float) -> Iterator[float]:
    """Pauses until the deadline; always at least one question, and one right at the end."""
    end = time.monotonic() + deadline
    pause = FIRST_PAUSE
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(pause * 1.5, LONGEST_PAUSE)
    yield 0.0


def _name(predicate: object) -> str:
    return str(getattr(predicate, "__qualname__", predicate))


def _never(what: str, deadline: float, last: Exception | None) -> WaitTimeout:
    because = f" (last error: {last!r})" if last else ""
    return WaitTimeout(f"not within {deadline:g} s: {what}{because}")
