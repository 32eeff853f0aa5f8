"""Pods of a Deployment on two nodes: they reach each other directly and by Service, on both families."""

from ipaddress import ip_address

import pytest
from tests.kube import objects
from tests.kube.namespaces import Namespace, RunningPod, fetch_from

from flock.model.family import FAMILIES, Address, Family, family_of
from flock.testing.wait import wait_until
from flock_lab.kube.cluster import Cluster
from flock_lab.kube.plan import in_url
from flock_lab.plan import WORLD

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def web(shared_namespace: Namespace) -> list[RunningPod]:
    shared_namespace.create(objects.deployment("web", 4, objects.web()))
    return shared_namespace.await_ready(4)


@pytest.fixture(scope="module")
def service(shared_namespace: Namespace, web: list[RunningPod]) -> list[Address]:
    shared_namespace.create(objects.service("web", shared_namespace.cluster.options.families))
    found = shared_namespace.find("Service", "web")
    assert found is not None
    return [ip_address(text) for text in found["spec"]["clusterIPs"]]


@pytest.fixture(scope="module")
def pair(web: list[RunningPod]) -> tuple[RunningPod, RunningPod]:
    """Two pods on two nodes."""
    first = web[0]
    return first, next(pod for pod in web if pod.node != first.node)


def test_four_pods_are_ready_on_both_nodes_with_addresses_of_their_node(
        cluster: Cluster, web: list[RunningPod]) -> None:
    plans = {worker.name: worker.node.plan for worker in cluster.workers}
    assert sorted(pod.node for pod in web) == ["node-1", "node-1", "node-2", "node-2"]
    assert len({address for pod in web for address in pod.addresses}) == 8
    for pod in web:
        assert [family_of(address) for address in pod.addresses] == list(cluster.options.families)
        for address in pod.addresses:
            assert address in plans[pod.node].cidrs[family_of(address)]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.label)
def test_pods_on_two_nodes_talk_directly_and_see_each_others_address(
        shared_namespace: Namespace, pair: tuple[RunningPod, RunningPod], family: Family) -> None:
    for here, there in (pair, pair[::-1]):
        assert shared_namespace.fetch(here, there.address(family), "/hostname") == there.name
        seen = shared_namespace.fetch(here, there.address(family), "/clientip")
        assert ip_address(seen.rpartition(":")[0].strip("[]")) == here.address(family)


NO_PORT = 9
"""Where nobody listens."""


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.label)
def test_every_pod_is_behind_the_cluster_ip_of_each_family(
        shared_namespace: Namespace, pair: tuple[RunningPod, RunningPod], web: list[RunningPod],
        service: list[Address], family: Family) -> None:
    address = next(address for address in service if family_of(address) is family)
    for here in pair:
        met: set[str] = set()

        def all_were_met(here: RunningPod = here, met: set[str] = met) -> bool:
            met.add(shared_namespace.fetch(here, address, "/hostname", 80))
            return met - {""} == {pod.name for pod in web}
        wait_until(all_were_met, 30.0, f"each pod by {address} from {here.node}, of which {met} were met")


def test_a_pod_reaches_the_api_by_its_service_and_the_world(
        cluster: Cluster, shared_namespace: Namespace, pair: tuple[RunningPod, RunningPod]) -> None:
    primary = cluster.options.primary
    api = cluster.api.get("/api/v1/namespaces/default/services/kubernetes")["spec"]["clusterIP"]
    for here in pair:
        target = f"{in_url(ip_address(api))}:443"
        shared_namespace.execute(here, "/agnhost", "connect", target, "--timeout=5s")
        for family in FAMILIES:
            shared_namespace.execute(here, "ping", "-c", "1", "-W", "3", str(WORLD[family]))
    assert family_of(ip_address(api)) is primary


def test_exec_and_logs(cluster: Cluster, shared_namespace: Namespace, pair: tuple[RunningPod, RunningPod]) -> None:
    for pod in pair:
        assert shared_namespace.execute(pod, "hostname").stdout == f"{pod.name}\n"
        assert shared_namespace.execute(pod, "sh", "-c", "exit 7", check=False).returncode == 7
        logs = cluster.kubectl("logs", "--namespace", shared_namespace.name, pod.name)
        assert "Started HTTP server on port 8080" in logs.stdout + logs.stderr


def test_a_failed_liveness_probe_restarts_the_container_and_a_failed_readiness_probe_does_not(
        namespace: Namespace) -> None:
    """The pod keeps its sandbox, and so its addresses."""
    namespace.create(objects.pod("ill", objects.pod_spec(
        objects.web(livenessProbe=objects.probe(port=NO_PORT, failureThreshold=1)))))
    namespace.create(objects.pod("shy", objects.pod_spec(
        {**objects.web(), "readinessProbe": objects.probe(port=NO_PORT, failureThreshold=1)})))
    wait_until(lambda: restarts(namespace, "ill") > 0, 40.0, "a restart of the container")
    assert restarts(namespace, "shy") == 0
    wait_until(lambda: phase(namespace, "shy") == "Running", 20.0, "the shy pod to run")


def restarts(namespace: Namespace, name: str) -> int:
    status = (namespace.find("Pod", name) or {}).get("status") or {}
    return sum(entry["restartCount"] for entry in status.get("containerStatuses") or [])


def phase(namespace: Namespace, name: str) -> str:
    status = (namespace.find("Pod", name) or {}).get("status") or {}
    return str(status.get("phase"))


def test_a_port_of_the_host_leads_to_the_pod_on_both_families(cluster: Cluster, namespace: Namespace) -> None:
    pod, = namespace.run(objects.pod("ported", objects.pod_spec(objects.web(host_port=18080), node="node-1")))
    node = cluster.worker(1).node
    for host in (cluster.lab.router, cluster.worker(2).node, node):
        for family in FAMILIES:
            assert fetch_from(host, node.plan.address(family), 18080, "/hostname") == pod.name
