"""What a restart costs: an agent that dies or is stopped loses no packet and no pod, and what waited is done."""

import json

import pytest
from tests.lab.conftest import Placed

from flock.model.family import FAMILIES, Family
from flock.model.ownership import CNI_CONF_DIR, CONFLIST_NAME, DELETES_DIR
from flock.testing.wait import wait_until
from flock_lab.lab import Lab
from flock_lab.node import Node
from flock_lab.trace import Stream

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

RATE = 1000
SECONDS = 5
NO_PEERS: dict[str, object] = {"peers": []}


def _pings(pair: tuple[Placed, Placed], count: int, interval: float) -> list[Stream]:
    left, right = pair
    return [Stream(source.node, target.pod.address(family), source.pod.netns, count=count, interval=interval)
            for source, target in ((left, right), (right, left)) for family in FAMILIES]


def _streams(pair: tuple[Placed, Placed]) -> list[Stream]:
    """A steady stream each way and family, on paths whose neighbours the uplinks and the router have found before."""
    for result in [stream.finish() for stream in _pings(pair, 5, 0.02)]:
        assert result.lost < result.sent, result.text
    return _pings(pair, RATE * SECONDS, 1 / RATE)


def must_have_lost_nothing(streams: list[Stream]) -> None:
    assert all(stream.running for stream in streams), "the pings ended first: nothing was shown"
    for result in [stream.finish() for stream in streams]:
        assert (result.sent, result.lost) == (RATE * SECONDS, 0), result.text


def test_agents_killed_and_restarted_under_pings_lose_nothing(lab: Lab, pair: tuple[Placed, Placed]) -> None:
    streams = _streams(pair)
    for node in lab.nodes:
        node.kill_agent()
        node.start_agent()
    for node in lab.nodes:
        node.wait_ready()
    must_have_lost_nothing(streams)


def test_agents_stopped_by_SIGTERM_under_pings_lose_nothing(lab: Lab, pair: tuple[Placed, Placed]) -> None:
    streams = _streams(pair)
    assert [node.stop_agent() for node in lab.nodes] == [0, 0]
    for node in lab.nodes:
        assert node.path(CNI_CONF_DIR / CONFLIST_NAME).exists(), "the conflist stays until uninstall"
        assert node.status().code == 0, "STATUS is OK while the agent restarts"
        node.start_agent()
    for node in lab.nodes:
        node.wait_ready()
    must_have_lost_nothing(streams)
    assert lab.router.learned() == {cidr for node in lab.nodes for cidr in node.plan.cidrs.values()}


def test_BIRD_killed_and_restarted_under_pings_loses_nothing(lab: Lab, pair: tuple[Placed, Placed]) -> None:
    streams = _streams(pair)
    node = lab.node(1)
    node.kill_bird()
    node.start_bird(recover=True)
    wait_until(lambda: "Established" in node.birdc("show", "protocols"), 10.0, "the session with the router")
    for result in [stream.finish() for stream in streams]:
        assert (result.sent, result.lost) == (RATE * SECONDS, 0), result.text


def test_R3_the_next_agent_knows_every_pod_of_the_former(node: Node) -> None:
    pods = [node.pod(f"kept-{number}") for number in range(3)]
    before = {file.name for file in node.path("/run/flock/allocations").iterdir()}
    node.kill_agent()
    node.start_agent()
    node.wait_ready()
    line = next(json.loads(line) for line in node.agent_log().splitlines() if "runtime ready" in line)
    assert line["committed"] == len(before)
    for pod in pods:
        assert node.check(pod).code == 0
    newcomer = node.pod("newcomer")
    assert newcomer.address(Family.IPV4) not in {pod.address(Family.IPV4) for pod in pods}
    for pod in [*pods, newcomer]:
        node.remove(pod)


def test_a_DEL_without_an_agent_succeeds_and_is_done_by_the_next(node: Node) -> None:
    pod = node.pod("left-behind")
    node.kill_agent()
    assert node.delete(pod).code == 0
    assert [file.name for file in node.path(DELETES_DIR).iterdir()] == [f"{pod.sandbox.container_id}:eth0"]
    assert node.run("ip", "link", "show", pod.host_ifname, check=False).returncode == 0
    node.start_agent()
    node.wait_ready()
    wait_until(lambda: node.run("ip", "link", "show", pod.host_ifname, check=False).returncode != 0, 10.0,
               "the end of the pod's link")
    assert list(node.path(DELETES_DIR).iterdir()) == []
    node.run("ip", "netns", "del", pod.netns)


def test_an_ADD_without_an_agent_is_told_to_try_again(node: Node) -> None:
    sandbox = node.sandbox("too-early")
    node.kill_agent()
    assert node.add(sandbox).result["code"] == 11
    node.start_agent()
    node.wait_ready()
    assert node.add(sandbox).code == 0
    assert node.delete(sandbox).code == 0
    node.run("ip", "netns", "del", sandbox.netns)


def test_R2_an_agent_waits_for_its_NodeConfig(lab_name: str) -> None:
    with Lab.up(lab_name, nodes=1) as lab:
        node = lab.node(1)
        node.remove_manifest("nodeconfig")
        node.start_agent()
        wait_until(lambda: "waiting for the NodeConfig" in node.agent_log(), 10.0, "an agent that waits")
        assert not node.path(CNI_CONF_DIR / CONFLIST_NAME).exists()
        node.write_config()
        node.wait_ready(10.0)
        assert node.path(CNI_CONF_DIR / CONFLIST_NAME).exists()


def test_an_agent_gets_ready_beside_the_one_that_serves_and_takes_over_when_that_ends(lab: Lab, node: Node) -> None:
    """An upgrade: what is slow lies before the lock, which the former agent holds until its last reply."""
    former = node.agent
    assert former is not None
    node.start_agent("--signs", "/run/flock", "--health-listen", "[::1]:9477")
    wait_until(node.path("/run/flock/prepared").exists, 20.0, "a prepared agent")
    wait_until(lambda: "waiting for the former agent" in node.agent_log(), 10.0, "an agent that waits for the lock")
    assert node.status().code == 0
    assert former.poll() is None, "the former one serves"
    former.terminate()
    assert node.await_exit(former, "the former agent", 20.0) == 0
    node.wait_ready()
    pod = node.pod("after-the-hand-over")
    node.remove(pod)


def test_R9_peers_are_left_alone_by_pods_that_come_and_go(lab: Lab, node: Node) -> None:
    def configured() -> int:
        return node.log("bird").read_text().count("Reconfigured")

    before = configured()
    for number in range(3):
        node.remove(node.pod(f"passing-{number}"))
    node.write_config({"bgp": {**NO_PEERS, "asn": node.plan.asn}})
    wait_until(lambda: configured() > before, 10.0, "a reconfiguration by the NodeConfig alone")
    assert configured() == before + 1
