"""Things that several users share: which came into use, and which nobody uses any more. Pure."""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Uses(Generic[K]):
    """Counts users. ``settle`` tells what changed since it was last called; taken and dropped in between is nothing."""

    def __init__(self) -> None:
        self._counts: dict[K, int] = {}
        self._before: dict[K, bool] = {}

    def take(self, thing: K) -> None:
        self._before.setdefault(thing, thing in self._counts)
        self._counts[thing] = self._counts.get(thing, 0) + 1

    def drop(self, thing: K) -> None:
        """One user less; of a thing that has none, a KeyError."""
        self._before.setdefault(thing, True)
        self._counts[thing] -= 1
        if not self._counts[thing]:
            del self._counts[thing]

    def settle(self) -> tuple[list[K], list[K]]:
        """What is used now and wasn't, and what was and isn't."""
        new = [thing for thing, was in self._before.items() if not was and thing in self._counts]
        gone = [thing for thing, was in self._before.items() if was and thing not in self._counts]
        self._before.clear()
        return new, gone
