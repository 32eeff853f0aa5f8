"""R16: flock on some nodes of a cluster, another CNI on the others, and a cluster that moves node by node."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.kube import objects
from tests.kube.namespaces import Namespace
from tests.kube.test_install import node_of, pods

from flock.model.family import FAMILIES, family_of
from flock.model.ownership import CNI_BIN_DIR, CNI_CONF_DIR, CONFLIST_NAME, PROTO_ANNOUNCED, RUN_DIR, SHIM_NAME
from flock.testing.wait import wait_until
from flock_lab.kube.cluster import Cluster, condition
from flock_lab.kube.control import ControlPlane
from flock_lab.kube.installed import DEPLOY, LABEL, Installed
from flock_lab.kube.networks import PTP_CONFLIST, Reference
from flock_lab.kube.plan import ClusterOptions, PodNetwork
from flock_lab.lab import Lab
from flock_lab.node import Node

pytestmark = [pytest.mark.cluster, pytest.mark.installed, pytest.mark.timeout(300)]

OURS, THEIRS = 1, 2
DEADLINE = 90.0


class Both:
    """flock installed in the cluster and used by the first node; the reference plugins on the second."""

    def __init__(self, options: ClusterOptions) -> None:
        self.flock = Installed()
        self._others = Reference(options.families, nodes=[THEIRS])

    def images(self) -> Sequence[Path]:
        return self.flock.images()

    def boot(self, node: Node, control: ControlPlane) -> None:
        (self.flock if node.plan.number == OURS else self._others).boot(node, control)

    def prepare(self, lab: Lab, control: ControlPlane) -> None:
        self._others.prepare(lab, control)

    def start(self, lab: Lab, control: ControlPlane) -> None:
        self.flock.apply(lab, control)
        self.flock.adopt(lab.node(OURS), control)
        self.flock.await_routes(lab.node(OURS))


@pytest.fixture(scope="module")
def mixed() -> Iterator[tuple[Cluster, Both]]:
    options = ClusterOptions(network=PodNetwork.INSTALLED)
    network = Both(options)
    with Cluster.up(f"kube-mixed-{os.getpid()}", options, network=network) as cluster:
        yield cluster, network


def test_R16_flock_runs_where_the_label_is_and_the_others_keep_their_cni(mixed: tuple[Cluster, Both]) -> None:
    cluster, _ = mixed
    ours, theirs = cluster.worker(OURS), cluster.worker(THEIRS)
    for component in ("agent", "bird"):
        assert [node_of(pod) for pod in pods(cluster, component)] == [ours.name]
    assert [path.name for path in theirs.node.path(CNI_CONF_DIR).iterdir()] == [PTP_CONFLIST]
    assert not theirs.node.path(CNI_BIN_DIR / SHIM_NAME).exists()
    assert not theirs.node.path("/run/flock").exists()


def test_R16_pods_of_both_reach_each_other_and_a_node_moves_to_flock(mixed: tuple[Cluster, Both]) -> None:
    cluster, network = mixed
    with Namespace.made(cluster, "mixed") as namespace:
        here, there = namespace.run(*(objects.pod(f"on-{worker.name}", objects.pod_spec(
            objects.web(), node=worker.name)) for worker in cluster.workers))
        for family in FAMILIES:
            assert namespace.fetch(here, there.address(family), "/hostname") == there.name
            assert namespace.fetch(there, here.address(family), "/hostname") == here.name
        namespace.delete("Pod", there.name, grace=0)
        move(cluster, network)
        moved, = namespace.run(objects.pod("moved", objects.pod_spec(objects.web(), node=there.node)))
        node = cluster.worker(THEIRS).node
        assert all(address in node.plan.cidrs[family_of(address)] for address in moved.addresses)
        assert node.run("ip", "-o", "link", "show").stdout.count("flock:") == 1
        for family in FAMILIES:
            assert namespace.fetch(here, moved.address(family), "/hostname") == moved.name


def move(cluster: Cluster, network: Both) -> None:
    """What docs/install-kubernetes.md says: the label and a NodeConfig; then the former CNI's configuration goes."""
    worker = cluster.worker(THEIRS)
    network.flock.adopt(worker.node, cluster.control)
    wait_until(worker.node.path(CNI_CONF_DIR / CONFLIST_NAME).exists, DEADLINE, "flock's conflist")
    worker.node.path(CNI_CONF_DIR / PTP_CONFLIST).unlink()
    wait_until(lambda: condition(cluster.node(worker.name), "NetworkUnavailable") == "False", DEADLINE, "R6")
    assert condition(cluster.node(worker.name), "Ready") == "True"


def test_a_node_is_taken_off_flock_again(mixed: tuple[Cluster, Both]) -> None:
    """What docs/install-kubernetes.md says of one node."""
    cluster, _ = mixed
    node = cluster.worker(OURS).node
    cluster.kubectl("label", "node", node.name, f"{LABEL}-")
    wait_until(lambda: node.name not in [node_of(pod) for component in ("agent", "bird")
                                         for pod in pods(cluster, component)], DEADLINE, "the end of agent and BIRD")
    cluster.kubectl("apply", "--kustomize", str(DEPLOY.parent / "clean"))
    cluster.kubectl("label", "node", node.name, "flock.fritzlab.net/clean=")
    wait_until(lambda: not node.path(CNI_CONF_DIR / CONFLIST_NAME).exists(), DEADLINE, "no conflist any more")
    wait_until(lambda: not node.path(CNI_BIN_DIR / "portmap").exists(), DEADLINE, "no programs any more")
    wait_until(lambda: not list(node.path(RUN_DIR).iterdir()), DEADLINE, "an empty /run/flock")
    assert node.run("ip", "-6", "route", "show", "proto", str(PROTO_ANNOUNCED)).stdout == ""
