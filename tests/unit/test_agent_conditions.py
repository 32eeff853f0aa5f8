"""What the agent says of itself: conditions, addresses, peers."""

from ipaddress import IPv4Network, IPv6Network, ip_address

from flock.agent.conditions import Condition, FamilyUse, conditions_of, node_condition, used_addresses, written
from flock.agent.peers_status import peers_status, peers_up
from flock.agent.refusals import event_reason
from flock.api.bgp import BadPeer, Bgp, Peer
from flock.api.node_config import NodeConfig, NodeConfigSpec
from flock.api.overlaps import find_overlaps
from flock.api.problems import Problem
from flock.errors import (
    AddressInUse,
    AddressRefused,
    InvalidConfig,
    InvalidNetns,
    NodeConfigMissing,
    PoolExhausted,
    TryAgain,
)
from flock.model.family import Family
from flock.routing.bird_protocol import ChannelState, SessionState

WALL = 1_800_000_000.0


def peer(name: str) -> Peer:
    return Peer(name=name, address=ip_address("2001:db8::1"), asn=64512)


def config(**spec: object) -> NodeConfig:
    given = {"cidr6": (IPv6Network("2001:db8:0:1::/64"),), **spec}
    return NodeConfig(name="n1", spec=NodeConfigSpec(**given), generation=3)  # type: ignore[arg-type]


def by_type(conditions: tuple[Condition, ...]) -> dict[str, Condition]:
    return {one.type: one for one in conditions}


def said(one: NodeConfig, *, refused: dict[str, str] | None = None, uses: tuple[FamilyUse, ...] = (),
         others: tuple[NodeConfig, ...] = ()) -> dict[str, Condition]:
    return by_type(conditions_of(one, overlaps=find_overlaps(one, others), refused_peers=refused or {}, uses=uses))


def test_a_node_that_is_well_says_so_in_every_condition() -> None:
    assert all(one.good for one in said(config()).values())


def test_a_bad_peer_is_named_and_doesnt_take_ready_away() -> None:
    found = said(config(), refused={"tor-b": "password is too long"})
    assert not found["PeersValid"].good
    assert found["PeersValid"].message == "tor-b: password is too long"
    assert found["Ready"].good
    assert "tor-b: password is too long" in found["Ready"].message


def test_a_bird_that_doesnt_run_with_it_is_told_where_there_is_bgp() -> None:
    for one, good in ((config(), True), (config(bgp=Bgp(asn=64513)), False)):
        (found,) = [each for each in conditions_of(one, overlaps=(), refused_peers={}, uses=(),
                                                   bird_trouble="BIRD isn't running") if each.type == "BirdConfigured"]
        assert found.good is good


def test_a_field_that_fails_is_named_with_the_reason_and_pods_start() -> None:
    found = by_type(conditions_of(config(), overlaps=(), refused_peers={}, uses=(),
                                  failing={"spec.masquerade4": "nft can't be run"}))
    assert (found["FieldsEffective"].good, found["FieldsEffective"].reason) == (False, "Failing")
    assert found["FieldsEffective"].message == "spec.masquerade4: nft can't be run"
    assert found["Ready"].good


def test_an_unknown_field_is_named() -> None:
    one = NodeConfig(name="n1", spec=NodeConfigSpec(), unknown=("spec.colour",))
    assert "spec.colour" in said(one)["FieldsKnown"].message


def test_an_overlap_is_said_on_both() -> None:
    one, two = config(), NodeConfig(name="n2", spec=NodeConfigSpec(cidr6=(IPv6Network("2001:db8::/48"),)))
    assert not said(one, others=(two,))["CIDRsDisjoint"].good
    assert not said(two, others=(one,))["CIDRsDisjoint"].good


def test_a_full_pool_takes_ready_away() -> None:
    found = said(config(), uses=(FamilyUse(family=Family.IPV4, used=253, resting=0, free=0),))
    assert (found["Ready"].good, found["AddressesAvailable"].good) == (False, False)
    assert "IPv4" in found["Ready"].message


def test_R6_the_nodes_condition_never_says_that_the_network_is_gone() -> None:
    for has_config in (True, False):
        assert node_condition("n1", has_config=has_config).good


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    (first,) = written([Condition(type="Ready", good=True, reason="A", message="m")], (), 1, WALL)
    (again,) = written([Condition(type="Ready", good=True, reason="B", message="n")], [first], 2, WALL + 60)
    (changed,) = written([Condition(type="Ready", good=False, reason="C", message="o")], [again], 2, WALL + 90)
    assert first["lastTransitionTime"] == again["lastTransitionTime"] == "2027-01-15T08:00:00Z"
    assert changed["lastTransitionTime"] == "2027-01-15T08:01:30Z"


def test_a_status_that_others_have_written_is_no_trouble() -> None:
    strange: list[object] = [{}, None, {"type": 7}, {"type": "Ready"},
                             {"type": "Ready", "status": "True", "lastTransitionTime": 5}]
    for known in ([one] for one in strange):
        (found,) = written([Condition(type="Ready", good=True, reason="A", message="m")], known, 1, WALL)
        assert found["lastTransitionTime"] == "2027-01-15T08:00:00Z"


def test_addresses_are_counted_by_family_ipv6_first() -> None:
    uses = [FamilyUse(family=Family.IPV4, used=3, resting=1, free=250),
            FamilyUse(family=Family.IPV6, used=3, resting=0, free=None)]
    assert used_addresses(uses) == [{"family": "ipv6", "used": 3, "resting": 0},
                                    {"family": "ipv4", "used": 3, "resting": 1, "free": 250}]


def test_every_peer_of_the_spec_has_its_line() -> None:
    one = config(bgp=Bgp(asn=64513, peers=(peer("a"), peer("b"), peer("c")),
                         bad_peers=(BadPeer("d", (Problem("asn", 0, "must not be 0"),)),)))
    sessions = [SessionState(protocol="peer_a", state="up", since="2026-12-01T05:20:00.123456+0100", description="a",
                             bgp_state="Established",
                             channels=(ChannelState(family=Family.IPV6, imported=2, exported=1),)),
                SessionState(protocol="peer_b", state="start", since="", description="b", bgp_state="Active",
                             last_error="Socket: Connection refused", neighbor_text="do not show me")]
    found = peers_status(one, {"d": "asn 0 must not be 0"}, sessions)
    assert [(entry["name"], entry["state"]) for entry in found] == [
        ("a", "Established"), ("b", "Active"), ("c", "Unknown"), ("d", "LeftOut")]
    assert (found[0]["imported"], found[0]["exported"], found[0]["since"]) == (2, 1, "2026-12-01T04:20:00Z")
    assert found[1]["reason"] == "Socket: Connection refused"
    assert "do not show me" not in str(found)
    assert peers_up(found) == "1/4"
    assert peers_up([]) == ""


def test_only_what_a_user_can_mend_becomes_an_event() -> None:
    assert all(event_reason(kind("x")) for kind in (
        InvalidConfig, AddressInUse, AddressRefused, PoolExhausted, NodeConfigMissing))
    assert not any(event_reason(kind("x")) for kind in (TryAgain, InvalidNetns))


def test_the_ipv4_side_of_an_overlap_is_seen_too() -> None:
    one = config(cidr4=(IPv4Network("10.0.0.0/24"),))
    two = NodeConfig(name="n2", spec=NodeConfigSpec(cidr4=(IPv4Network("10.0.0.0/25"),)))
    assert "10.0.0.0/25" in said(one, others=(two,))["CIDRsDisjoint"].message
