"""What the composition root makes a runner of."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple


class Loop(NamedTuple):
    """One loop: what it does, and the seconds between two runs, at least and at most."""

    action: Callable[[], Awaitable[None]]
    shortest: float
    longest: float
