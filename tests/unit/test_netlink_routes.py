"""Routes as values: what the kernel's defaults make of them, and what is no route of flock's."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.model.family import Address
from flock.netlink import constants as nl
from flock.netlink.routes import (
    DEFAULT_METRIC6,
    LAST_METRIC,
    Route,
    RouteKind,
    add_route,
    blackhole,
    delete_route,
    parse_route,
    replace_route,
)
from flock.netlink.wire import Message, attr, message, messages, nested

NETWORKS = st.one_of(
    st.builds(
        lambda address, length: ip_network((address, length), strict=False), st.ip_addresses(v=6), st.integers(0, 128)
    ),
    st.builds(
        lambda address, length: ip_network((address, length), strict=False), st.ip_addresses(v=4), st.integers(0, 32)
    ),
)


@st.composite
def routes(draw: st.DrawFn) -> Route:
    dst = draw(NETWORKS)
    proto, metric = draw(st.integers(1, 255)), draw(st.integers(0, LAST_METRIC))
    table = draw(st.sampled_from([nl.RT_TABLE_MAIN, 99, 7001]))
    if draw(st.booleans()):
        return Route(dst=dst, proto=proto, kind=RouteKind.BLACKHOLE, metric=metric, table=table)
    peers = st.none() | st.ip_addresses(v=dst.version)
    if draw(st.booleans()):
        return Route(dst=dst, proto=proto, nexthop_id=draw(st.integers(1, LAST_METRIC)), metric=metric, table=table)
    gateway: Address | None = draw(peers)
    prefsrc: Address | None = draw(peers)
    index = draw(st.integers(1, 1 << 30))
    return Route(dst=dst, proto=proto, ifindex=index, gateway=gateway, prefsrc=prefsrc, metric=metric, table=table)


def only(request: bytes) -> Message:
    (found,) = messages(request)
    return found


@given(routes())
def test_a_request_reads_back_as_the_route_it_was_made_of(route: Route) -> None:
    for make in (add_route, replace_route, delete_route):
        assert parse_route(only(make(route)).body) == route


@given(routes())
def test_add_never_replaces_and_replace_creates(route: Route) -> None:
    added, replaced = only(add_route(route)).flags, only(replace_route(route)).flags
    assert added & nl.NLM_F_CREATE
    assert added & nl.NLM_F_EXCL
    assert not added & nl.NLM_F_REPLACE
    assert replaced & nl.NLM_F_CREATE
    assert replaced & nl.NLM_F_REPLACE


def test_ipv6_has_a_default_metric_and_ipv4_none() -> None:
    assert Route(dst=ip_network("2001:db8::/64"), proto=70).metric == DEFAULT_METRIC6
    assert Route(dst=ip_network("10.0.0.0/8"), proto=70).metric == 0


def test_the_device_that_ipv6_shows_of_a_blackhole_is_left_out() -> None:
    wanted = blackhole(ip_network("2001:db8::/64"), 71)
    shown = replace_route(wanted) + attr(nl.RTA_OIF, (1).to_bytes(4, "little"))
    longer = message(nl.RTM_NEWROUTE, 0, shown[16:])
    assert parse_route(only(longer).body) == wanted


@pytest.mark.parametrize("kind", [2, 3, 5, 7, 9], ids=["local", "broadcast", "multicast", "unreachable", "throw"])
def test_other_kinds_of_routes_are_none_of_flocks(kind: int) -> None:
    request = bytearray(replace_route(blackhole(ip_network("10.0.0.0/8"), 70)))
    request[16 + 7] = kind
    assert parse_route(only(bytes(request)).body) is None


def test_cloned_and_multipath_routes_are_none_of_flocks() -> None:
    route = Route(dst=ip_network("2001:db8::/64"), proto=70, ifindex=3)
    cloned = bytearray(replace_route(route))
    cloned[16 + 8 : 16 + 12] = nl.RTM_F_CLONED.to_bytes(4, "little")
    assert parse_route(only(bytes(cloned)).body) is None
    legs = message(nl.RTM_NEWROUTE, 0, replace_route(route)[16:], nested(nl.RTA_MULTIPATH, b""))
    assert parse_route(only(legs).body) is None


def test_a_route_without_gateway_has_link_scope_in_ipv4_alone() -> None:
    four = only(replace_route(Route(dst=ip_network("10.0.0.1/32"), proto=70, ifindex=3))).body
    six = only(replace_route(Route(dst=ip_network("2001:db8::1/128"), proto=70, ifindex=3))).body
    by = only(replace_route(Route(dst=ip_network("0.0.0.0/0"), proto=70, ifindex=3, gateway=ip_address("169.254.1.1"))))
    assert (four[6], six[6], by.body[6]) == (nl.RT_SCOPE_LINK, nl.RT_SCOPE_UNIVERSE, nl.RT_SCOPE_UNIVERSE)
