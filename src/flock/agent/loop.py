"""What the composition root makes a runner of, and work that goes on beside the rest.

If the process dies on any line: nothing is kept here.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import NamedTuple


class Loop(NamedTuple):
    """One loop: what it does, and the seconds between two runs, at least and at most."""

    action: Callable[[], Awaitable[None]]
    shortest: float
    longest: float


@contextlib.asynccontextmanager
async def running(name: str, work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Let ``work`` go on while the block runs; what it raises is raised at the block's end."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
