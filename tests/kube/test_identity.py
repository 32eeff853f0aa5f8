"""Whose ADD it is: static pods, images by digest (I10), and the namespaces' defaults (I19)."""

import hashlib
import json
import signal
from collections.abc import Iterator, Mapping

import pytest
from tests.kube import objects
from tests.kube.flocks import allocations
from tests.kube.namespaces import Namespace, RunningPod, fetch_from
from tests.kube.objects import Document

from flock.model.family import FAMILIES, Family
from flock.testing.wait import wait_until
from flock_lab.kube.cluster import Cluster
from flock_lab.kube.documents import STATIC_PODS
from flock_lab.kube.plan import AGNHOST, PAUSE
from flock_lab.kube.worker import Worker

pytestmark = [pytest.mark.cluster, pytest.mark.flock_alone]

PREFIX = "flock.fritzlab.net/"
CONFIG_HASH = "kubernetes.io/config.hash"
ALGO = "namespace=5,pod=5,image=5"


@pytest.fixture
def namespace(shared_namespace: Namespace) -> Namespace:
    return shared_namespace


@pytest.fixture
def worker(cluster: Cluster) -> Worker:
    return cluster.worker(1)


def annotated(**annotations: str) -> dict[str, str]:
    return {PREFIX + name.replace("_", "-"): value for name, value in annotations.items()}


def versions(pod: RunningPod) -> list[int]:
    return sorted((address.version for address in pod.addresses), reverse=True)


# Static pods


@pytest.fixture
def static(worker: Worker, namespace: Namespace) -> Iterator[RunningPod]:
    """One whose manifest asks for IPv6 alone, seen by its mirror pod."""
    path = worker.node.path(f"{STATIC_PODS}/static.json")
    document = objects.pod("static", objects.pod_spec(objects.web()), annotations=annotated(ipv4="false"))
    document["metadata"]["namespace"] = namespace.name
    path.write_text(json.dumps(document))
    yield namespace.await_pod(f"static-{worker.name}")
    path.unlink(missing_ok=True)
    wait_until(lambda: namespace.find("Pod", f"static-{worker.name}") is None, 30.0, "the end of the static pod")


def test_a_static_pod_is_known_by_its_mirrors_hash_and_its_annotations_are_obeyed(
        cluster: Cluster, worker: Worker, namespace: Namespace, static: RunningPod) -> None:
    mirror = namespace.find("Pod", static.name) or {}
    (entry,) = [one for one in allocations(worker.node) if one["pod"] == static.name]
    assert entry["uid"] == mirror["metadata"]["annotations"][CONFIG_HASH]
    assert entry["uid"] != static.uid, "the mirror pod's own UID is the API server's"
    assert versions(static) == [6]
    assert fetch_from(cluster.lab.router, static.address(Family.IPV6), objects.PORT, "/hostname") == static.name


# Images


def hexes(text: str, width: int = 5) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:width]


def host_part(pod: RunningPod) -> str:
    """The address's last 64 bits without N."""
    return f"{int(pod.address(Family.IPV6)):032x}"[16:31]


def test_I10_an_address_shows_the_digest_of_a_pinned_image_and_the_container_where_none_is_known(
        worker: Worker, namespace: Namespace) -> None:
    pinned = worker.pin(AGNHOST)
    digest = pinned.rpartition("sha256:")[2]
    spec = objects.pod_spec({**objects.web(), "image": pinned}, node=worker.name)
    # An unpinned sidecar that comes later, and an init container, are not what the pod is known by.
    spec["containers"].append({**objects.pause(), "name": "beside"})
    spec["initContainers"] = [{"name": "first", "image": AGNHOST, "command": ["true"]}]
    known, unknown = namespace.run(
        objects.pod("known", spec, annotations=annotated(ip_algo=ALGO)),
        objects.pod("unknown", objects.pod_spec({"name": "main", "image": PAUSE}, node=worker.name),
                    annotations=annotated(ip_algo=ALGO)))
    assert host_part(known) == hexes(namespace.name) + hexes("known") + digest[:5]
    (entry,) = [one for one in allocations(worker.node) if one["pod"] == "unknown"]
    assert host_part(unknown) == hexes(namespace.name) + hexes("unknown") + entry["container_id"][:5]


# Namespaces


def test_I19_a_pods_annotations_stand_above_its_namespaces_and_these_above_the_nodes(
        cluster: Cluster, worker: Worker) -> None:
    inner = f"{worker.node.plan.cidrs[Family.IPV6][0xab << 48]}/80"
    with Namespace.made(cluster, "with-defaults", annotated(ipv4="false", cidr6=inner)) as namespace:
        plain, own = namespace.run(
            pod_here(worker, "plain"),
            pod_here(worker, "own", annotated(ipv4="true", cidr6=str(worker.node.plan.cidrs[Family.IPV6]))))
        assert versions(plain) == [6]
        assert f"{int(plain.address(Family.IPV6)):032x}"[12:20] == "000100ab"
        assert versions(own) == [6, 4]
        # A later pod obeys what the namespace says then.
        cluster.api.merge(f"/api/v1/namespaces/{namespace.name}", {"metadata": {"annotations": annotated(ipv4="true")}})
        later, = namespace.run(pod_here(worker, "later"))
        assert versions(later) == [6, 4]


def pod_here(worker: Worker, name: str, annotations: Mapping[str, str] | None = None) -> Document:
    return objects.pod(name, objects.pod_spec(objects.pause(), node=worker.name), annotations=annotations)


def test_I19_a_namespace_that_the_agent_has_not_heard_of_is_waited_for(cluster: Cluster, worker: Worker) -> None:
    """The agent stands still while the namespace comes and kubelet asks for its first pod's network."""
    agent = worker.node.agent
    assert agent is not None
    agent.send_signal(signal.SIGSTOP)
    try:
        with Namespace.made(cluster, "just-made", annotated(ipv4="false")) as namespace:
            namespace.create(pod_here(worker, "first"))
            wait_until(lambda: asks_for_a_network(worker), 30.0, "an ADD that waits")
            agent.send_signal(signal.SIGCONT)
            assert versions(namespace.await_pod("first")) == [6]
    finally:
        agent.send_signal(signal.SIGCONT)


def asks_for_a_network(worker: Worker) -> bool:
    """Whether a shim waits for the agent."""
    return worker.node.run("pgrep", "--exact", "flock", check=False).returncode == 0


def test_many_namespaces_that_come_with_their_pods_are_all_obeyed(cluster: Cluster, worker: Worker) -> None:
    """The informers of pods and namespaces are two watches, and either may be ahead."""
    names = [f"rush-{number}" for number in range(5)]
    for name in names:
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": name, "annotations": annotated(ipv4="false")}})
        namespace = Namespace(cluster=cluster, name=name)
        namespace.await_account()
        namespace.create(pod_here(worker, "first"))
    for name in names:
        namespace = Namespace(cluster=cluster, name=name)
        assert versions(namespace.await_pod("first")) == [6]
        cluster.api.delete(f"/api/v1/namespaces/{name}")
    for name in names:
        Namespace(cluster=cluster, name=name).await_none()


def test_a_wrong_annotation_fails_until_it_is_right(
        cluster: Cluster, worker: Worker, namespace: Namespace) -> None:
    """Every problem is named at once, each with annotation, value and rule."""
    namespace.create(pod_here(worker, "wrong", annotated(cidr6="10.0.0.0/8", ip_algo="colour", ipv9="true")))

    def told() -> bool:
        text = cluster.kubectl("describe", "pod", "wrong", "--namespace", namespace.name).stdout
        line = next((line for line in text.splitlines() if "FailedCreatePodSandBox" in line), "")
        return all(word in line for word in (f"{PREFIX}cidr6", "10.0.0.0/8", f"{PREFIX}ip-algo", "colour",
                                             f"{PREFIX}ipv9"))
    wait_until(told, 30.0, "what is wrong, in what kubectl describes")
    cluster.api.merge(namespace.path("/api/v1/{}/pods") + "/wrong", {"metadata": {"annotations": {
        **annotated(cidr6=str(worker.node.plan.cidrs[Family.IPV6]), ip_algo="pod"), f"{PREFIX}ipv9": None}}})
    assert len(namespace.await_pod("wrong").addresses) == len(FAMILIES)
