"""CIDRs that two NodeConfigs claim: both nodes decide the same, and every address has at most one giver."""

from ipaddress import IPv4Network, IPv6Network

from hypothesis import given
from hypothesis import strategies as st

from flock.api.node_config import NodeConfig, NodeConfigSpec
from flock.api.overlaps import find_overlaps, usable
from flock.model.family import Family


def config(name: str, *cidrs: str, created: str = "2026-01-01T00:00:00Z") -> NodeConfig:
    return NodeConfig(name=name, created=created, spec=NodeConfigSpec(
        cidr4=tuple(IPv4Network(cidr) for cidr in cidrs if "." in cidr),
        cidr6=tuple(IPv6Network(cidr) for cidr in cidrs if ":" in cidr)))


def left(own: NodeConfig, *others: NodeConfig) -> list[str]:
    overlaps = find_overlaps(own, [own, *others])
    return [str(cidr) for family in Family for cidr in usable(own.spec.cidrs(family), overlaps)]


def test_nodes_of_their_own_share_nothing() -> None:
    one, two = config("a", "10.0.0.0/24", "2001:db8:1::/64"), config("b", "10.0.1.0/24", "2001:db8:2::/64")
    assert find_overlaps(one, [one, two]) == ()
    assert sorted(left(one, two)) == ["10.0.0.0/24", "2001:db8:1::/64"]


def test_the_younger_gives_nothing_of_what_both_have() -> None:
    old, young = config("z", "10.0.0.0/24"), config("a", "10.0.0.0/23", created="2026-01-02T00:00:00Z")
    assert left(old, young) == ["10.0.0.0/24"]
    assert left(young, old) == ["10.0.1.0/24"]


def test_of_the_same_age_the_first_name_gives() -> None:
    one, two = config("a", "2001:db8::/64"), config("b", "2001:db8::/64")
    assert (left(one, two), left(two, one)) == (["2001:db8::/64"], [])


def test_an_overlap_says_which_cidrs_and_who_gives() -> None:
    one, two = config("a", "10.0.0.0/24"), config("b", "10.0.0.128/25")
    (ours,), (theirs,) = find_overlaps(one, [two]), find_overlaps(two, [one])
    assert str(ours) == ("10.0.0.0/24 overlaps 10.0.0.128/25 of node b: "
                         "this node, which is older, gives the addresses of both")
    assert str(theirs) == "10.0.0.128/25 overlaps 10.0.0.0/24 of node a: a, which is older, gives the addresses of both"


_CIDRS = st.lists(
    st.builds(lambda number, length: str(IPv4Network((0x0A000000 | number, length), strict=False)),
              st.integers(0, 255), st.integers(24, 32)), min_size=1, max_size=3)


@given(st.lists(st.tuples(_CIDRS, st.sampled_from(["1", "2"])), min_size=2, max_size=4))
def test_no_address_has_two_givers_and_none_of_one_owner_is_lost(nodes: list[tuple[list[str], str]]) -> None:
    configs = [config(f"n{number}", *cidrs, created=created) for number, (cidrs, created) in enumerate(nodes)]
    givers = [{int(address) for cidr in usable(own.spec.cidr4, find_overlaps(own, configs)) for address in cidr}
              for own in configs]
    owners = [{int(address) for cidr in own.spec.cidr4 for address in cidr} for own in configs]
    assert sum(map(len, givers)) == len(set[int]().union(*givers)), "two nodes give the same address"
    assert set[int]().union(*givers) == set[int]().union(*owners)
