"""How long to wait after the n-th failure in a row. Pure.

Invariant: the delay grows from ``first`` by ``factor`` to ``cap`` and stays there for ever: a loop never gives up.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Seconds; the first retry comes soon, since most failures are a moment's."""

    first: float = 0.1
    factor: float = 2.0
    cap: float = 30.0

    def __post_init__(self) -> None:
        if not (0 < self.first <= self.cap and self.factor >= 1):
            raise ValueError(f"{self} must have 0 < first <= cap and factor >= 1")

    def delay(self, failures: int) -> float:
        """The wait after ``failures`` failures in a row; 0 after none."""
        if failures <= 0:
            return 0.0
        # The exponent is bounded before the power: a loop that failed for a month must not overflow a float.
        return min(self.cap, self.first * self.factor ** min(failures - 1, 64))
