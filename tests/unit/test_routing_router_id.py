"""R8: the router ID is a host's own IPv4 address, or one that could be, and the same each time."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.model.family import Address
from flock.routing.router_id import choose_router_id

HOST = IPv4Address("192.0.2.7")


@pytest.mark.parametrize(
    "skipped", ["127.0.0.1", "127.9.9.9", "169.254.1.1", "0.0.0.0", "224.0.0.5", "255.255.255.255"])
def test_R8_the_first_address_that_is_neither_loopback_nor_link_local(skipped: str) -> None:
    addresses: list[Address] = [IPv6Address("2001:db8::1"), IPv4Address(skipped), HOST, IPv4Address("192.0.2.8")]
    assert choose_router_id(None, addresses, "node-1") == HOST


def test_R8_a_configured_one_wins() -> None:
    assert choose_router_id(IPv4Address("198.51.100.1"), [HOST], "node-1") == IPv4Address("198.51.100.1")


@given(name=st.text(min_size=1, max_size=253))
def test_R8_without_ipv4_it_comes_from_the_name_and_could_be_a_hosts(name: str) -> None:
    chosen = choose_router_id(None, [IPv6Address("2001:db8::1")], name)
    assert chosen == choose_router_id(None, [], name)
    assert 1 <= chosen.packed[0] <= 223
    assert not chosen.is_loopback


def test_R8_nodes_of_a_cluster_differ() -> None:
    assert len({choose_router_id(None, [], f"node-{number}") for number in range(5000)}) == 5000
