"""masquerade4 beside kube-proxy: pods reach a world that has no route back to them, and Services are as before."""

from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import ip_address

import pytest
from tests.kube import objects
from tests.kube.flocks import change_spec, kept_spec
from tests.kube.namespaces import Namespace, RunningPod, fetch_from

from flock.model.family import FAMILIES, Address, Family, family_of
from flock.testing.wait import wait_until
from flock_lab.kube.cluster import Cluster
from flock_lab.kube.plan import in_url
from flock_lab.world import OUTSIDE, WHOAMI_PORT, make_world

pytestmark = [pytest.mark.cluster, pytest.mark.flock_alone]

TABLE = ("nft", "list", "table", "ip", "flock_masquerade")


@pytest.fixture(scope="module")
def masquerading(cluster: Cluster) -> Iterator[Cluster]:
    make_world(cluster.lab)
    with ExitStack() as stack:
        for worker in cluster.workers:
            stack.enter_context(kept_spec(cluster, worker.name))
            change_spec(cluster, worker.name, {"masquerade4": True})
        for worker in cluster.workers:
            wait_until(lambda node=worker.node: node.run(*TABLE, check=False).returncode == 0, 20.0, "its table")  # type: ignore[misc]
        yield cluster
    for worker in cluster.workers:
        wait_until(lambda node=worker.node: node.run(*TABLE, check=False).returncode != 0, 20.0, "no table")  # type: ignore[misc]


@pytest.fixture(scope="module")
def web(masquerading: Cluster, shared_namespace: Namespace) -> list[RunningPod]:
    shared_namespace.create(objects.deployment("web", 2, objects.web()))
    shared_namespace.create(objects.service("web", masquerading.options.families, type="NodePort"))
    return sorted(shared_namespace.await_ready(2), key=lambda pod: pod.node)


@pytest.fixture(scope="module")
def cluster_ips(shared_namespace: Namespace, web: list[RunningPod]) -> list[Address]:
    return [ip_address(text) for text in (shared_namespace.find("Service", "web") or {})["spec"]["clusterIPs"]]


def node_address(cluster: Cluster, name: str, family: Family = Family.IPV4) -> Address:
    return next(worker.node.plan.address(family) for worker in cluster.workers if worker.name == name)


def seen_as(answer: str) -> Address:
    """The address in what agnhost's /clientip says."""
    return ip_address(answer.strip().rpartition(":")[0].strip("[]"))


def test_the_world_sees_nodes_by_IPv4_and_pods_by_IPv6(
        masquerading: Cluster, shared_namespace: Namespace, web: list[RunningPod]) -> None:
    for pod in web:
        wanted = {Family.IPV4: node_address(masquerading, pod.node), Family.IPV6: pod.address(Family.IPV6)}
        for family in FAMILIES:
            question = f"echo | nc -w 3 {OUTSIDE[family]} {WHOAMI_PORT}"
            answer = shared_namespace.execute(pod, "sh", "-c", question).stdout.strip()
            assert ip_address(answer.removeprefix("::ffff:")) == wanted[family]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.label)
def test_pods_see_each_other_directly_and_behind_cluster_ips(
        shared_namespace: Namespace, web: list[RunningPod], cluster_ips: list[Address], family: Family) -> None:
    here, there = web
    assert seen_as(shared_namespace.fetch(here, there.address(family), "/clientip")) == here.address(family)
    service = next(address for address in cluster_ips if family_of(address) is family)
    clients: dict[str, set[Address]] = {}

    def both_were_met() -> bool:
        who = shared_namespace.fetch(here, service, "/shell?cmd=hostname", 80)
        name = next((pod.name for pod in web if pod.name in who), "")
        clients.setdefault(name, set()).add(seen_as(shared_namespace.fetch(here, service, "/clientip", 80)))
        return set(clients) >= {pod.name for pod in web}
    wait_until(both_were_met, 60.0, f"both pods behind {service}")
    # Hairpin is kube-proxy's to masquerade: a pod that meets itself sees its node.
    hairpin = node_address(shared_namespace.cluster, here.node, family)
    assert {address for seen in clients.values() for address in seen} <= {here.address(family), hairpin}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.label)
def test_node_ports_work_from_outside_from_nodes_and_from_pods(
        masquerading: Cluster, shared_namespace: Namespace, web: list[RunningPod], family: Family) -> None:
    port = (shared_namespace.find("Service", "web") or {})["spec"]["ports"][0]["nodePort"]
    names = {pod.name for pod in web}
    for worker in masquerading.workers:
        address = worker.node.plan.address(family)
        for host in (masquerading.lab.router, *(one.node for one in masquerading.workers)):
            assert fetch_from(host, address, port, "/hostname") in names
        for pod in web:
            assert shared_namespace.fetch(pod, address, "/hostname", port) in names


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.label)
def test_a_port_of_the_host_works_from_outside_from_nodes_and_from_pods(
        masquerading: Cluster, shared_namespace: Namespace, web: list[RunningPod], family: Family) -> None:
    name = f"ported-{family.suffix}"
    port = 18090 + int(family.suffix)
    ported, = shared_namespace.run(objects.pod(name, objects.pod_spec(objects.web(host_port=port), node="node-1")))
    address = node_address(masquerading, "node-1", family)
    for host in (masquerading.lab.router, *(worker.node for worker in masquerading.workers)):
        assert fetch_from(host, address, port, "/hostname") == ported.name
    for pod in web:
        assert shared_namespace.fetch(pod, address, "/hostname", port) == ported.name
    shared_namespace.delete("Pod", name)


def test_the_api_is_reached_by_its_service(
        masquerading: Cluster, shared_namespace: Namespace, web: list[RunningPod]) -> None:
    api = masquerading.api.get("/api/v1/namespaces/default/services/kubernetes")["spec"]["clusterIP"]
    for pod in web:
        shared_namespace.execute(pod, "/agnhost", "connect", f"{in_url(ip_address(api))}:443", "--timeout=5s")


def test_kube_proxys_syncs_leave_it_alone(
        masquerading: Cluster, shared_namespace: Namespace, web: list[RunningPod]) -> None:
    tables = [worker.node.run("nft", "-a", *TABLE[1:]).stdout for worker in masquerading.workers]
    for number in range(3):
        shared_namespace.create(objects.service(f"more-{number}", masquerading.options.families))
    for worker in masquerading.workers:
        assert worker.node.run("nft", "list", "ruleset").returncode == 0
    assert [worker.node.run("nft", "-a", *TABLE[1:]).stdout for worker in masquerading.workers] == tables
