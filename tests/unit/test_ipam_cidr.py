"""Annotation against node CIDRs: I16, I17, I18; and what of a CIDR is usable."""

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.errors import InvalidConfig
from flock.ipam.cidr import effective_cidrs, intersection
from flock.ipam.intervals import IntervalSet
from flock.ipam.span import narrowed, span_of
from flock.model.family import Network

V4 = st.builds(
    lambda bits, length: ip_network(((bits << 20) & 0xFFFFFFFF, length), strict=False),
    st.integers(0, 4095),
    st.integers(0, 32),
)
V6 = st.builds(
    lambda bits, length: ip_network(((bits << 116), length), strict=False), st.integers(1, 4095), st.integers(0, 128)
)
NETWORK = st.one_of(V4, V6)


def nets(*texts: str) -> tuple[Network, ...]:
    return tuple(ip_network(text) for text in texts)


def test_I16_no_node_cidr_is_an_error_of_its_own() -> None:
    with pytest.raises(InvalidConfig, match="node has no CIDRs configured for this family"):
        effective_cidrs(nets("10.0.0.0/8"), ())


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("10.0.0.0/24", "10.0.0.0/24"),
        ("10.0.0.0/16", "10.0.0.0/24"),
        ("0.0.0.0/0", "10.0.0.0/24"),
        ("10.0.0.32/27", "10.0.0.32/27"),
        ("10.0.0.5/32", "10.0.0.5/32"),
        ("10.0.1.0/24", None),
        ("2001:db8::/64", None),
        ("::/0", None),
    ],
)
def test_I17_the_narrower_of_the_two_or_no_match(annotation: str, expected: str | None) -> None:
    found = intersection(ip_network(annotation), ip_network("10.0.0.0/24"))
    assert found == (ip_network(expected) if expected else None)


@given(NETWORK, NETWORK)
def test_I17_the_intersection_is_what_both_hold(one: Network, other: Network) -> None:
    found = intersection(one, other)
    assert found == intersection(other, one)
    if found is None:
        assert one.version != other.version or not one.overlaps(other)
    else:
        assert found in (one, other)
        assert found.prefixlen == max(one.prefixlen, other.prefixlen)


def test_I18_the_first_annotation_that_meets_any_wins_with_all_that_it_meets() -> None:
    node = nets("10.0.0.0/24", "10.1.0.0/24", "10.2.0.0/24")
    assert effective_cidrs(nets("192.0.2.0/24", "10.0.0.0/15", "10.2.0.0/24"), node) == node[:2]
    assert effective_cidrs(nets("10.2.0.0/25", "10.0.0.0/8"), node) == nets("10.2.0.0/25")
    assert effective_cidrs((), node) == node


def test_I18_none_meets_and_the_error_lists_both_sides() -> None:
    with pytest.raises(InvalidConfig) as caught:
        effective_cidrs(nets("192.0.2.0/24", "198.51.100.0/25"), nets("10.0.0.0/24", "10.1.0.0/24"))
    assert str(caught.value) == (
        "annotation CIDRs [192.0.2.0/24, 198.51.100.0/25] do not intersect any node CIDR [10.0.0.0/24, 10.1.0.0/24]"
    )


@given(NETWORK)
def test_segments_are_sorted_disjoint_and_inside(network: Network) -> None:
    span = span_of(network)
    first, last = int(network.network_address), int(network.broadcast_address)
    at = first - 1
    for low, high in span.segments:
        assert at < low <= high <= last
        at = high
    assert span.usable(first) is (network.version == 6 and network.prefixlen == 128)
    assert not span.usable(first - 1)
    assert not span.usable(last + 1)


@given(NETWORK, st.integers(0, 32), st.integers(0, 1 << 128))
def test_a_narrower_span_keeps_the_wider_ones_rules(network: Network, deeper: int, bits: int) -> None:
    length = min(network.prefixlen + deeper, network.max_prefixlen)
    room = (1 << network.max_prefixlen - network.prefixlen) - 1
    inner = ip_network((int(network.network_address) | bits & room, length), strict=False)
    outer, span = span_of(network), narrowed(inner, span_of(network))
    for low, high in span.segments:
        assert outer.usable(low)
        assert outer.usable(high)
        assert span.holds(low)
        assert span.holds(high)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40))))
def test_intervals_are_a_set_that_knows_its_next_gap(steps: list[tuple[bool, int]]) -> None:
    runs, model = IntervalSet(), set[int]()
    for add, number in steps:
        if add:
            runs.add(number)
            model.add(number)
        else:
            runs.discard(number)
            model.discard(number)
        assert [one in runs for one in range(-1, 43)] == [one in model for one in range(-1, 43)]
        expected = next(one for one in range(number, 99) if one not in model)
        assert runs.next_free(number) == expected
        assert runs.runs == sum(one not in model and one + 1 in model for one in range(-1, 42))
