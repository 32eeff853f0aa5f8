import pytest

from flock_lab.kube.cluster import Cluster, condition

pytestmark = pytest.mark.cluster


def test_every_node_is_ready_with_its_addresses_of_both_families(cluster: Cluster) -> None:
    for worker in cluster.workers:
        node = cluster.node(worker.name)
        assert node is not None
        assert condition(node, "Ready") == "True"
        addresses = [entry["address"] for entry in node["status"]["addresses"] if entry["type"] == "InternalIP"]
        assert addresses == [str(address) for address in worker.addresses], "the primary family first"
        assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")
        assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.37.2"


def test_kubectl_is_of_the_same_version_as_the_server(cluster: Cluster) -> None:
    said = cluster.kubectl("version").stdout
    assert said.count("v1.37.2") == 2, said
