"""Delays grow to the cap and stay there."""

import pytest

from flock.loops.backoff import Backoff


def test_the_first_retry_is_soon_and_the_last_ones_are_capped() -> None:
    backoff = Backoff(first=0.1, factor=2, cap=1)
    assert [backoff.delay(n) for n in range(7)] == [0, 0.1, 0.2, 0.4, 0.8, 1, 1]
    assert backoff.delay(10**9) == 1


@pytest.mark.parametrize("wrong", [{"first": 0}, {"first": 2, "cap": 1}, {"factor": 0.5}])
def test_a_backoff_that_would_hammer_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="first <= cap"):
        Backoff(**wrong)
