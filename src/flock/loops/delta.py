"""Desired against observed: what to add, to change and to remove. Pure.

Invariant: applying the difference to the observed mapping gives the desired one, and nothing equal is touched.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta(Generic[K, V]):
    """``change`` holds the observed and the desired value of each key whose value differs."""

    add: Mapping[K, V]
    change: Mapping[K, tuple[V, V]]
    remove: Mapping[K, V]

    def __len__(self) -> int:
        return len(self.add) + len(self.change) + len(self.remove)


def difference(desired: Mapping[K, V], observed: Mapping[K, V]) -> Delta[K, V]:
    """What is to be done, in the order of ``desired`` (removals in the order of ``observed``)."""
    return Delta(
        add={key: value for key, value in desired.items() if key not in observed},
        change={key: (observed[key], value) for key, value in desired.items()
                if key in observed and observed[key] != value},
        remove={key: value for key, value in observed.items() if key not in desired},
    )
