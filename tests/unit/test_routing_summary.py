"""R7, R10: one blackhole for each node CIDR, at the last metric, announced unless its pods are announced one by one."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network

import pytest

from flock.api.node_config import NodeConfigSpec
from flock.model.family import FAMILIES, family_of
from flock.model.ownership import PROTO_ANNOUNCED, PROTO_HOME
from flock.netlink.routes import LAST_METRIC, RouteKind
from flock.routing.summary import plan_summary, pod_route_protocol


def spec_of(cidrs: Sequence[str], host_routes: Sequence[str] = ()) -> NodeConfigSpec:
    networks = [ip_network(cidr) for cidr in cidrs]
    return NodeConfigSpec(cidr6=tuple(one for one in networks if isinstance(one, IPv6Network)),
                          cidr4=tuple(one for one in networks if isinstance(one, IPv4Network)),
                          host_routes=tuple(ip_network(cidr) for cidr in host_routes))


def test_R7_each_cidr_has_one_blackhole_that_loses_against_everything() -> None:
    cidrs = ["2001:db8:0:1::/64", "2001:db8:0:2::/64", "10.64.1.0/24"]
    routes = plan_summary(spec_of(cidrs))
    assert [str(route.dst) for route in routes] == cidrs
    assert {(route.kind, route.metric, route.proto) for route in routes} == {
        (RouteKind.BLACKHOLE, LAST_METRIC, PROTO_ANNOUNCED)}


def test_R7_no_cidr_no_route() -> None:
    assert plan_summary(NodeConfigSpec()) == ()


@pytest.mark.parametrize(("host_routes", "announced"), [
    ([], [True, True]),
    (["2001:db8:0:1:f::/80"], [True, True]),
    (["2001:db8:0:1::/64"], [False, True]),
    (["2001:db8::/32", "10.64.1.0/24"], [False, False]),
    (["10.64.0.0/16"], [True, False]),
    (["::/0"], [False, True]),
])
def test_R7_a_cidr_wholly_inside_host_routes_stays_at_home(host_routes: list[str], announced: list[bool]) -> None:
    routes = plan_summary(spec_of(["2001:db8:0:1::/64", "10.64.1.0/24"], host_routes))
    assert [route.proto == PROTO_ANNOUNCED for route in routes] == announced


@pytest.mark.parametrize(("pod", "proto"), [
    ("2001:db8:0:1:f::1/128", PROTO_ANNOUNCED), ("2001:db8:0:1:e::1/128", PROTO_HOME), ("10.64.1.9/32", PROTO_HOME)])
def test_a_pods_own_route_is_announced_inside_host_routes(pod: str, proto: int) -> None:
    spec = spec_of(["2001:db8:0:1::/64", "10.64.1.0/24"], ["2001:db8:0:1:f::/80"])
    assert pod_route_protocol(ip_network(pod), spec) == proto


def test_summaries_cover_both_families_alike() -> None:
    routes = plan_summary(spec_of(["2001:db8::/64", "10.0.0.0/24"]))
    assert [family_of(route.dst) for route in routes] == list(FAMILIES)
