"""What a live read has told before the watch did: shown in the view until the informer has caught up. Pure.

Invariant: what the informer says of the same object wins, and nothing that was learned outlives the next list. A pod
of the same name but another UID than the informer's is a newer life: the watch will tell of the old one's end first.
"""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from flock.cluster.watch import Change, Key

V = TypeVar("V")


class Learned(Generic[V]):
    """Objects that are known from a live read alone."""

    def __init__(self) -> None:
        self._known: dict[Key, V] = {}
        self._lists = 0

    def put(self, key: Key, value: V) -> None:
        self._known[key] = value

    def caught_up(self, changes: Iterable[Change[V]], lists: int) -> None:
        """The informer's changes, and how many lists it has put in place."""
        if not self._known:
            self._lists = lists
            return
        if lists != self._lists:
            self._lists = lists
            self._known.clear()
        for change in changes:
            known = self._known.get(change.key)
            if known is not None and any(
                _uid(side) == _uid(known) for side in (change.before, change.after) if side is not None
            ):
                del self._known[change.key]

    def over(self, items: Mapping[Key, V]) -> dict[Key, V]:
        """A copy of the informer's objects, with what was learned beside them."""
        return {**items, **self._known}


def _uid(value: object) -> object:
    return getattr(value, "uid", None)
