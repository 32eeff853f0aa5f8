"""A batch of requests packed once and filled in many times, since packing costs more than what the kernel does with it.

Invariant: a template is derived from the function that packs the batch, never written by hand, so both give the same
bytes: the function is called with one value of each variable changed in every byte, and what differs is its place.
Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flock.netlink.wire import number_messages

Pack = Callable[[Sequence[bytes]], bytes]

_PLAIN, _CHANGED = b"A", b"B"
# Letters, so that they also stand for names.


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A numbered batch with gaps: (which variable, from, to)."""

    data: bytes
    count: int
    gaps: tuple[tuple[int, int, int], ...]

    def fill(self, values: Sequence[bytes]) -> bytearray:
        """The batch with these values; each as long as the template was made for."""
        data = bytearray(self.data)
        for which, start, end in self.gaps:
            data[start:end] = values[which]
        if len(data) != len(self.data):
            raise ValueError("a value is longer or shorter than the template's")
        return data


def derive_template(pack: Pack, sizes: Sequence[int]) -> Template:
    """Find where each variable of a packing function goes; ``sizes`` are the variables' lengths in bytes."""
    plain = [_PLAIN * size for size in sizes]
    data = bytearray(pack(plain))
    count = number_messages(data)
    gaps: list[tuple[int, int, int]] = []
    for which, size in enumerate(sizes):
        if size:
            changed = bytearray(pack([*plain[:which], _CHANGED * size, *plain[which + 1 :]]))
            number_messages(changed)
            gaps.extend((which, start, start + size) for start in _places(data, changed, size))
    return Template(data=bytes(data), count=count, gaps=tuple(gaps))


def _places(one: bytes | bytearray, other: bytes | bytearray, size: int) -> list[int]:
    """Where a value of some size begins in two batches that differ in it alone."""
    places: list[int] = []
    position = 0
    while position < len(one):
        if one[position] != other[position]:
            places.append(position)
            position += size
        else:
            position += 1
    return places
