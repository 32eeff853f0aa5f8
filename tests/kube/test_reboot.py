"""A node that loses its power: /run is empty, its network namespace is made anew, and its pods run again."""

import json
from ipaddress import ip_address

import pytest
from tests.kube import objects
from tests.kube.namespaces import Namespace, RunningPod
from tests.kube.pinging import from_pod

from flock.model.family import FAMILIES, family_of
from flock.model.ownership import ALLOCATIONS_DIR, HOST_PREFIX, PROTO_ANNOUNCED, PROTO_HOME
from flock.testing.wait import wait_until
from flock_lab.kube.cluster import Cluster, condition
from flock_lab.node import Node

pytestmark = [pytest.mark.cluster, pytest.mark.installed, pytest.mark.timeout(420)]

REBOOTED = 2
DEADLINE = 120.0


def test_a_rebooted_nodes_pods_run_again_and_nothing_of_the_old_ones_is_left(
        cluster: Cluster, namespace: Namespace) -> None:
    first, second = (worker.name for worker in cluster.workers)
    namespace.create(objects.deployment("web", 4, objects.web()))
    namespace.create(objects.service("web", cluster.options.families))
    namespace.create(objects.pod("web-0", objects.pod_spec(objects.web(), node=second), labels={"app": "web"}))
    before = namespace.await_ready(5)
    former = containers(namespace, second)
    near = [pod for pod in before if pod.node == first]
    with from_pod(namespace, near[0], near[1].addresses[0]) as pings:
        worker = cluster.reboot(REBOOTED)
        cluster.lab.router.await_forgotten(*worker.node.plan.cidrs.values(), deadline=DEADLINE)
        cluster.await_node(second, "True", deadline=DEADLINE)
        cluster.lab.router.await_learned(*worker.node.plan.cidrs.values(), deadline=DEADLINE)
        wait_until(lambda: restarted(namespace, second, former), DEADLINE, f"pods of {second} in new containers")
    pings.must_have_lost_none()
    after = namespace.await_ready(5, deadline=DEADLINE)
    must_have_addresses_of_their_own(cluster, after)
    must_talk(namespace, after)
    must_have_no_leftovers(cluster, after)


def containers(namespace: Namespace, node: str) -> frozenset[str]:
    """The IDs of the containers of a node's pods, as the API shows them."""
    return frozenset(entry.get("containerID", "") for pod in namespace.pods() if pod["spec"].get("nodeName") == node
                     for entry in pod["status"].get("containerStatuses") or [])


def restarted(namespace: Namespace, node: str, former: frozenset[str]) -> bool:
    """Every pod of the node is Ready, in a container of after the reboot: the API shows for a while what was before."""
    pods = [pod for pod in namespace.pods() if pod["spec"].get("nodeName") == node]
    now = containers(namespace, node)
    return bool(pods) and not now & (former | {""}) and all(condition(pod, "Ready") == "True" for pod in pods)


def must_have_addresses_of_their_own(cluster: Cluster, pods: list[RunningPod]) -> None:
    plans = {worker.name: worker.node.plan for worker in cluster.workers}
    assert len({address for pod in pods for address in pod.addresses}) == 2 * len(pods)
    for pod in pods:
        assert all(address in plans[pod.node].cidrs[family_of(address)] for address in pod.addresses)


def must_talk(namespace: Namespace, pods: list[RunningPod]) -> None:
    here = pods[0]
    there = next(pod for pod in pods if pod.node != here.node)
    found = namespace.find("Service", "web")
    assert found is not None
    services = {family_of(ip_address(text)): ip_address(text) for text in found["spec"]["clusterIPs"]}
    for family in FAMILIES:
        assert namespace.fetch(here, there.address(family), "/hostname") == there.name
        assert namespace.fetch(there, here.address(family), "/hostname") == here.name
        for pod in (here, there):
            wait_until(lambda pod=pod, family=family: namespace.fetch(pod, services[family], "/hostname", 80), 30.0,  # type: ignore[misc]
                       f"an answer of the Service to {pod.name}")


def must_have_no_leftovers(cluster: Cluster, pods: list[RunningPod]) -> None:
    node = cluster.worker(REBOOTED).node
    here = [pod for pod in pods if pod.node == node.name]

    def kept() -> int:
        return len(list(node.path(ALLOCATIONS_DIR).glob("*.json")))
    others = [pod for pod in cluster.api.items("/api/v1/pods") if pod["spec"].get("nodeName") == node.name
              and not pod["spec"].get("hostNetwork") and pod["status"].get("phase") == "Running"]
    assert len(others) >= len(here)
    wait_until(lambda: kept() == len(others), 30.0, f"{len(others)} allocations, not {kept()}")
    links = node.run("ip", "-o", "link", "show").stdout.count("flock:")
    assert links == len(others)
    for pod in here:
        wanted = {str(address) for address in pod.addresses}
        assert wanted <= pod_routes(node)
    assert len(pod_routes(node)) == sum(len(pod["status"]["podIPs"]) for pod in others)


def pod_routes(node: Node) -> set[str]:
    """The addresses that lead into pods."""
    return {route["dst"].partition("/")[0] for family in FAMILIES for proto in (PROTO_HOME, PROTO_ANNOUNCED)
            for route in json.loads(node.run("ip", f"-{family.suffix}", "-json", "route", "show", "proto",
                                             str(proto)).stdout or "[]")
            if route.get("dev", "").startswith(HOST_PREFIX)}
