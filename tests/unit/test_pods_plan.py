"""What one attachment needs, decided without touching anything."""

from ipaddress import IPv4Address, IPv6Address, ip_network

from flock.model.attachment import Attachment
from flock.model.family import Family
from flock.model.ids import ContainerID, IfName
from flock.model.ownership import MAC_PREFIX, PROTO_ANNOUNCED, PROTO_HOME, host_ifname, parse_ifalias
from flock.netlink.routes import Route
from flock.pods.plan import NodeFacts, link_local, plan_wiring

ENTRY = Attachment(
    container_id=ContainerID("a" * 64),
    ifname=IfName("eth0"),
    host_ifname="",
    ip6="2001:db8::1",
    ip4="10.0.0.1",
    mtu=9000,
)
FACTS = NodeFacts(mtu=1500, source={Family.IPV6: IPv6Address("2001:db8::11"), Family.IPV4: None})


def test_names_and_macs_follow_from_the_key_alone() -> None:
    one = plan_wiring(ENTRY, FACTS, announced=lambda _: False)
    two = plan_wiring(Attachment(container_id=ENTRY.container_id, ifname=ENTRY.ifname, host_ifname="x"), FACTS, bool)
    assert (one.host_ifname, one.alias, one.pod_mac, one.host_mac) == (
        two.host_ifname,
        two.alias,
        two.pod_mac,
        two.host_mac,
    )
    assert one.host_ifname == host_ifname(ENTRY.key)
    assert parse_ifalias(one.alias) == ENTRY.key
    assert one.pod_mac != one.host_mac
    assert one.pod_mac[:2] == one.host_mac[:2] == MAC_PREFIX


def test_macs_are_unicast_and_locally_administered() -> None:
    assert MAC_PREFIX[0] & 0x03 == 0x02


def test_a_stored_attachment_keeps_its_own_mtu() -> None:
    assert plan_wiring(ENTRY, FACTS, announced=lambda _: False).mtu == 9000


def test_what_is_announced_one_by_one_has_the_other_protocol() -> None:
    wiring = plan_wiring(ENTRY, FACTS, announced=lambda address: address.version == 4)
    assert [entry.proto for entry in wiring.addresses] == [PROTO_HOME, PROTO_ANNOUNCED]
    assert wiring.addresses[0].host_route(7) == Route(
        dst=ip_network("2001:db8::1/128"), proto=PROTO_HOME, ifindex=7, prefsrc=IPv6Address("2001:db8::11")
    )
    assert wiring.addresses[1].host_route(7).prefsrc is None


def test_a_pod_without_ipv6_has_no_link_local_address() -> None:
    only4 = Attachment(container_id=ENTRY.container_id, ifname=ENTRY.ifname, host_ifname="", ip4="10.0.0.1")
    wiring = plan_wiring(only4, FACTS, announced=lambda _: False)
    assert wiring.pod_link_local is None
    assert [entry.address for entry in wiring.addresses] == [IPv4Address("10.0.0.1")]


def test_the_link_local_address_is_the_macs() -> None:
    assert link_local(bytes.fromhex("3656788aabcd")) == IPv6Address("fe80::3456:78ff:fe8a:abcd")
