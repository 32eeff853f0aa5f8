"""Upgrades of an installed flock: no packet lost, no pod failed, no moment in which STATUS says no."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.kube import objects
from tests.kube.namespaces import Namespace, RunningPod
from tests.kube.pinging import all_pairs
from tests.kube.test_install import node_of, pods

from flock.testing.wait import wait_until
from flock_lab.image import image
from flock_lab.kube.cluster import Cluster, condition
from flock_lab.kube.installed import NAMESPACE

pytestmark = [pytest.mark.cluster, pytest.mark.installed, pytest.mark.timeout(420)]

AGENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/flock-agent"
DEADLINE = 180.0
SLOW = 90


@pytest.fixture
def pair(cluster: Cluster, namespace: Namespace) -> list[RunningPod]:
    """A pod on each node that answers pings and can ping."""
    return namespace.run(*(objects.pod(f"on-{worker.name}", objects.pod_spec(objects.web(), node=worker.name))
                           for worker in cluster.workers))


class Witness:
    """Looks again and again at what must not change while something else does."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.looks = 0

    def look(self) -> None:
        """STATUS of every node, as containerd asks for it, and the Nodes' readiness."""
        for worker in self._cluster.workers:
            reply = worker.node.status()
            assert reply.code == 0, f"STATUS of {worker.name}: {reply}"
            assert condition(self._cluster.node(worker.name), "Ready") == "True"
        self.looks += 1

    def until(self, predicate: Callable[[], bool], deadline: float, what: str) -> None:
        def looked() -> bool:
            self.look()
            return predicate()
        wait_until(looked, deadline, what)


class Churn:
    """Pods that come and go while something else happens; the runtime may be told to try again, and no pod fails."""

    def __init__(self, namespace: Namespace, nodes: list[str]) -> None:
        self._namespace = namespace
        self._nodes = nodes
        self.made = 0

    def go_on(self) -> None:
        """One more pod on each node."""
        for node in self._nodes:
            self.made += 1
            self._namespace.create(objects.pod(f"churn-{self.made}", objects.pod_spec(objects.pause(), node=node)))

    def must_all_run(self) -> None:
        names = [f"churn-{number}" for number in range(1, self.made + 1)]
        for name in names:
            self._namespace.await_pod(name)
        for pod in self._namespace.pods():
            restarts = sum(entry["restartCount"] for entry in pod["status"]["containerStatuses"])
            assert not restarts, pod["metadata"]["name"]


@contextmanager
def nothing_lost(namespace: Namespace, pair: list[RunningPod]) -> Iterator[None]:
    with all_pairs(namespace, pair) as streams:
        yield
    assert len(streams) == 8
    for stream in streams:
        stream.must_have_lost_none()


def rolled_out(cluster: Cluster) -> bool:
    found = cluster.api.get(AGENT)
    status, nodes = found["status"], len(cluster.workers)
    return (status.get("observedGeneration") == found["metadata"]["generation"]
            and status.get("updatedNumberScheduled") == nodes and status.get("numberAvailable") == nodes
            and len(pods(cluster, "agent")) == nodes)


def test_a_rollout_of_the_agent_loses_no_packet_and_fails_no_pod(
        cluster: Cluster, namespace: Namespace, pair: list[RunningPod]) -> None:
    witness, churn = Witness(cluster), Churn(namespace, [worker.name for worker in cluster.workers])
    before = {pod["metadata"]["uid"] for pod in pods(cluster, "agent")}
    with nothing_lost(namespace, pair):
        cluster.kubectl("rollout", "restart", "daemonset/flock-agent", "--namespace", NAMESPACE)

        def goes_on() -> bool:
            if churn.made < 40:
                churn.go_on()
            return rolled_out(cluster)
        witness.until(goes_on, DEADLINE, "the rollout")
    assert not before & {pod["metadata"]["uid"] for pod in pods(cluster, "agent")}
    assert churn.made > 2
    churn.must_all_run()


def test_an_agent_that_takes_ninety_seconds_to_start_is_waited_for_by_the_old_one(
        cluster: Cluster, namespace: Namespace, pair: list[RunningPod]) -> None:
    """As with a slow pull of its image, on one of the nodes."""
    witness = Witness(cluster)
    slow = {"name": "slow", "image": image("agent"), "imagePullPolicy": "Never",
            "command": ["sh", "-c", f'if [ "$NODE" = node-1 ]; then sleep {SLOW}; fi'],
            "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}
    template = cluster.api.get(AGENT)["spec"]["template"]["spec"]["initContainers"]
    with nothing_lost(namespace, pair):
        cluster.api.merge(AGENT, {"spec": {"template": {"spec": {"initContainers": [slow, *template]}}}})
        witness.until(lambda: rolled_out(cluster), SLOW + DEADLINE, "the slow rollout")
    new = namespace.run(objects.pod("after", objects.pod_spec(objects.pause(), node="node-1")))
    assert new
    cluster.api.merge(AGENT, {"spec": {"template": {"spec": {"initContainers": template}}}})
    wait_until(lambda: rolled_out(cluster), DEADLINE, "the quick agent again")


def test_the_deletion_of_birds_pod_loses_no_packet(
        cluster: Cluster, namespace: Namespace, pair: list[RunningPod]) -> None:
    (bird,) = [pod for pod in pods(cluster, "bird") if node_of(pod) == "node-1"]
    learned = cluster.lab.router.learned()
    with nothing_lost(namespace, pair):
        cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{bird['metadata']['name']}")

        def is_back() -> bool:
            assert cluster.lab.router.learned() >= learned, "the router has forgotten the node"
            found = [pod for pod in pods(cluster, "bird") if node_of(pod) == "node-1"]
            return (len(found) == 1 and found[0]["metadata"]["uid"] != bird["metadata"]["uid"]
                    and condition(found[0], "Ready") == "True" and established(cluster))
        wait_until(is_back, DEADLINE, "another BIRD, and its session")


def established(cluster: Cluster) -> bool:
    node = cluster.worker(1).node
    said = node.run("birdc", "-s", "/run/flock/bird.ctl", "show", "protocols", check=False).stdout
    return "Established" in said
