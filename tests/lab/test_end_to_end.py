"""Two nodes and a router: pods get their addresses by the real shim, and reach each other over real BGP."""

import hashlib
import json
from ipaddress import ip_network

import pytest
from tests.lab.conftest import EXTRA, Placed

from flock.model.family import FAMILIES, Family
from flock.model.ownership import ALLOCATIONS_DIR, RELEASED_DIR
from flock.testing.wait import wait_until
from flock_lab.cni import Pod
from flock_lab.lab import Lab
from flock_lab.node import Node
from flock_lab.plan import WORLD
from flock_lab.trace import ping, trace

pytestmark = [pytest.mark.kernel, pytest.mark.lab]


def must_answer(source: Placed, target: object, count: int = 3) -> None:
    answer = ping(source.node, target, source.pod.netns, count)  # type: ignore[arg-type]
    assert (answer.sent, answer.received) == (count, count), answer.text


@pytest.mark.parametrize("family", FAMILIES)
def test_pods_on_two_nodes_talk_both_ways(pair: tuple[Placed, Placed], family: Family) -> None:
    left, right = pair
    must_answer(left, right.pod.address(family))
    must_answer(right, left.pod.address(family))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_path_is_node_router_node(lab: Lab, pair: tuple[Placed, Placed], family: Family) -> None:
    left, right = pair
    router = left.node.plan.links[family].router
    path = trace(left.node, right.pod.address(family), left.pod.netns)
    assert path == [left.node.plan.address(family), router, right.node.plan.address(family), right.pod.address(family)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pod_reaches_its_gateway_its_node_and_the_world(pair: tuple[Placed, Placed], family: Family) -> None:
    left, _ = pair
    gateway = {Family.IPV6: "fe80::1%eth0", Family.IPV4: "169.254.1.1"}[family]
    answer = left.node.run("ping", "-n", "-c", "2", "-i", "0.2", "-W", "2", gateway, netns=left.pod.netns, check=False)
    assert answer.returncode == 0, answer.stdout
    must_answer(left, left.node.plan.address(family))
    must_answer(left, WORLD[family])


def test_a_node_reaches_its_pods_from_its_own_address(pair: tuple[Placed, Placed]) -> None:
    left, _ = pair
    for family in FAMILIES:
        address = left.pod.address(family)
        route = json.loads(left.node.run("ip", "-json", "route", "get", str(address)).stdout)[0]
        assert (route["dev"], route["prefsrc"]) == (left.pod.host_ifname, str(left.node.plan.address(family)))
        assert ping(left.node, address).received == 1


def test_two_pods_of_one_node_talk_without_leaving_it(lab: Lab, pair: tuple[Placed, Placed]) -> None:
    left, _ = pair
    near = left.node.pod("near")
    try:
        for family in FAMILIES:
            path = trace(left.node, near.address(family), left.pod.netns)
            assert path == [left.node.plan.address(family), near.address(family)]
    finally:
        left.node.remove(near)


def test_R7_the_router_learned_the_summaries_and_nothing_else(lab: Lab, pair: tuple[Placed, Placed]) -> None:
    assert lab.router.learned() == {cidr for node in lab.nodes for cidr in node.plan.cidrs.values()}


def test_R1_forwarding_and_the_multipath_hash_are_set_by_the_agent(lab: Lab) -> None:
    names = ("ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv4/fib_multipath_hash_policy",
             "ipv6/fib_multipath_hash_policy")
    for node in lab.nodes:
        values = node.run("cat", *(f"/proc/sys/net/{name}" for name in names)).stdout.split()
        assert values == ["1", "1", "1", "1"]


def test_R13_the_ready_line_says_asn_cidrs_and_the_count(lab: Lab) -> None:
    node = lab.node(1)
    line = next(json.loads(line) for line in node.agent_log().splitlines() if "runtime ready" in line)
    told = json.dumps(line)
    for value in (str(node.plan.asn), *map(str, node.plan.cidrs.values())):
        assert value in told
    assert line["committed"] == 0


def test_status_check_and_gc_by_the_real_shim(lab: Lab, pair: tuple[Placed, Placed]) -> None:
    node, pod = lab.node(2), pair[1].pod
    assert node.status().code == 0
    assert node.check(pod).code == 0
    orphan = node.pod("orphan")
    assert node.collect(pod).code == 0
    assert not _link_exists(node, orphan)
    assert _link_exists(node, pod)
    node.run("ip", "netns", "del", orphan.netns)


def test_CHECK_names_what_is_missing(lab: Lab) -> None:
    node = lab.node(2)
    pod = node.pod("checked")
    node.run("ip", "address", "del", f"{pod.address(Family.IPV6)}/128", "dev", "eth0", netns=pod.netns)
    reply = node.check(pod)
    assert reply.result["code"] == 104
    assert str(pod.address(Family.IPV6)) in reply.stdout
    node.remove(pod)


def test_DEL_releases_and_may_be_said_twice(lab: Lab) -> None:
    node = lab.node(1)
    pod = node.pod("gone")
    name = f"{pod.sandbox.container_id}:{pod.sandbox.ifname}"
    assert any(name in file.name for file in node.path(ALLOCATIONS_DIR).iterdir())
    assert node.delete(pod) == node.delete(pod)
    assert node.delete(pod).code == 0
    assert not _link_exists(node, pod)
    assert not any(name in file.name for file in node.path(ALLOCATIONS_DIR).iterdir())
    assert any(name in file.name for file in node.path(RELEASED_DIR).iterdir())
    for family in FAMILIES:
        address = str(pod.address(family))
        assert address not in node.run("ip", f"-{family.suffix}", "route", "show", "table", "all").stdout.split()
    node.run("ip", "netns", "del", pod.netns)


def test_I4_a_released_address_rests_before_it_is_given_again(lab: Lab) -> None:
    node = lab.node(1)
    first = node.pod("short-lived")
    node.remove(first)
    second = node.pod("short-lived")
    assert second.address(Family.IPV4) != first.address(Family.IPV4)
    node.remove(second)


def test_I10_ip_algo_addresses_can_be_read(lab: Lab) -> None:
    digest = "c0ffee" + hashlib.sha256(b"image").hexdigest()[6:]
    node = lab.node(1)
    pods = [node.pod(name, "shop", image=f"registry.example/app@sha256:{digest}",
                     annotations={"ip-algo": "namespace=6,pod=5,image=4"}) for name in ("one", "two")]
    nibbles = [pod.address(Family.IPV6).exploded.replace(":", "")[16:] for pod in pods]
    assert nibbles[0][:6] == nibbles[1][:6] == hashlib.sha256(b"shop").hexdigest()[:6]
    assert [text[6:11] for text in nibbles] == [hashlib.sha256(name).hexdigest()[:5] for name in (b"one", b"two")]
    assert [text[11:15] for text in nibbles] == ["c0ff", "c0ff"]
    for pod in pods:
        node.remove(pod)


def test_R14_a_cidr_that_is_added_and_removed_takes_effect_without_a_restart(
    lab: Lab, node: Node, pair: tuple[Placed, Placed]
) -> None:
    extra4, extra6 = EXTRA
    assert node.agent is not None
    agent = node.agent.pid
    node.write_config({f"cidr{family.suffix}": [str(node.plan.cidrs[family]), str(extra)]
                       for family, extra in ((Family.IPV4, extra4), (Family.IPV6, extra6))})
    lab.router.await_learned(extra4, extra6)
    pod = node.pod("newcomer", annotations={"cidr4": str(extra4), "cidr6": str(extra6)})
    assert pod.address(Family.IPV4) in extra4
    assert pod.address(Family.IPV6) in extra6
    for family in FAMILIES:
        must_answer(pair[1], pod.address(family), 1)
    node.write_config()
    lab.router.await_forgotten(extra4, extra6)
    assert node.check(pod).code == 0, "an existing pod keeps its addresses"
    assert node.agent.pid == agent
    node.remove(pod)


def test_R14_a_broken_manifest_is_told_and_the_last_good_one_stays(lab: Lab, node: Node) -> None:
    node.write_manifest("nodeconfig", "apiVersion: flock.fritzlab.net/v1alpha1\nkind: NodeConfig\nspec: [\n")
    wait_until(lambda: "nodeconfig.yaml" in node.agent_log(), 10.0, "a word about the broken file")
    assert node.status().code == 0
    node.remove(node.pod("in-spite-of-it"))
    assert lab.router.learned() >= set(node.plan.cidrs.values())


def test_a_pod_of_hostRoutes_is_announced_by_itself(lab: Lab, node: Node, pair: tuple[Placed, Placed]) -> None:
    cidr = node.plan.cidrs[Family.IPV6]
    some = ip_network(f"{cidr[0xf << 48]}/80")
    node.write_config({"hostRoutes": [str(some)]})
    wait_until(lambda: node.plan.cidrs[Family.IPV6] in lab.router.learned(), 10.0, "the summary")
    pod = node.pod("apart", annotations={"cidr6": str(some)})
    leg = ip_network(f"{pod.address(Family.IPV6)}/128")
    lab.router.await_learned(leg)
    must_answer(pair[1], pod.address(Family.IPV6), 1)
    node.remove(pod)
    lab.router.await_forgotten(leg)


def _link_exists(node: Node, pod: Pod) -> bool:
    return node.run("ip", "link", "show", pod.host_ifname, check=False).returncode == 0
