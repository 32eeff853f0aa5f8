"""The promises of the agent's start and end, on a real node: R1 to R3, R13, R15 and what recovery makes of damage."""

import json

import pytest

from flock.model.family import Family
from flock.model.ownership import ALLOCATIONS_DIR, DAMAGED_DIR
from flock.testing.wait import wait_until
from flock_lab.node import Node

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

HASH_POLICIES = ("net.ipv4.fib_multipath_hash_policy", "net.ipv6.fib_multipath_hash_policy")
FORWARDING = ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding")


def _links(node: Node) -> str:
    return node.run("ip", "link").stdout


def _restart(node: Node) -> None:
    node.kill_agent()
    node.start_agent()
    node.wait_ready()


def test_R1_hash_policies_and_forwarding_are_set_at_start(node: Node) -> None:
    for name in (*HASH_POLICIES, *FORWARDING):
        node.sysctl(name.replace(".", "/"), 0)
    _restart(node)
    names = [name.replace(".", "/") for name in (*HASH_POLICIES, *FORWARDING)]
    assert node.run("cat", *(f"/proc/sys/{name}" for name in names)).stdout.split() == ["1"] * 4


def test_R3_committed_allocations_survive_a_kill_and_their_addresses_are_not_given_again(node: Node) -> None:
    pod = node.pod("kept")
    _restart(node)
    other = node.pod("other")
    for family in (Family.IPV6, Family.IPV4):
        assert pod.address(family) != other.address(family)
    assert node.check(pod).code == 0
    for one in (pod, other):
        node.delete(one).must("DEL")


def test_R3_a_pending_allocation_is_torn_down(node: Node) -> None:
    pod = node.pod("halfway")
    node.kill_agent()
    committed = node.path(ALLOCATIONS_DIR / f"{pod.sandbox.container_id}:eth0.json")
    committed.rename(committed.with_suffix(".pending"))
    node.start_agent()
    node.wait_ready()
    assert pod.host_ifname not in _links(node)
    assert not list(node.path(ALLOCATIONS_DIR).iterdir())


def test_a_damaged_allocation_is_rebuilt_from_its_interface(node: Node) -> None:
    pod = node.pod("damaged")
    node.kill_agent()
    file = node.path(ALLOCATIONS_DIR / f"{pod.sandbox.container_id}:eth0.json")
    file.write_bytes(b"")
    node.start_agent()
    node.wait_ready()
    rebuilt = json.loads(file.read_text())
    assert (rebuilt["ip6"], rebuilt["ip4"]) == (str(pod.address(Family.IPV6)), str(pod.address(Family.IPV4)))
    assert node.path(DAMAGED_DIR / file.name).exists()
    node.delete(pod).must("DEL")
    assert pod.host_ifname not in _links(node)


def test_a_vanished_folder_is_rebuilt_whole(node: Node) -> None:
    pods = [node.pod(f"lost-{number}") for number in range(3)]
    node.kill_agent()
    folder = node.path(ALLOCATIONS_DIR)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    node.start_agent()
    node.wait_ready()
    assert len(list(folder.glob("*.json"))) == 3
    for pod in pods:
        node.delete(pod).must("DEL")


def test_an_allocation_whose_namespace_died_with_the_agent_down_is_released(node: Node) -> None:
    pod = node.pod("dead")
    node.kill_agent()
    node.run("ip", "netns", "delete", pod.netns)
    node.start_agent()
    node.wait_ready()
    assert not list(node.path(ALLOCATIONS_DIR).glob("*.json"))
    node.delete(pod).must("DEL for what is gone already")


def test_R13_the_ready_line_has_ASN_CIDRs_and_the_count(node: Node) -> None:
    pod = node.pod("counted")
    node.stop_agent()
    node.start_agent("--log-format", "json")
    node.wait_ready()
    ready = [line for line in map(json.loads, node.agent_log().splitlines()) if line["event"] == "runtime ready"][-1]
    cidrs = {str(cidr) for cidr in node.plan.cidrs.values()}
    assert (ready["asn"], {ready["cidr6"], ready["cidr4"]}, ready["committed"]) == (node.plan.asn, cidrs, 1)
    node.delete(pod).must("DEL")


def test_R15_GC_goes_on_past_what_it_can_not_remove(node: Node) -> None:
    first, second = node.pod("gc-1"), node.pod("gc-2")
    # A stranger's link under the first pod's name: flock never removes what isn't marked as its own.
    node.run("ip", "link", "set", first.host_ifname, "alias", "somebody else's")
    reply = node.collect()
    assert reply.code != 0
    assert first.host_ifname in reply.stdout
    assert second.host_ifname not in _links(node)
    node.run("ip", "link", "set", first.host_ifname, "alias", f"flock:{first.sandbox.container_id}:eth0")
    node.collect().must("GC")
    wait_until(lambda: first.host_ifname not in _links(node), what="the first pod's link is gone")
