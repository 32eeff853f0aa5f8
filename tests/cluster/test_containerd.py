import os
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.cluster import pings
from tests.cluster.conftest import Runtime
from tests.cluster.containerd import PodSandbox
from tests.cluster.ground import Ground, must_not_be_named

from flock.model.family import FAMILIES, Address, Family
from flock.model.ownership import ALIVE_FILE, DELETES_DIR
from flock.testing.wait import wait_until
from flock_lab import manifests
from flock_lab.host import Host
from flock_lab.images import TOOLS
from flock_lab.state import LabError

pytestmark = pytest.mark.cluster


@contextmanager
def pod(runtime: Runtime, name: str, *host_ports: tuple[int, int]) -> Iterator[PodSandbox]:
    """A sandbox, stopped and removed at the end; a test that fails leaves its node as it is, for the message."""
    sandbox = runtime.containerd.run_sandbox(name, host_ports=host_ports)
    yield sandbox
    runtime.containerd.stop_sandbox(sandbox)
    runtime.containerd.remove_sandbox(sandbox)


def must_answer(runtime: Runtime, container: str, target: Address) -> None:
    pings.must_be_answered(runtime.containerd.execute(container, *pings.command(target)))


def fetch(host: Host, address: Address, port: int) -> bytes:
    """Get / from a web server, as a program of that host."""
    place = f"[{address}]" if address.version == 6 else str(address)

    def ask() -> bytes:
        with urllib.request.urlopen(f"http://{place}:{port}/", timeout=5.0) as answer:
            return bytes(answer.read())
    return host.call(ask)


def test_two_containers_ping_each_other_and_their_node_on_both_families(runtime: Runtime) -> None:
    before = Ground.seen(runtime.node)
    with pod(runtime, "one") as one, pod(runtime, "two") as two:
        assert [address.version for address in one.addresses] == [6, 4], "IPv6 first"
        containers = {here: runtime.containerd.run_container(here) for here in (one, two)}
        for here, there in ((one, two), (two, one)):
            for family in FAMILIES:
                assert here.address(family) in runtime.node.plan.cidrs[family]
                must_answer(runtime, containers[here], there.address(family))
                must_answer(runtime, containers[here], runtime.node.plan.address(family))
    before.must_be_as_before(runtime.node)
    must_not_be_named(runtime.node, [*one.addresses, *two.addresses])


def test_containers_of_two_nodes_and_two_runtimes_reach_each_other_through_the_router(
        debian: Runtime, current: Runtime) -> None:
    with pod(debian, "here") as here, pod(current, "there") as there:
        container = debian.containerd.run_container(here)
        for family in FAMILIES:
            said = debian.containerd.execute(container, *pings.command(there.address(family)))
            pings.must_be_answered(said)
            assert "ttl=61" in said, f"node, router and node are three hops: {said}"


def test_a_pod_is_known_by_the_names_and_the_uid_that_the_runtime_gives(runtime: Runtime) -> None:
    node, uid = runtime.node, "0b5e2a5e-5a1c-4d8e-9f00-7c1f5a3b2d10"
    wanted = node.plan.cidrs[Family.IPV4][200]
    node.write_manifest("pod-chosen", manifests.pod("shop", "chosen", uid=uid, node=node.name, image=TOOLS,
                                                    annotations={"ipv4": str(wanted)}))
    sandbox = runtime.containerd.run_sandbox("chosen", "shop", uid=uid)
    assert sandbox.address(Family.IPV4) == wanted
    runtime.containerd.stop_sandbox(sandbox)
    runtime.containerd.remove_sandbox(sandbox)
    node.remove_manifest("pod-chosen")


def test_a_pod_that_is_refused_says_why_and_leaves_nothing(runtime: Runtime) -> None:
    node, uid = runtime.node, "11111111-5a1c-4d8e-9f00-7c1f5a3b2d10"
    before = Ground.seen(node)
    node.write_manifest("pod-refused", manifests.pod("shop", "refused", uid=uid, node=node.name, image=TOOLS,
                                                     annotations={"ipv4": "192.0.2.200"}))
    with pytest.raises(LabError) as caught:
        runtime.containerd.run_sandbox("refused", "shop", uid=uid)
    assert "192.0.2.200" in str(caught.value.details)
    node.remove_manifest("pod-refused")
    before.must_be_as_before(node)


def test_a_stop_is_repeatable_and_a_pod_whose_namespace_is_gone_can_be_stopped(runtime: Runtime) -> None:
    node = runtime.node
    before = Ground.seen(node)
    sandbox = runtime.containerd.run_sandbox("lost")
    namespaces = set(node.run("ls", "/run/netns").stdout.split())
    node.run("ip", "netns", "del", *(namespaces - {line.rpartition("/")[2] for line in before.lines}))
    runtime.containerd.stop_sandbox(sandbox)
    runtime.containerd.stop_sandbox(sandbox)
    runtime.containerd.remove_sandbox(sandbox)
    before.must_be_as_before(node)


def test_a_pod_stopped_while_the_agent_is_dead_is_gone_once_it_is_back(runtime: Runtime) -> None:
    node = runtime.node
    before = Ground.seen(node)
    sandbox = runtime.containerd.run_sandbox("late")
    node.kill_agent()
    runtime.containerd.stop_sandbox(sandbox)
    runtime.containerd.remove_sandbox(sandbox)
    assert list(node.path(DELETES_DIR).iterdir()), "the shim has kept the DEL"
    node.start_agent()
    node.wait_ready()
    before.must_be_as_before(node)


def test_the_network_stays_ready_while_the_agent_is_killed_and_restarted(runtime: Runtime) -> None:
    node = runtime.node
    assert runtime.containerd.network_condition()["status"] is True
    node.kill_agent()
    assert runtime.containerd.network_condition()["status"] is True
    node.start_agent()
    seen = [runtime.containerd.network_condition()["status"] for _ in range(5)]
    node.wait_ready()
    assert all([*seen, runtime.containerd.network_condition()["status"]])


def test_the_network_of_a_node_without_agent_is_not_ready_after_a_minute(current: Runtime) -> None:
    """It also shows that this containerd asks STATUS at all."""
    node = current.node
    node.kill_agent()
    minute = time.time() - 61
    os.utime(node.path(ALIVE_FILE), (minute, minute))
    condition = current.containerd.network_condition()
    assert (condition["status"], condition["reason"]) == (False, "NetworkPluginNotReady")
    node.start_agent()
    node.wait_ready()
    assert current.containerd.network_condition()["status"] is True


def test_a_port_of_the_host_leads_to_the_container(runtime: Runtime) -> None:
    node = runtime.node
    with pod(runtime, "web", (18080, 8080)) as web:
        runtime.containerd.run_container(web, "httpd", "-f", "-p", "8080", "-h", "/www")
        # A container counts as started before its program listens.
        wait_until(lambda: fetch(node, node.plan.address(Family.IPV6), 18080), 10.0, "the server", forgive=(OSError,))
        for host in (node, runtime.router):
            for family in FAMILIES:
                assert fetch(host, node.plan.address(family), 18080) == b"served by a pod\n"
    must_not_be_named(node, web.addresses)
