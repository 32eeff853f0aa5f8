"""CHECK names what a stranger took away, and it is put back: by the sweep's repair, and at once after a notice."""

import contextlib
import select

import pytest
from tests.kernel import oracle
from tests.kernel.ground import NODE4, attachment, on_node, pings, plan, wire, with_pod

from flock.model.family import Family
from flock.model.ownership import PROTO_ANNOUNCED
from flock.netlink.events import Event, LinkChanged, Overflow
from flock.netlink.monitor import Monitor
from flock.pods.observe import host_differences
from flock.pods.plan import NodeFacts, Wiring
from flock.pods.wiring import PodWiring
from flock.testing.wait import wait_until
from flock_lab.netns import Netns

pytestmark = pytest.mark.kernel

WIRING = plan(attachment(1))
HOST = WIRING.host_ifname
POD_LOCAL = str(WIRING.pod_link_local)

TAKEN_FROM_HOST = [
    ("ip addr del fe80::1/64 dev HOST", "address fe80::1/64 is missing on HOST"),
    ("ip addr del 169.254.1.1/32 dev HOST", "address 169.254.1.1/32 is missing on HOST"),
    ("ip route del 10.64.1.1", "route to 10.64.1.1/32 via HOST is missing"),
    ("ip -6 route del 2001:db8:0:1::1", "route to 2001:db8:0:1::1/128 via HOST is missing"),
    ("ip neigh del 10.64.1.1 dev HOST", "permanent neighbour entry of 10.64.1.1 is missing on HOST"),
    ("ip neigh del 2001:db8:0:1::1 dev HOST", "permanent neighbour entry of 2001:db8:0:1::1 is missing on HOST"),
    ("ip neigh del LOCAL dev HOST", "permanent neighbour entry of LOCAL is missing on HOST"),
    ("ip link set HOST address 02:00:00:00:00:99", "MAC of HOST is 02:00:00:00:00:99, not"),
    ("ip link set HOST down", "HOST is down"),
    ("ip addr flush dev HOST", "address fe80::1/64 is missing on HOST"),
]
"""What a stranger does on the node, and what CHECK then says among other things."""

CHANGED_ON_HOST = [
    ("ip link set HOST mtu 1300", "MTU of HOST is 1300, not 1500"),
    ("ip link set HOST alias flock:else:eth0", "alias or reverse path filter of HOST was changed"),
    ("sysctl -qw net/ipv4/conf/HOST/rp_filter=1", "alias or reverse path filter of HOST was changed"),
    ("ip neigh replace 10.64.1.1 lladdr 02:00:00:00:00:99 dev HOST", "permanent neighbour entry of 10.64.1.1"),
    ("ip route replace 10.64.1.1 dev lo", "route to 10.64.1.1/32 via HOST is missing"),
]
"""Changes of which no notice tells; the sweep finds them."""

TAKEN_FROM_POD = [
    ("ip addr del 10.64.1.1/32 dev eth0", "address 10.64.1.1/32 is missing on eth0"),
    ("ip addr del 2001:db8:0:1::1/128 dev eth0", "address 2001:db8:0:1::1/128 is missing on eth0"),
    ("ip route del default", "IPv4 default route via 169.254.1.1 is missing on eth0"),
    ("ip -6 route del default", "IPv6 default route via fe80::1 is missing on eth0"),
    ("ip neigh del fe80::1 dev eth0", "permanent neighbour entry of fe80::1 is missing on eth0 in the pod"),
    ("ip neigh del 169.254.1.1 dev eth0", "permanent neighbour entry of 169.254.1.1 is missing on eth0 in the pod"),
    ("ip link set eth0 address 02:00:00:00:00:99", "MAC of eth0 is 02:00:00:00:00:99, not"),
    ("ip link set eth0 down", "eth0 is down"),
]

REACHABLE = ("fe80::1%eth0", "169.254.1.1", "2001:db8::11", "192.0.2.11")


def spell(text: str) -> str:
    return text.replace("HOST", HOST).replace("LOCAL", POD_LOCAL)


def whole(node: Netns, pod: Netns) -> bool:
    """Nothing differs, and packets pass both ways."""
    differences = with_pod(node, pod, lambda pods, fd: pods.check(WIRING, fd))
    assert differences == (), [str(each) for each in differences]
    back = ("2001:db8:0:1::1", "10.64.1.1")
    return pings(pod, *REACHABLE) == dict.fromkeys(REACHABLE, True) and pings(node, *back) == dict.fromkeys(back, True)


@pytest.mark.parametrize(("command", "said"), [*TAKEN_FROM_HOST, *CHANGED_ON_HOST], ids=lambda text: text[:40])
def test_B9_check_names_what_is_wrong_on_the_node_and_repair_mends_it(
    node: Netns, pod: Netns, command: str, said: str
) -> None:
    wire(node, pod, WIRING)
    node.command(*spell(command).split())
    differences = with_pod(node, pod, lambda pods, fd: pods.check(WIRING, fd))
    assert any(str(each).startswith(spell(said)) and not each.minor for each in differences), differences
    on_node(node, lambda pods: pods.repair(WIRING, differences))
    # What a change of MAC or state empties, is only seen to be missing afterwards.
    on_node(node, lambda pods: pods.repair(WIRING, pods.check(WIRING, None)))
    assert whole(node, pod)


@pytest.mark.parametrize(("command", "said"), TAKEN_FROM_POD, ids=lambda text: text[:40])
def test_B9_check_names_what_is_wrong_in_the_pod(node: Netns, pod: Netns, command: str, said: str) -> None:
    wire(node, pod, WIRING)
    pod.command(*command.split())
    differences = with_pod(node, pod, lambda pods, fd: pods.check(WIRING, fd))
    assert any(str(each).startswith(said) and not each.minor for each in differences), differences
    with_pod(node, pod, lambda pods, fd: pods.repair(WIRING, differences, fd))
    with_pod(node, pod, lambda pods, fd: pods.repair(WIRING, pods.check(WIRING, fd), fd))
    assert whole(node, pod)


@pytest.mark.parametrize("side", ["node", "pod"])
def test_check_says_that_an_interface_is_missing(node: Netns, pod: Netns, side: str) -> None:
    wire(node, pod, WIRING)
    on_node(node, lambda pods: pods.unwire(HOST))
    differences = [str(each) for each in with_pod(node, pod, lambda pods, fd: pods.check(WIRING, fd))]
    said = {"node": f"interface {HOST} is missing on the node", "pod": "interface eth0 is missing in the pod"}
    assert said[side] in differences


def test_what_later_plugins_add_is_no_difference(node: Netns, pod: Netns) -> None:
    wire(node, pod, WIRING)
    pod.command("ip", "route", "add", "203.0.113.0/24", "via", "169.254.1.1", "dev", "eth0", "onlink")
    pod.command("ip", "addr", "add", "203.0.113.9/32", "dev", "eth0")
    node.command("ip", "route", "add", "203.0.113.9/32", "dev", HOST)
    assert whole(node, pod)


def test_another_mtu_inside_the_pod_is_a_minor_difference(node: Netns, pod: Netns) -> None:
    wire(node, pod, WIRING)
    pod.command("ip", "link", "set", "eth0", "mtu", "1400")
    differences = with_pod(node, pod, lambda pods, fd: pods.check(WIRING, fd))
    assert [(str(each), each.minor) for each in differences] == [("MTU of eth0 is 1400, not 1500", True)]


def test_a_route_whose_source_or_protocol_is_old_is_a_minor_difference(node: Netns, pod: Netns) -> None:
    wire(node, pod, WIRING)
    facts = NodeFacts(mtu=1500, source={Family.IPV4: NODE4})
    changed = plan(attachment(1), facts, announced=lambda address: address.version == 4)
    differences = on_node(node, lambda pods: pods.check(changed, None))
    assert [each.minor for each in differences] == [True, True]
    on_node(node, lambda pods: pods.repair(changed, differences))
    assert {(route.dst, route.proto, route.prefsrc) for route in oracle.routes(node)} == {
        ("10.64.1.1/32", PROTO_ANNOUNCED, str(NODE4)),
        ("2001:db8:0:1::1/128", 70, None),
    }


def heal_until_whole(node: Netns, monitor: Monitor, wiring: Wiring, index: int) -> list[Event]:
    """Do as the agent does: heal after each notice of the link, until nothing differs."""
    seen: list[Event] = []

    def healed() -> bool:
        select.select([monitor], [], [], 1)
        events = monitor.read()
        seen.extend(events)

        def heal() -> bool:
            pods = PodWiring()
            for event in events:
                if not isinstance(event, Overflow) and event.ifindex == index:
                    pods.heal(event, wiring)
            return host_differences(wiring, pods.scan()[0]) == ()

        return node.run(heal)

    wait_until(healed, what="everything to be back")
    return seen


@pytest.mark.parametrize(("command", "said"), TAKEN_FROM_HOST, ids=lambda text: text[:40])
def test_R10_what_a_stranger_takes_is_back_after_the_notice(node: Netns, pod: Netns, command: str, said: str) -> None:
    index = wire(node, pod, WIRING).host_ifindex
    with contextlib.closing(node.run(Monitor.of_losses)) as monitor:
        node.command(*spell(command).split())
        assert heal_until_whole(node, monitor, WIRING, index), said
    assert whole(node, pod)


def test_a_notice_about_something_else_heals_nothing(node: Netns, pod: Netns) -> None:
    index = wire(node, pod, WIRING).host_ifindex
    with contextlib.closing(node.run(Monitor.of_losses)) as monitor:
        node.command("ip", "addr", "add", "203.0.113.1/32", "dev", HOST)
        node.command("ip", "addr", "del", "203.0.113.1/32", "dev", HOST)
        events = wait_until(monitor.read, what="the notice")
    assert [event.ifindex for event in events if not isinstance(event, Overflow)] == [index] * len(events)
    assert on_node(node, lambda pods: [pods.heal(event, WIRING) for event in events]) == [False] * len(events)


def test_healing_a_link_that_is_gone_is_no_error(node: Netns, pod: Netns) -> None:
    index = wire(node, pod, WIRING).host_ifindex
    on_node(node, lambda pods: pods.unwire(HOST))
    event = LinkChanged(ifindex=index, name=HOST, mac=WIRING.host_mac, up=False)
    assert not on_node(node, lambda pods: pods.heal(event, WIRING))


def test_adds_wake_nobody_who_listens_for_losses(node: Netns, pod: Netns) -> None:
    with (
        contextlib.closing(node.run(Monitor.of_losses)) as losses,
        contextlib.closing(node.run(Monitor.of_gone_links)) as gone,
    ):
        wire(node, pod, WIRING)
        assert pings(pod, *REACHABLE)
        assert losses.read() == gone.read() == []


def test_scan_finds_flocks_links_and_no_others(node: Netns, pod: Netns) -> None:
    node.command("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "far")
    node.command("ip", "link", "add", "flkaaaaaaaaaaa", "type", "veth", "peer", "name", "far2")
    node.command("ip", "link", "set", "flkaaaaaaaaaaa", "alias", "mine")
    wired = wire(node, pod, WIRING)
    (link,) = on_node(node, lambda pods: pods.scan())
    assert (link.ifindex, link.name, link.key) == (wired.host_ifindex, HOST, WIRING.key)
    assert link.pod_addresses == tuple(entry.address for entry in WIRING.addresses)
    assert host_differences(WIRING, link) == ()


def test_scan_of_a_node_without_pods_is_empty(node: Netns) -> None:
    assert on_node(node, lambda pods: pods.scan()) == ()
