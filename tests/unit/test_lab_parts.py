"""The lab's pure parts: numbers, manifests, what ping says, the router's configuration."""

import pytest
import yaml

from flock.api.node_config import parse_node_config
from flock.model.family import FAMILIES, Family
from flock_lab import manifests
from flock_lab.plan import plan_node
from flock_lab.router import render_router
from flock_lab.trace import parse_ping, ping_argv


def test_a_lab_nodes_config_is_one_that_the_agent_takes_strictly() -> None:
    plan = plan_node(3)
    config = parse_node_config(yaml.safe_load(manifests.node_config(plan)), strict=True)
    assert config.name == "node-3"
    assert config.spec.bgp is not None
    assert config.spec.bgp.asn == plan.asn
    for family in FAMILIES:
        assert config.spec.cidrs(family) == (plan.cidrs[family],)


def test_fields_of_a_nodes_config_are_replaced_and_removed() -> None:
    raw = yaml.safe_load(manifests.node_config(plan_node(1), {"mtu": 1400, "cidr4": None}))
    assert raw["spec"]["mtu"] == 1400
    assert "cidr4" not in raw["spec"]
    assert "cidr6" in raw["spec"]


def test_the_router_takes_from_a_node_what_its_own_cidrs_cover() -> None:
    text = render_router([plan_node(1), plan_node(2)], ())
    first, second = text.split("\nfilter from_node2 {")
    assert "2001:db8:0:1::/64+" in first
    assert "2001:db8:0:2::/64+" not in first
    assert "10.64.2.0/24+" in second
    assert "10.64.1.0/24+" not in second


@pytest.mark.parametrize(("text", "sent", "received"), [
    ("3 packets transmitted, 3 received, 0% packet loss, time 2003ms", 3, 3),
    ("5 packets transmitted, 0 received, +5 errors, 100% packet loss, time 4100ms", 5, 0),
    ("ping: connect: Network is unreachable", 0, 0),
    ("", 0, 0),
])
def test_what_ping_says_is_counted_and_silence_is_no_success(text: str, sent: int, received: int) -> None:
    result = parse_ping(text)
    assert (result.sent, result.received, result.lost) == (sent, received, sent - received)


def test_a_ping_names_its_family_and_hop_limit() -> None:
    link = plan_node(1).links
    assert ping_argv(link[Family.IPV6].node, count=1, hops=2)[:3] == ["ping", "-6", "-n"]
    assert ping_argv(link[Family.IPV4].node, count=1, hops=2)[-3:] == ["-t", "2", "192.0.2.6"]
