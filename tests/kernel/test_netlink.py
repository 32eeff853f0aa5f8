"""Routes, dumps, notices and refusals against the kernel, with pyroute2 as the independent reader."""

import contextlib
import os
import threading
from collections.abc import Iterator
from ipaddress import ip_address, ip_network

import pytest
from tests.kernel import oracle
from tests.kernel.oracle import SeenRoute

from flock.errors import InvalidNetns
from flock.model.ownership import PROTO_ANNOUNCED, PROTO_HOME
from flock.netlink.events import AddressGone, NeighbourGone, Overflow, RouteGone
from flock.netlink.messages import delete_link, ensure_address, ensure_neighbour, set_link
from flock.netlink.monitor import Monitor
from flock.netlink.netns import HomeNetns
from flock.netlink.routes import (
    LAST_METRIC,
    Route,
    RouteKind,
    add_route,
    blackhole,
    delete_route,
    dump_routes,
    replace_route,
)
from flock.netlink.socket import NetlinkError, NetlinkSocket, interface_name
from flock.testing.wait import wait_until
from flock_lab.netns import Netns

pytestmark = pytest.mark.kernel

CIDR6, CIDR4 = ip_network("2001:db8:0:1::/64"), ip_network("10.64.1.0/24")


@pytest.fixture
def here() -> Iterator[Netns]:
    with Netns.create() as netns:
        netns.command("ip", "link", "add", "up0", "type", "veth", "peer", "name", "far0")
        netns.command("ip", "link", "set", "up0", "up")
        netns.command("ip", "link", "set", "far0", "up")
        yield netns


@pytest.fixture
def sock(here: Netns) -> Iterator[NetlinkSocket]:
    with here.run(NetlinkSocket) as found:
        yield found


def index_of(here: Netns, name: str) -> int:
    link = oracle.link(here, name)
    assert link is not None
    return int(link["index"])


def test_R7_blackholes_of_node_cidrs(here: Netns, sock: NetlinkSocket) -> None:
    wanted = {blackhole(CIDR6, PROTO_ANNOUNCED), blackhole(CIDR4, PROTO_HOME)}
    sock.run([replace_route(route) for route in wanted], "summary routes")
    assert set(dump_routes(sock)) == wanted
    seen = {(route.dst, route.kind, route.proto, route.metric) for route in oracle.routes(here)}
    assert seen == {
        (str(CIDR6), RouteKind.BLACKHOLE.value, PROTO_ANNOUNCED, LAST_METRIC),
        (str(CIDR4), RouteKind.BLACKHOLE.value, PROTO_HOME, LAST_METRIC),
    }


def test_every_route_reads_back_equal_to_the_one_that_was_meant(here: Netns, sock: NetlinkSocket) -> None:
    up = index_of(here, "up0")
    here.command("ip", "addr", "add", "2001:db8::5/64", "dev", "up0", "nodad")
    here.command("ip", "addr", "add", "192.0.2.5/24", "dev", "up0")
    six, four = ip_address("2001:db8::5"), ip_address("192.0.2.5")
    wanted = {
        Route(dst=ip_network("2001:db8:1::1/128"), proto=PROTO_HOME, ifindex=up, prefsrc=six),
        Route(dst=ip_network("10.64.1.1/32"), proto=PROTO_HOME, ifindex=up, prefsrc=four),
        Route(dst=ip_network("::/0"), proto=PROTO_HOME, ifindex=up, gateway=ip_address("fe80::1"), metric=77),
        Route(dst=ip_network("0.0.0.0/0"), proto=PROTO_HOME, ifindex=up, gateway=ip_address("169.254.1.1")),
        Route(dst=ip_network("2001:db8:2::/48"), proto=PROTO_ANNOUNCED, ifindex=up, table=7001),
        Route(dst=ip_network("10.0.0.0/8"), proto=PROTO_ANNOUNCED, ifindex=up, metric=9, table=7001),
        blackhole(CIDR6, PROTO_ANNOUNCED),
        blackhole(CIDR4, PROTO_ANNOUNCED, metric=5),
    }
    sock.run([add_route(route) for route in wanted], "routes")
    assert set(dump_routes(sock)) | set(dump_routes(sock, table=7001)) == wanted
    sock.run([delete_route(route) for route in wanted], "routes")
    assert oracle.routes(here) == set()
    assert dump_routes(sock, table=7001) == ()


@pytest.mark.parametrize("cidr", [CIDR6, CIDR4])
def test_a_route_changes_its_protocol_in_place(here: Netns, sock: NetlinkSocket, cidr: oracle.Prefix) -> None:
    sock.run([replace_route(blackhole(cidr, PROTO_ANNOUNCED))], "a route")
    sock.run([replace_route(blackhole(cidr, PROTO_HOME))], "a route")
    assert [route.proto for route in oracle.routes(here)] == [PROTO_HOME]


@pytest.mark.parametrize(("cidr", "host"), [(CIDR6, "2001:db8:0:1::1"), (CIDR4, "10.64.1.1")])
def test_a_route_to_a_pod_wins_over_the_blackhole(
    here: Netns, sock: NetlinkSocket, cidr: oracle.Prefix, host: str
) -> None:
    pod = Route(dst=ip_network(host), proto=PROTO_HOME, ifindex=index_of(here, "up0"))
    same = Route(dst=cidr, proto=PROTO_HOME, ifindex=index_of(here, "up0"))
    sock.run([replace_route(route) for route in (blackhole(cidr, PROTO_ANNOUNCED), pod)], "routes")
    assert "dev up0" in here.command("ip", "route", "get", host).stdout
    sock.run([delete_route(pod), replace_route(same)], "routes")
    assert "dev up0" in here.command("ip", "route", "get", host).stdout


def test_routes_of_others_are_not_read(here: Netns, sock: NetlinkSocket) -> None:
    here.command("ip", "route", "add", "blackhole", "203.0.113.0/24")
    here.command("ip", "route", "add", "blackhole", "203.0.113.0/24", "metric", "7", "proto", "70", "table", "99")
    assert dump_routes(sock) == ()


def test_a_refusal_names_the_message_the_reason_and_what_the_kernel_says(sock: NetlinkSocket) -> None:
    batch = [
        replace_route(blackhole(CIDR4, PROTO_HOME)),
        ensure_address(4711, ip_address("10.0.0.1"), 32),
        replace_route(Route(dst=CIDR6, proto=PROTO_HOME, ifindex=1, prefsrc=ip_address("2001:db8::99"))),
        replace_route(blackhole(CIDR6, PROTO_HOME)),
    ]
    with pytest.raises(NetlinkError, match="the kernel refused three things") as caught:
        sock.run(batch, "three things")
    assert [refusal.index for refusal in caught.value.refusals] == [1, 2]
    assert "Invalid source address" in caught.value.refusals[1].text
    # The kernel isn't atomic over a batch: what came after was applied.
    assert len(dump_routes(sock)) == 2


def test_a_refusal_of_the_last_message_is_its_answer(sock: NetlinkSocket) -> None:
    with pytest.raises(NetlinkError) as caught:
        sock.run([replace_route(blackhole(CIDR4, PROTO_HOME)), delete_link(4711)], "things")
    assert [refusal.index for refusal in caught.value.refusals] == [1]
    sock.run([replace_route(blackhole(CIDR6, PROTO_HOME))], "a route")


def test_batches_and_dumps_of_any_length(sock: NetlinkSocket) -> None:
    hosts = [blackhole(host, PROTO_HOME) for host in ip_network("10.64.0.0/22").subnets(new_prefix=32)]
    sock.run([replace_route(route) for route in hosts], "many routes")
    assert set(dump_routes(sock)) == set(hosts)
    with pytest.raises(NetlinkError) as caught:
        sock.run([add_route(route) for route in hosts], "many routes")
    assert [refusal.index for refusal in caught.value.refusals] == list(range(len(hosts)))
    assert len(dump_routes(sock)) == len(hosts)


def test_an_empty_batch_is_nothing(sock: NetlinkSocket) -> None:
    sock.run([], "nothing")
    assert dump_routes(sock) == ()


def test_names_of_indexes(here: Netns, sock: NetlinkSocket) -> None:
    assert interface_name(sock, 1) == "lo"
    assert interface_name(sock, index_of(here, "up0")) == "up0"
    assert interface_name(sock, 999_999) is None


def test_a_socket_made_inside_a_namespace_speaks_to_it_from_outside(here: Netns) -> None:
    def outside(fd: int) -> tuple[bool, bool]:
        home = HomeNetns()
        before = os.stat("/proc/thread-self/ns/net").st_ino
        with home.socket_in(fd) as inner:
            inner.run([replace_route(blackhole(CIDR4, PROTO_HOME))], "a route")
        after = os.stat("/proc/thread-self/ns/net").st_ino
        home.close()
        return before == after, before == os.fstat(fd).st_ino

    with Netns.create() as elsewhere, here.opened() as fd:
        assert elsewhere.run(lambda: outside(fd)) == (True, False)
        assert oracle.routes(elsewhere) == set()
    assert {route.dst for route in oracle.routes(here)} == {str(CIDR4)}


def test_entering_what_is_no_netns_is_refused(here: Netns) -> None:
    def enter() -> None:
        home = HomeNetns()
        fd = os.open("/proc/self/ns/uts", os.O_RDONLY)
        try:
            home.socket_in(fd)
        finally:
            os.close(fd)
            home.close()

    with pytest.raises(InvalidNetns, match="can't be entered"):
        here.run(enter)


def test_losses_are_told_with_what_was_lost(here: Netns, sock: NetlinkSocket) -> None:
    up, mac = index_of(here, "up0"), bytes.fromhex("020000000001")
    address, neighbour = ip_address("192.0.2.1"), ip_address("2001:db8::7")
    route = Route(dst=CIDR6, proto=PROTO_ANNOUNCED, ifindex=up)
    gone = blackhole(CIDR4, PROTO_HOME)
    sock.run(
        [
            ensure_address(up, address, 32),
            ensure_neighbour(up, neighbour, mac),
            replace_route(route),
            replace_route(gone),
        ],
        "things to lose",
    )
    with contextlib.closing(here.run(Monitor.of_losses)) as monitor:
        for command in (
            f"ip -6 route del {CIDR6}",
            f"ip route del {CIDR4}",
            f"ip neigh del {neighbour} dev up0",
            f"ip addr del {address}/32 dev up0",
        ):
            here.command(*command.split())
        # The kernel tells while it removes, so all is there by now.
        events = monitor.read()
    assert events == [
        RouteGone(ifindex=up, route=route),
        RouteGone(ifindex=0, route=gone),
        NeighbourGone(ifindex=up, address=neighbour),
        AddressGone(ifindex=up, address=address),
    ]


def test_changes_that_take_nothing_wake_nobody(here: Netns, sock: NetlinkSocket) -> None:
    up = index_of(here, "up0")
    with (
        contextlib.closing(here.run(Monitor.of_losses)) as losses,
        contextlib.closing(here.run(Monitor.of_gone_links)) as gone,
    ):
        sock.run(
            [set_link(up, mtu=1400), set_link(up, up=False), replace_route(blackhole(CIDR4, PROTO_HOME))], "things"
        )
        here.command("ip", "route", "add", "blackhole", "203.0.113.0/24", "proto", "static")
        here.command("ip", "route", "del", "blackhole", "203.0.113.0/24", "proto", "static")
        here.command("ip", "link", "del", "up0")
        assert gone.read() == []
        assert all(isinstance(event, NeighbourGone | AddressGone) for event in losses.read())


def test_lost_notices_are_told(here: Netns, sock: NetlinkSocket) -> None:
    hosts = [blackhole(host, PROTO_HOME) for host in ip_network("10.64.0.0/23").subnets(new_prefix=32)]
    with contextlib.closing(here.run(lambda: Monitor.of_losses(buffer=4096))) as monitor:
        sock.run([replace_route(route) for route in hosts], "many routes")
        sock.run([delete_route(route) for route in hosts], "many routes")
        events = wait_until(monitor.read, what="the overflow")
    assert Overflow() in events


def test_a_socket_for_each_thread_side_by_side(here: Netns) -> None:
    def work(number: int) -> None:
        with NetlinkSocket() as own:
            for _ in range(20):
                route = blackhole(ip_network(f"10.{number}.0.0/16"), PROTO_HOME)
                own.run([replace_route(route), delete_route(route), replace_route(route)], "a route")

    def start() -> None:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    here.run(start)
    assert oracle.routes(here) == {
        SeenRoute(f"10.{n}.0.0/16", RouteKind.BLACKHOLE.value, PROTO_HOME, 0, LAST_METRIC, None, None, None, 0)
        for n in range(8)
    }
