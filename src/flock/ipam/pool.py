"""The addresses of one family as numbers: who uses them, which are in quarantine, which belong to the node. Pure.

Invariant: ``taken`` holds exactly the numbers that are used, in quarantine or reserved, and a number in use is never in
quarantine. Nothing here depends on the CIDRs: an address outside all of them stays marked (R14).
"""

import heapq
from collections.abc import Iterable, Sequence

import msgspec

from flock.ipam.intervals import IntervalSet
from flock.ipam.span import Span


class Rest(msgspec.Struct, frozen=True):
    """An address in quarantine: since when, and whose it was."""

    since: float
    owner: str


class Holder(msgspec.Struct, frozen=True):
    """An address in use: whose it is, and the quarantine that it was taken out of, if any."""

    owner: str
    rest: Rest | None = None


class Pool:
    """The addresses of one family."""

    __slots__ = ("_oldest", "quarantine", "reserved", "reuse_delay", "taken", "used")

    def __init__(self, reserved: Iterable[int], reuse_delay: float) -> None:
        self.used: dict[int, Holder] = {}
        self.quarantine: dict[int, Rest] = {}
        self.reserved: frozenset[int] = frozenset()
        self.taken = IntervalSet()
        self.reuse_delay = reuse_delay
        # By time of release. An entry whose quarantine has ended otherwise is recognised by its time and passed over.
        self._oldest: list[tuple[float, int]] = []
        self.reserve(reserved)

    def reserve(self, numbers: Iterable[int]) -> None:
        """Replace the set of the node's own addresses."""
        before, self.reserved = self.reserved, frozenset(numbers)
        for number in before - self.reserved:
            self._leave(number)
        for number in self.reserved - before:
            self.taken.add(number)

    def claim(self, number: int, owner: str) -> None:
        """Put a number to use, in quarantine or not."""
        held = self.used.get(number)
        rest = self.quarantine.pop(number, None) if held is None else held.rest
        self.used[number] = Holder(owner or (held.owner if held else ""), rest)
        self.taken.add(number)

    def release(self, number: int, now: float, owner: str) -> None:
        """End a use; the number goes into quarantine. Unknown numbers are nothing to release (I6)."""
        held = self.used.pop(number, None)
        if held is not None:
            self._rest(number, Rest(now, owner or held.owner))

    def forget(self, number: int) -> None:
        """End a use that never came about: the number is what it was before."""
        held = self.used.pop(number, None)
        if held is not None and held.rest is not None:
            self._rest(number, held.rest)
        else:
            self._leave(number)

    def restore(self, number: int, since: float, owner: str) -> None:
        """A number that was released before this process began."""
        if number not in self.used:
            self._rest(number, Rest(since, owner))

    def expire(self, now: float) -> None:
        """End every quarantine that has lasted long enough."""
        while self._oldest and self._oldest[0][0] + self.reuse_delay <= now:
            since, number = heapq.heappop(self._oldest)
            if self._resting(number, since):
                del self.quarantine[number]
                self._leave(number)

    def longest_resting(self, spans: Sequence[Span]) -> int | None:
        """The usable number in quarantine that was released first."""
        while self._oldest and not self._resting(self._oldest[0][1], self._oldest[0][0]):
            heapq.heappop(self._oldest)
        if self._oldest and self._may_give(self._oldest[0][1], spans):
            return self._oldest[0][1]
        # Rare: the oldest of all lies outside the CIDRs that this one pod may have.
        resting = ((rest.since, number) for number, rest in self.quarantine.items() if self._may_give(number, spans))
        return min(resting, default=(0.0, None))[1]

    def _may_give(self, number: int, spans: Sequence[Span]) -> bool:
        return number not in self.reserved and any(span.usable(number) for span in spans)

    def _rest(self, number: int, rest: Rest) -> None:
        self.quarantine[number] = rest
        self.taken.add(number)
        heapq.heappush(self._oldest, (rest.since, number))

    def _resting(self, number: int, since: float) -> bool:
        rest = self.quarantine.get(number)
        return rest is not None and rest.since == since

    def _leave(self, number: int) -> None:
        if number not in self.used and number not in self.quarantine and number not in self.reserved:
            self.taken.discard(number)
