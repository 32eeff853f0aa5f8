"""Applying the difference gives what is desired, and nothing equal is touched."""

from hypothesis import given
from hypothesis import strategies as st

from flock.loops.delta import difference

WORLDS = st.dictionaries(st.integers(0, 9), st.integers(0, 3))


@given(desired=WORLDS, observed=WORLDS)
def test_the_difference_leads_from_observed_to_desired(desired: dict[int, int], observed: dict[int, int]) -> None:
    delta = difference(desired, observed)
    result = {key: value for key, value in observed.items() if key not in delta.remove}
    result |= delta.add
    result |= {key: new for key, (_, new) in delta.change.items()}
    assert result == desired
    assert all(observed[key] == old != new for key, (old, new) in delta.change.items())
    assert not delta.add.keys() & observed.keys()
    assert len(delta) == len(delta.add) + len(delta.change) + len(delta.remove)
    assert bool(delta) == (desired != observed)
