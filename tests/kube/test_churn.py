"""Many pods at once, again and again: all run, and nothing of them is left."""

import pytest
from tests.cluster.ground import Ground, must_have_no_flows, must_not_be_named
from tests.kube import objects
from tests.kube.namespaces import Namespace, RunningPod

from flock_lab.kube.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

PODS = 60
ROUNDS = 3


def test_sixty_pods_created_and_deleted_at_once_three_times_leave_nothing(
        cluster: Cluster, namespace: Namespace) -> None:
    node = cluster.worker(1).node
    before = Ground.seen(node)
    for _ in range(ROUNDS):
        for number in range(PODS):
            namespace.create(objects.pod(f"pod-{number}", objects.pod_spec(objects.pause(), node=node.name)))
        pods: list[RunningPod] = namespace.await_ready(PODS, deadline=120.0)
        addresses = {address for pod in pods for address in pod.addresses}
        assert len(addresses) == 2 * PODS, "each has an address of each family, and no two have the same"
        namespace.delete("Pod")
        namespace.await_none(deadline=120.0)
        before.must_be_as_before(node)
        must_not_be_named(node, tuple(addresses))
        must_have_no_flows(node, tuple(addresses))
