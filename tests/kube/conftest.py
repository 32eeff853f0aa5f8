"""One real Kubernetes cluster for every test of this folder, on the lab's nodes.

FLOCK_KUBE_PRIMARY (ipv6, ipv4), FLOCK_KUBE_PROXY (nftables, iptables) and FLOCK_KUBE_NETWORK say which: ``flock``,
agents as processes of the nodes, for tests marked ``flock_alone``; ``installed``, flock from its images, for those
marked ``installed``; ``ptp``, the reference plugins, which must pass what has neither mark.
"""

import itertools
import os
from collections.abc import Iterator

import pytest
from tests.kube.namespaces import Namespace

from flock.model.family import Family
from flock_lab.kube.cluster import Cluster
from flock_lab.kube.plan import ClusterOptions, PodNetwork, ProxyMode

_numbers = itertools.count(1)


def _chosen() -> ClusterOptions:
    return ClusterOptions(
        primary={"ipv6": Family.IPV6, "ipv4": Family.IPV4}[os.environ.get("FLOCK_KUBE_PRIMARY", "ipv6")],
        proxy=ProxyMode(os.environ.get("FLOCK_KUBE_PROXY", "nftables")),
        network=PodNetwork(os.environ.get("FLOCK_KUBE_NETWORK", "flock")),
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    network = _chosen().network
    skip = pytest.mark.skip(reason=f"the cluster's network is {network.value}")
    for item in items:
        for marker, wanted in (("flock_alone", PodNetwork.FLOCK), ("installed", PodNetwork.INSTALLED)):
            if item.get_closest_marker(marker) and network is not wanted:
                item.add_marker(skip)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes, Ready. What a test breaks of it, it mends."""
    with Cluster.up(f"kube-{os.getpid()}", _chosen()) as made:
        yield made


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[Namespace]:
    """A namespace for one test; its pods are gone when the test is over."""
    with Namespace.made(cluster, f"test-{next(_numbers)}") as made:
        yield made


@pytest.fixture(scope="module")
def shared_namespace(cluster: Cluster) -> Iterator[Namespace]:
    """The same, for a whole module."""
    with Namespace.made(cluster, f"test-{next(_numbers)}") as made:
        yield made
