"""Equal parts of many objects kept once: ten thousand pods have some hundred different sets of labels. Pure.

Invariant: what it gives equals what it was given, and it holds a bounded number of parts, whatever comes and goes over
the months: beyond that it forgets all of them, and what is in use stays in use.
"""

import sys
from collections.abc import Hashable, Mapping
from typing import TypeVar

H = TypeVar("H", bound=Hashable)
T = TypeVar("T")

LIMIT = 8192


class Shared:
    """One pool; not for threads."""

    __slots__ = ("_known", "_limit")

    def __init__(self, limit: int = LIMIT) -> None:
        self._known: dict[Hashable, object] = {}
        self._limit = limit

    def mapping(self, texts: Mapping[str, str]) -> Mapping[str, str]:
        """An equal mapping; it must not be changed."""
        if not texts:
            return _EMPTY
        key = frozenset(texts.items())
        found = self._known.get(key)
        if found is None:
            found = self._keep(key, {sys.intern(name): sys.intern(value) for name, value in texts.items()})
        assert isinstance(found, dict)
        return found

    def part(self, value: H) -> H:
        """An equal hashable value."""
        found = self._known.get((type(value), value))
        if found is None:
            return self._keep((type(value), value), value)
        assert isinstance(found, type(value))
        return found

    def _keep(self, key: Hashable, value: T) -> T:
        if len(self._known) >= self._limit:
            self._known.clear()
        self._known[key] = value
        return value


_EMPTY: Mapping[str, str] = {}
