"""Waiting for a thing itself, with a deadline: what tests and the lab use in the place of a sleep.

Invariant: a wait ends as soon as the thing is there, and never later than its deadline; the error says what was
awaited and what was seen last.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

STEP = 0.01

_T = TypeVar("_T")


class WaitTimeout(AssertionError):
    """A thing that was awaited did not come; an AssertionError, since in a test that is what it means."""


def wait_until(predicate: Callable[[], _T], deadline: float = 5.0, what: str = "the condition") -> _T:
    """Ask until the answer is true and hand it back; WaitTimeout after ``deadline`` seconds."""
    end = time.monotonic() + deadline
    while not (value := predicate()):
        if time.monotonic() >= end:
            raise _late(what, deadline, value)
        time.sleep(STEP)
    return value


async def await_until(predicate: Callable[[], _T], deadline: float = 5.0, what: str = "the condition") -> _T:
    """The same for coroutines: the loop runs between two looks."""
    end = time.monotonic() + deadline
    while not (value := predicate()):
        if time.monotonic() >= end:
            raise _late(what, deadline, value)
        await asyncio.sleep(STEP)
    return value


def _late(what: str, deadline: float, value: object) -> WaitTimeout:
    return WaitTimeout(f"{what}: not within {deadline:g} s (last seen: {str(value)[:200]!r})")
