"""What differs from the plan, in words that name it; what is more than planned is no difference."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from flock.model.attachment import Attachment
from flock.model.family import Family
from flock.model.ids import ContainerID, IfName
from flock.netlink import constants as nl
from flock.netlink.events import AddressGone, LinkChanged, LinkGone, NeighbourGone, Overflow, RouteGone
from flock.netlink.messages import Link, LinkAddress, Neighbour
from flock.netlink.routes import Route, blackhole
from flock.pods.healing import steps_against
from flock.pods.observe import ObservedLink, host_differences, observe, pod_differences
from flock.pods.plan import GATEWAY_LENGTHS, GATEWAYS, NodeFacts, plan_wiring
from flock.pods.steps import host_neighbours, host_steps, pod_addresses, pod_route

ENTRY = Attachment(
    container_id=ContainerID("c1"), ifname=IfName("eth0"), host_ifname="", ip6="2001:db8::1", ip4="10.0.0.1"
)
FACTS = NodeFacts(mtu=1500, source={Family.IPV6: ip_address("2001:db8::11")})
WIRING = plan_wiring(ENTRY, FACTS, announced=lambda _: False)

HOST = ObservedLink(
    ifindex=7,
    name=WIRING.host_ifname,
    alias=WIRING.alias,
    mac=WIRING.host_mac,
    mtu=1500,
    up=True,
    rp_filter=2,
    addresses=frozenset((GATEWAYS[family], GATEWAY_LENGTHS[family]) for family in Family),
    neighbours=frozenset((address, WIRING.pod_mac) for address in host_neighbours(WIRING)),
    routes=frozenset(entry.host_route(7) for entry in WIRING.addresses),
)
POD = ObservedLink(
    ifindex=2,
    name="eth0",
    alias="",
    mac=WIRING.pod_mac,
    mtu=1500,
    up=True,
    rp_filter=0,
    addresses=frozenset(pod_addresses(WIRING)),
    neighbours=frozenset((gateway, WIRING.host_mac) for gateway in GATEWAYS.values()),
    routes=frozenset(pod_route(entry, 2) for entry in WIRING.addresses),
)


def test_what_is_as_planned_has_no_difference() -> None:
    assert host_differences(WIRING, HOST) == ()
    assert pod_differences(WIRING, POD) == ()


def test_what_is_more_than_planned_is_no_difference() -> None:
    more = Route(dst=ip_network("203.0.113.0/24"), proto=70, ifindex=7)
    found = replace(HOST, addresses=HOST.addresses | {(ip_address("203.0.113.1"), 24)}, routes=HOST.routes | {more})
    assert host_differences(WIRING, found) == ()


def test_everything_that_is_missing_is_named_and_mended() -> None:
    bare = replace(HOST, addresses=frozenset(), neighbours=frozenset(), routes=frozenset())
    found = host_differences(WIRING, bare)
    assert len(found) == 2 + 3 + 2
    assert all(each.repair is not None and not each.minor for each in found)
    assert len(pod_differences(WIRING, replace(POD, addresses=frozenset(), neighbours=frozenset()))) == 3 + 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"mac": b"\2\0\0\0\0\1"}, "MAC of"),
        ({"mtu": 1400}, "MTU of"),
        ({"up": False}, "is down"),
        ({"alias": "other"}, "alias or reverse path filter"),
        ({"rp_filter": 1}, "alias or reverse path filter"),
    ],
)
def test_a_changed_link_is_one_difference(changed: dict[str, object], said: str) -> None:
    (found,) = host_differences(WIRING, replace(HOST, **changed))  # type: ignore[arg-type]
    assert said in str(found)


def test_a_missing_link_cannot_be_mended() -> None:
    for found in (*host_differences(WIRING, None), *pod_differences(WIRING, None)):
        assert "is missing" in str(found)
        assert found.repair is None


def test_a_rebuild_reads_key_and_addresses_off_the_link() -> None:
    assert HOST.key == ENTRY.key
    assert HOST.pod_addresses == (ip_address("2001:db8::1"), ip_address("10.0.0.1"))
    assert replace(HOST, alias="foreign").key is None


def test_dumps_are_joined_by_link_and_only_what_is_usable_counts() -> None:
    link = Link(ifindex=7, name="n", alias="a", kind="veth", mac=b"m", mtu=1, up=True, rp_filter=2, addr_gen_mode=1)
    six = ip_address("2001:db8::1")
    (found,) = observe(
        [link],
        [
            LinkAddress(ifindex=7, address=six, length=128, flags=nl.IFA_F_PERMANENT),
            LinkAddress(ifindex=7, address=ip_address("2001:db8::2"), length=128, flags=nl.IFA_F_TENTATIVE),
            LinkAddress(ifindex=7, address=ip_address("2001:db8::3"), length=128, flags=nl.IFA_F_DADFAILED),
            LinkAddress(ifindex=8, address=six, length=128, flags=0),
        ],
        [
            Neighbour(ifindex=7, address=six, mac=b"p", permanent=True),
            Neighbour(ifindex=7, address=ip_address("2001:db8::2"), mac=b"p", permanent=False),
            Neighbour(ifindex=8, address=six, mac=b"p", permanent=True),
        ],
        [blackhole(ip_network("10.0.0.0/8"), 70), Route(dst=ip_network("10.0.0.1/32"), proto=70, ifindex=7)],
    )
    assert found.addresses == {(six, 128)}
    assert found.neighbours == {(six, b"p")}
    assert {route.ifindex for route in found.routes} == {7}


GATEWAY6, GATEWAY4 = GATEWAYS[Family.IPV6], GATEWAYS[Family.IPV4]


@pytest.mark.parametrize(
    ("event", "steps"),
    [
        (NeighbourGone(ifindex=7, address=ip_address("10.0.0.1")), 1),
        (NeighbourGone(ifindex=7, address=WIRING.pod_link_local or GATEWAY6), 1),
        (NeighbourGone(ifindex=7, address=ip_address("10.0.0.9")), 0),
        (RouteGone(ifindex=7, route=Route(dst=ip_network("10.0.0.1/32"), proto=70, ifindex=7)), 1),
        (RouteGone(ifindex=7, route=Route(dst=ip_network("10.0.0.9/32"), proto=70, ifindex=7)), 0),
        (AddressGone(ifindex=7, address=GATEWAY4), 1 + 1 + 1),
        (AddressGone(ifindex=7, address=GATEWAY6), 1 + 2 + 1),
        (AddressGone(ifindex=7, address=ip_address("10.0.0.9")), 0),
        (LinkChanged(ifindex=7, name="n", mac=WIRING.host_mac, up=True), 0),
        (LinkChanged(ifindex=7, name="n", mac=WIRING.host_mac, up=False), len(host_steps(WIRING, 7))),
        (LinkChanged(ifindex=7, name="n", mac=b"\2\0\0\0\0\1", up=False), 1 + len(host_steps(WIRING, 7))),
        (LinkGone(ifindex=7, name="n"), 0),
        (Overflow(), 0),
    ],
)
def test_an_event_is_answered_by_exactly_what_it_took(event: object, steps: int) -> None:
    assert len(steps_against(event, WIRING)) == steps  # type: ignore[arg-type]
