"""A set of numbers kept as sorted runs, so that the next one that is not in it is found by bisection. Pure.

A pool of any size costs what is in it, not what it could hold, and runs merge: the fuller a pool, the fewer they are.

Invariant: ``_starts[i] < _ends[i] < _starts[i + 1]`` (ends are exclusive, so runs never touch).
"""

from bisect import bisect_right


class IntervalSet:
    """Numbers, in runs."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ends[at]

    @property
    def runs(self) -> int:
        """How many runs there are: what bisection works on."""
        return len(self._starts)

    def next_free(self, number: int) -> int:
        """The lowest number from ``number`` on that is not in the set."""
        at = bisect_right(self._starts, number) - 1
        return self._ends[at] if at >= 0 and number < self._ends[at] else number

    def add(self, number: int) -> None:
        at = bisect_right(self._starts, number)
        if at and number < self._ends[at - 1]:
            return
        joins_left = at > 0 and self._ends[at - 1] == number
        joins_right = at < len(self._starts) and self._starts[at] == number + 1
        if joins_left and joins_right:
            self._ends[at - 1] = self._ends[at]
            del self._starts[at], self._ends[at]
        elif joins_left:
            self._ends[at - 1] = number + 1
        elif joins_right:
            self._starts[at] = number
        else:
            self._starts.insert(at, number)
            self._ends.insert(at, number + 1)

    def discard(self, number: int) -> None:
        at = bisect_right(self._starts, number) - 1
        if at < 0 or number >= self._ends[at]:
            return
        start, end = self._starts[at], self._ends[at]
        if start == number and end == number + 1:
            del self._starts[at], self._ends[at]
        elif start == number:
            self._starts[at] = number + 1
        elif end == number + 1:
            self._ends[at] = number
        else:
            self._ends[at] = number
            self._starts.insert(at + 1, number + 1)
            self._ends.insert(at + 1, end)
