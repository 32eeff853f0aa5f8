"""A pod's link as pyroute2 reads it back: every attribute of both ends, and packets that pass."""

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.kernel import oracle
from tests.kernel.ground import BOTH, NODE4, NODE6, attachment, pings, plan, wire
from tests.kernel.oracle import SeenAddress, SeenNeighbour, SeenRoute

from flock.model.family import Family
from flock.model.ownership import PROTO_ANNOUNCED, PROTO_HOME
from flock.pods.observe import Difference
from flock.pods.plan import Wiring, link_local
from flock.pods.wiring import PodWiring
from flock_lab.netns import Netns

pytestmark = pytest.mark.kernel

PERMANENT = 0x80
NODAD = 0x02
ONLINK = 0x4
LINK_SCOPE = 253


FAMILIES = pytest.mark.parametrize("families", [BOTH, (Family.IPV6,), (Family.IPV4,)], ids=["both", "ipv6", "ipv4"])


@FAMILIES
def test_both_ends_of_the_link_are_as_planned(node: Netns, pod: Netns, families: tuple[Family, ...]) -> None:
    wiring = plan(attachment(1, families, mtu=1400))
    wired = wire(node, pod, wiring)
    host, inner = oracle.link(node, wiring.host_ifname), oracle.link(pod, "eth0")
    assert host is not None
    assert inner is not None
    assert (host["index"], inner["index"]) == (wired.host_ifindex, wired.pod_ifindex)
    # RFC 2863's state of the pod's end follows by a work queue; unknown counts as running.
    assert host.get_attr("IFLA_OPERSTATE") == "UP"
    assert inner.get_attr("IFLA_OPERSTATE") in ("UP", "UNKNOWN")
    assert host.get_attr("IFLA_IFALIAS") == f"flock:{wiring.key}"
    for link, mac in ((host, wiring.host_mac), (inner, wiring.pod_mac)):
        assert link.get_attr("IFLA_ADDRESS") == mac.hex(":")
        assert link.get_attr("IFLA_MTU") == 1400
        assert link.get_attr("IFLA_NUM_TX_QUEUES") == link.get_attr("IFLA_NUM_RX_QUEUES") == 1
        assert link["flags"] & 1
        assert link.get_attr("IFLA_LINKINFO").get_attr("IFLA_INFO_KIND") == "veth"


@FAMILIES
def test_the_host_ends_reverse_path_filter_is_loose(node: Netns, pod: Netns, families: tuple[Family, ...]) -> None:
    wiring = plan(attachment(1, families))
    wire(node, pod, wiring)
    assert node.command("sysctl", "-n", f"net/ipv4/conf/{wiring.host_ifname}/rp_filter").stdout.strip() == "2"


def expected_addresses(wiring: Wiring, *, host: bool) -> set[SeenAddress]:
    nodad = PERMANENT | NODAD
    found: set[SeenAddress] = set()
    for entry in wiring.addresses:
        if entry.family is Family.IPV6:
            local = "fe80::1" if host else str(link_local(wiring.pod_mac))
            found.add(SeenAddress(local, 64, nodad, LINK_SCOPE))
            found |= set() if host else {SeenAddress(str(entry.address), 128, nodad, 0)}
        else:
            found.add(
                SeenAddress("169.254.1.1", 32, PERMANENT, LINK_SCOPE)
                if host
                else SeenAddress(str(entry.address), 32, PERMANENT, 0)
            )
    return found


@FAMILIES
def test_B13_no_address_is_ever_tentative(node: Netns, pod: Netns, families: tuple[Family, ...]) -> None:
    wiring = plan(attachment(1, families))
    wired = wire(node, pod, wiring)
    assert oracle.addresses(pod, wired.pod_ifindex) == expected_addresses(wiring, host=False)
    assert oracle.addresses(node, wired.host_ifindex) == expected_addresses(wiring, host=True)


def test_B13_a_program_can_bind_the_moment_the_link_is_there(node: Netns, pod: Netns) -> None:
    wire(node, pod, plan(attachment(1)))

    def bind() -> list[str]:
        bound = []
        for family, address in ((socket.AF_INET6, "2001:db8:0:1::1"), (socket.AF_INET, "10.64.1.1")):
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.bind((address, 80))
                bound.append(sock.getsockname()[0])
        return bound

    assert pod.run(bind) == ["2001:db8:0:1::1", "10.64.1.1"]


@FAMILIES
def test_neighbours_of_both_sides_are_permanent(node: Netns, pod: Netns, families: tuple[Family, ...]) -> None:
    wiring = plan(attachment(1, families))
    wired = wire(node, pod, wiring)
    mine, theirs = wiring.pod_mac.hex(":"), wiring.host_mac.hex(":")
    own = [link_local(wiring.pod_mac)] if Family.IPV6 in families else []
    assert oracle.neighbours(node, wired.host_ifindex) == {
        SeenNeighbour(str(address), mine, PERMANENT) for address in (*own, *(e.address for e in wiring.addresses))
    }
    gateways = {Family.IPV6: "fe80::1", Family.IPV4: "169.254.1.1"}
    assert oracle.neighbours(pod, wired.pod_ifindex) == {
        SeenNeighbour(gateways[family], theirs, PERMANENT) for family in families
    }


@pytest.mark.parametrize(("announced", "proto"), [(False, PROTO_HOME), (True, PROTO_ANNOUNCED)])
def test_the_nodes_routes_to_the_pod(node: Netns, pod: Netns, announced: bool, proto: int) -> None:
    wired = wire(node, pod, plan(attachment(1), announced=lambda _: announced))
    assert oracle.routes(node) == {
        SeenRoute("2001:db8:0:1::1/128", 1, proto, 0, 1024, None, str(NODE6), wired.host_ifindex, 0),
        SeenRoute("10.64.1.1/32", 1, proto, LINK_SCOPE, None, None, str(NODE4), wired.host_ifindex, 0),
    }


def test_the_pods_default_routes(node: Netns, pod: Netns) -> None:
    index = wire(node, pod, plan(attachment(1))).pod_ifindex
    assert oracle.routes(pod) == {
        SeenRoute("::/0", 1, PROTO_HOME, 0, 1024, "fe80::1", None, index, 0),
        SeenRoute("0.0.0.0/0", 1, PROTO_HOME, 0, None, "169.254.1.1", None, index, ONLINK),
    }


def test_pod_and_node_reach_each_other_and_pods_reach_pods(node: Netns, pod: Netns) -> None:
    with Netns.create() as other:
        wire(node, pod, plan(attachment(1)))
        wire(node, other, plan(attachment(2)))
        targets = ("fe80::1%eth0", "169.254.1.1", str(NODE6), str(NODE4), "2001:db8:0:1::2", "10.64.1.2")
        assert pings(pod, *targets) == dict.fromkeys(targets, True)
        assert pings(node, "2001:db8:0:1::1", "10.64.1.1") == {"2001:db8:0:1::1": True, "10.64.1.1": True}
        assert pings(pod, "2001:db8:0:1::1", "10.64.1.1") == {"2001:db8:0:1::1": True, "10.64.1.1": True}


def test_the_gateway_answers_the_pods_link_local_address(node: Netns, pod: Netns) -> None:
    wiring = plan(attachment(1))
    wire(node, pod, wiring)
    source = str(link_local(wiring.pod_mac))
    assert pod.command("ping", "-n", "-c1", "-W2", "-I", f"{source}%eth0", "fe80::1%eth0", check=False).returncode == 0


def test_no_packet_of_a_new_pod_waits_for_neighbour_discovery(node: Netns, pod: Netns) -> None:
    wired = wire(node, pod, plan(attachment(1)))
    pings(pod, "fe80::1%eth0", "169.254.1.1", str(NODE6))
    states = {entry.state for entry in oracle.neighbours(node, wired.host_ifindex)}
    assert states == {PERMANENT}
    assert {entry.state for entry in oracle.neighbours(pod, wired.pod_ifindex)} == {PERMANENT}


@pytest.mark.parametrize("where", ["pod", "node"])
def test_ipv6_that_is_switched_off_by_default_is_switched_on(node: Netns, pod: Netns, where: str) -> None:
    netns = {"pod": pod, "node": node}[where]
    netns.command("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
    wiring = plan(attachment(1))
    wired = wire(node, pod, wiring)
    assert oracle.addresses(pod, wired.pod_ifindex) == expected_addresses(wiring, host=False)
    assert oracle.addresses(node, wired.host_ifindex) == expected_addresses(wiring, host=True)
    assert len(oracle.routes(pod)) == len(oracle.routes(node)) == 2
    assert pings(pod, "fe80::1%eth0") == {"fe80::1%eth0": True}


def test_a_source_address_that_the_node_has_lost_is_left_out(node: Netns, pod: Netns) -> None:
    node.command("ip", "addr", "del", f"{NODE6}/128", "dev", "lo")
    node.command("ip", "addr", "del", f"{NODE4}/32", "dev", "lo")
    wire(node, pod, plan(attachment(1)))
    assert {(route.dst, route.prefsrc) for route in oracle.routes(node)} == {
        ("2001:db8:0:1::1/128", None),
        ("10.64.1.1/32", None),
    }


def test_an_index_that_is_taken_in_the_pod_is_avoided(node: Netns, pod: Netns) -> None:
    pod.command("ip", "link", "add", "name", "other", "index", "2", "type", "bridge")
    wired = wire(node, pod, plan(attachment(1)))
    assert wired.pod_ifindex != 2
    assert pings(pod, "169.254.1.1", "fe80::1%eth0") == {"169.254.1.1": True, "fe80::1%eth0": True}


@pytest.mark.parametrize("ifname", ["e", "net.1", "eth0-fifteen-ch", "ünï"])
def test_interfaces_of_any_legal_name(node: Netns, pod: Netns, ifname: str) -> None:
    wire(node, pod, plan(attachment(1, ifname=ifname)))
    assert ifname in oracle.link_names(pod)


def test_two_interfaces_of_one_container(node: Netns, pod: Netns) -> None:
    wire(node, pod, plan(attachment(1)))
    wire(node, pod, plan(attachment(1, (Family.IPV4,), ifname="eth1")))
    assert {"eth0", "eth1"} <= oracle.link_names(pod)


def test_pods_that_come_at_once_are_all_wired_whole(node: Netns) -> None:
    """Several threads at work: each has its own socket, and no index is given twice."""
    wirings = [plan(attachment(number)) for number in range(1, 25)]
    with contextlib.ExitStack() as stack:
        fds = [stack.enter_context(stack.enter_context(Netns.create()).opened()) for _ in wirings]

        def storm() -> list[tuple[Difference, ...]]:
            pods = PodWiring()
            with ThreadPoolExecutor(6) as pool:
                wired = list(pool.map(pods.wire, wirings, fds))
            assert len({each.host_ifindex for each in wired}) == len(wirings)
            return [pods.check(wiring, fd) for wiring, fd in zip(wirings, fds, strict=True)]

        assert node.run(storm) == [()] * len(wirings)
