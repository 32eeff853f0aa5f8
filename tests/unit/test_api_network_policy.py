"""NetworkPolicies as users and old API servers write them."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.api.network_policy import (
    IPBlock,
    NetworkPolicy,
    PodPeer,
    PortName,
    PortRange,
    Protocol,
    Rule,
    parse_network_policy,
)
from flock.api.problems import InvalidObject
from flock.api.selector import Operator, Requirement, Selector
from flock.model.family import parse_network

Spec = Mapping[str, object]


def written(spec: object, **meta: object) -> dict[str, object]:
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": "p", "namespace": "blue", **meta}, "spec": spec}


def read(spec: Spec) -> NetworkPolicy:
    return parse_network_policy(written(spec), strict=False)


def problems(spec: Spec) -> list[str]:
    with pytest.raises(InvalidObject) as caught:
        parse_network_policy(written(spec), strict=True)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(("spec", "ingress", "egress"), [
    ({}, (), None),
    ({"podSelector": {}, "egress": []}, (), None),
    ({"podSelector": {}, "egress": [{}]}, (), (Rule(),)),
    ({"podSelector": {}, "policyTypes": []}, (), None),
    ({"podSelector": {}, "policyTypes": ["Egress"], "ingress": [{}]}, None, ()),
    ({"podSelector": {}, "policyTypes": ["Ingress"], "egress": [{}]}, (), None),
    ({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}, (), ()),
    ({"podSelector": {}, "ingress": [{}]}, (Rule(),), None),
    ({"podSelector": {}, "ingress": None}, (), None),
    ({"podSelector": {}, "ingress": [None]}, (Rule(),), None),
])
def test_which_directions_a_policy_speaks_of(
        spec: Spec, ingress: tuple[Rule, ...] | None, egress: tuple[Rule, ...] | None) -> None:
    found = read(spec)
    assert (found.ingress, found.egress) == (ingress, egress)


def test_a_policy_of_everything() -> None:
    found = read({
        "podSelector": {"matchLabels": {"app": "db"}},
        "ingress": [{
            "from": [
                {"podSelector": {}},
                {"namespaceSelector": {}},
                {"podSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
                 "namespaceSelector": {"matchLabels": {"team": "a"}}},
                {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
            ],
            "ports": [{}, {"protocol": "UDP"}, {"port": 80}, {"port": 80, "endPort": 90, "protocol": "SCTP"},
                      {"port": "web"}],
        }]})
    assert found.selector == Selector((Requirement("app", Operator.IN, frozenset(["db"])),))
    assert found.ingress == (Rule(
        (PodPeer(Selector()), PodPeer(None, Selector()),
         PodPeer(Selector((Requirement("app", Operator.EXISTS),)),
                 Selector((Requirement("team", Operator.IN, frozenset(["a"])),))),
         IPBlock(parse_network("10.0.0.0/8"), (parse_network("10.1.0.0/16"),))),
        (PortRange(Protocol.TCP), PortRange(Protocol.UDP), PortRange(Protocol.TCP, 80, 80),
         PortRange(Protocol.SCTP, 80, 90), PortName(Protocol.TCP, "web"))),)


@pytest.mark.parametrize("spec", [{"ingress": [{"from": [], "ports": []}]}, {"ingress": [{"from": None}]}])
def test_no_peers_are_everybody_and_no_ports_are_all(spec: Spec) -> None:
    assert read(spec).ingress == (Rule(None, None),)


@pytest.mark.parametrize(("cidr", "meant"), [
    ("10.0.0.5/8", "10.0.0.0/8"), ("010.000.0.0/08", "10.0.0.0/8"), ("2001:DB8::5/64", "2001:db8::/64"),
    ("::ffff:10.0.0.0/104", "10.0.0.0/8"), ("0.0.0.0/0", "0.0.0.0/0"), ("::/0", "::/0"),
])
def test_a_cidr_that_an_old_api_server_took_means_what_it_did(cidr: str, meant: str) -> None:
    (rule,) = read({"ingress": [{"from": [{"ipBlock": {"cidr": cidr}}]}]}).ingress or ()
    assert rule.peers == (IPBlock(parse_network(meant)),)


BAD_PEERS: list[tuple[object, str]] = [
    ({}, "must have an ipBlock, a podSelector or a namespaceSelector"),
    (None, "must be a mapping"),
    ("10.0.0.0/8", "must be a mapping"),
    ({"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}, "must stand alone"),
    ({"ipBlock": {}}, "is required"),
    ({"ipBlock": {"cidr": "10.0.0.0"}}, "is not a CIDR"),
    ({"ipBlock": {"cidr": "10.0.0.0/33"}}, "is not a CIDR"),
    ({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}}, "must lie in 10.0.0.0/8"),
    ({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["192.0.2.0/24"]}}, "must lie in 10.0.0.0/8"),
    ({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["2001:db8::/64"]}}, "must lie in 10.0.0.0/8"),
    ({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["x"]}}, "is not a CIDR"),
    ({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}, "must be one of"),
    ({"podSelector": {"matchLabels": {"a": 1}}}, "must be a string"),
]


@pytest.mark.parametrize(("peer", "rule"), BAD_PEERS)
def test_a_bad_peer_allows_nobody_and_the_policy_still_isolates(peer: object, rule: str) -> None:
    good: Spec = {"podSelector": {}}
    spec = {"ingress": [{"from": [peer, good]}, {"from": [peer]}]}
    found = read(spec)
    assert found.ingress == (Rule((PodPeer(Selector()),)), Rule(()))
    assert any(rule in str(problem) for problem in found.problems)
    assert any(rule in line for line in problems(spec))


BAD_PORTS: list[tuple[object, str]] = [
    ({"port": 0}, "must be a whole number from 1 to 65535"),
    ({"port": 65536}, "must be a whole number"),
    ({"port": "80"}, "a name of at most 15"),
    ({"port": "Web"}, "a name of at most 15"),
    ({"port": "a-name-too-long!"}, "a name of at most 15"),
    ({"port": 80, "endPort": 79}, "must be at least port, which is 80"),
    ({"port": "web", "endPort": 90}, "needs a port that is a number"),
    ({"endPort": 90}, "needs a port that is a number"),
    ({"protocol": "ICMP"}, "must be one of TCP, UDP, SCTP"),
    ({"port": True}, "must be a whole number"),
    (7, "must be a mapping"),
]


@pytest.mark.parametrize(("port", "rule"), BAD_PORTS)
def test_a_bad_port_allows_nothing_and_the_policy_still_isolates(port: object, rule: str) -> None:
    spec = {"egress": [{"ports": [port, {"port": 53, "protocol": "UDP"}]}, {"ports": [port]}]}
    found = read(spec)
    assert found.egress == (Rule(None, (PortRange(Protocol.UDP, 53, 53),)), Rule(None, ()))
    assert any(rule in line for line in problems(spec))


def test_a_direction_that_nobody_knows_closes_both() -> None:
    found = read({"podSelector": {}, "policyTypes": ["Egres"], "ingress": [{}]})
    assert (found.ingress, found.egress) == ((Rule(),), ())
    assert problems({"policyTypes": ["Egres"]}) == ['spec.policyTypes "Egres" must be Ingress or Egress']


def test_a_field_that_nobody_knows_is_refused_where_a_person_can_mend_it() -> None:
    assert problems({"podSelector": {}, "ingres": []}) == ["spec.ingres is not a field of NetworkPolicy"]
    assert read({"podSelector": {}, "ingres": []}).ingress == ()


@pytest.mark.parametrize("raw", [
    written({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}),
    written([]),
    written({}, name="No Name"),
    {"kind": "NetworkPolicy", "metadata": {}},
    {"kind": "Pod", "metadata": {"name": "p"}, "spec": {}},
    "text",
])
def test_what_can_t_be_told_whom_it_selects_is_no_policy(raw: object) -> None:
    with pytest.raises(InvalidObject):
        parse_network_policy(raw, strict=False)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["TCP", "10.0.0.0/8", "Ingress", "web", "In"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["podSelector", "ingress", "egress", "from", "to", "ports", "port", "endPort", "protocol",
                         "ipBlock", "cidr", "except", "namespaceSelector", "matchLabels", "matchExpressions", "key",
                         "operator", "values", "policyTypes"]), inner, max_size=4),
    max_leaves=20)


@given(anything)
def test_whatever_is_written_is_read_or_refused(spec: object) -> None:
    try:
        found = parse_network_policy(written(spec), strict=False)
    except InvalidObject:
        return
    assert found.ingress is not None or found.egress is not None
