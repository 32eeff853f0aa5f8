"""What flockctl policy says."""

import json
from ipaddress import ip_address

import pytest

from flock.agent.policy_answers import Answer, Question, Selected, answers, parse_question, selected
from flock.api.network_policy import NetworkPolicy, PodPeer, PortRange, Protocol, Rule
from flock.api.selector import Operator, Requirement, Selector
from flock.errors import InvalidConfig
from flock.policy.world import Member, World


def packed(*texts: str) -> tuple[bytes, ...]:
    return tuple(ip_address(text).packed for text in texts)


SERVER = Member(namespace="blue", name="server", interface="flk1", labels={"app": "server"},
                addresses=packed("10.0.0.1", "2001:db8::1"))
CLIENT = Member(namespace="blue", name="client", labels={"app": "client"}, addresses=packed("10.0.0.2", "2001:db8::2"))
IS_SERVER = Selector((Requirement("app", Operator.IN, frozenset(["server"])),))
IS_CLIENT = Selector((Requirement("app", Operator.IN, frozenset(["client"])),))
WEB = NetworkPolicy(namespace="blue", name="web", selector=IS_SERVER, ingress=(
    Rule((PodPeer(IS_CLIENT),), (PortRange(Protocol.TCP, 80, 80),)),))
WORLD = World(policies={("blue", "web"): WEB}, namespaces={"blue": {}}, node=frozenset(packed("192.0.2.1")),
              members={one.id: one for one in (SERVER, CLIENT)})


def test_a_pair_of_pods_is_answered_by_both_families() -> None:
    found = answers(WORLD, Question("blue/client", "blue/server", port=80))
    assert found == [
        Answer(source, target, True, ("ingress of blue/server: rule 0 of blue/web allows it",))
        for source, target in (("10.0.0.2", "10.0.0.1"), ("2001:db8::2", "2001:db8::1"))]


@pytest.mark.parametrize(("asked", "allowed", "reason"), [
    (Question("10.0.0.2", "10.0.0.1", port=81), False,
     "ingress of blue/server: isolated by blue/web, and no rule allows it"),
    (Question("192.0.2.9", "10.0.0.1", port=80), False,
     "ingress of blue/server: isolated by blue/web, and no rule allows it"),
    (Question("10.0.0.1", "10.0.0.2", port=80), True, "egress of blue/server: no policy selects it"),
    (Question("10.0.0.2", "192.0.2.9", port=80), True, "neither is a pod of this node: it has no say"),
    (Question("192.0.2.1", "10.0.0.1", port=81), True, "a node and its own pods always reach each other"),
    (Question("2001:db8::2", "2001:db8::1", protocol="icmp"), False,
     "ingress of blue/server: isolated by blue/web, and no rule allows it"),
])
def test_the_reason_is_told(asked: Question, reason: str, *, allowed: bool) -> None:
    (found,) = answers(WORLD, asked)
    assert (found.allowed, found.reasons) == (allowed, (reason,))


@pytest.mark.parametrize(("asked", "rule"), [
    (Question("blue/nobody", "10.0.0.1", port=80), "pod blue/nobody has no address that this node knows"),
    (Question("x y", "10.0.0.1", port=80), "x y is neither an address nor NAMESPACE/POD"),
    (Question("10.0.0.1", "2001:db8::1", port=80), "have no family in common"),
])
def test_an_end_that_nobody_knows_is_an_error(asked: Question, rule: str) -> None:
    with pytest.raises(InvalidConfig, match=rule):
        answers(WORLD, asked)


@pytest.mark.parametrize(("body", "rule"), [
    ({}, "the question can't be read"),
    ({"source": "a", "target": "b", "protocol": "gre"}, "protocol gre is not one of tcp, udp, sctp, icmp"),
    ({"source": "a", "target": "b"}, "tcp needs a port from 1 to 65535"),
    ({"source": "a", "target": "b", "port": 0}, "tcp needs a port from 1 to 65535"),
    ({"source": "a", "target": "b", "protocol": "icmp", "port": 1}, "icmp has no ports"),
])
def test_a_bad_question_is_an_error(body: object, rule: str) -> None:
    with pytest.raises(InvalidConfig, match=rule):
        parse_question(json.dumps(body).encode())


def test_what_isn_t_even_json_is_an_error() -> None:
    with pytest.raises(InvalidConfig, match="the question can't be read"):
        parse_question(b"\xff")


def test_each_pod_of_the_node_is_shown_with_its_policies() -> None:
    assert selected(WORLD) == [Selected("blue/server", ("blue/web",), None)]
