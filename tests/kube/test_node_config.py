"""A node's NodeConfig that is late, wrong, changed or gone, with pods on the node (R2, R14)."""

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network

import pytest
from tests.kube import objects
from tests.kube.flocks import (
    await_summaries,
    change_spec,
    kept_spec,
    make_node_config,
    put_spec,
    restart_agent,
    said,
    spec_of,
    summaries,
)
from tests.kube.namespaces import Namespace, RunningPod

from flock.errors import AgentUnavailable
from flock.model.family import FAMILIES, Family, Network
from flock.model.ownership import ALIVE_FILE, BIRD_CONFIG
from flock.testing.wait import wait_until
from flock_lab.kube.api import ApiFailure
from flock_lab.kube.cluster import Cluster, condition
from flock_lab.kube.networks import NODE_CONFIGS
from flock_lab.kube.plan import SPARE
from flock_lab.node import Node
from flock_lab.trace import Stream

pytestmark = [pytest.mark.cluster, pytest.mark.flock_alone]

NAME = "node-1"
OTHER = "node-2"
NEW: dict[Family, Network] = {
    Family.IPV6: ip_network(f"{SPARE[Family.IPV6][0]}/64"), Family.IPV4: ip_network(f"{SPARE[Family.IPV4][0]}/24")}
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodeconfigs.flock.fritzlab.net"


@pytest.fixture
def node(cluster: Cluster) -> Iterator[Node]:
    """The node whose NodeConfig the test changes; afterwards it is as before."""
    with kept_spec(cluster, NAME):
        yield cluster.worker(1).node


@pytest.fixture
def far(shared_namespace: Namespace) -> RunningPod:
    """A pod on the other node."""
    return pod_on(shared_namespace, OTHER, "far")


def pod_on(namespace: Namespace, node: str, name: str, **more: object) -> RunningPod:
    found = namespace.find("Pod", name)
    if found is None:
        namespace.create(objects.pod(name, objects.pod_spec(objects.web(), node=node), **more))  # type: ignore[arg-type]
    return namespace.await_pod(name)


def must_talk(namespace: Namespace, far: RunningPod, near: RunningPod, deadline: float = 15.0) -> None:
    """Both ways, on every family that the near one has."""
    for address in near.addresses:
        wait_until(lambda address=address: namespace.fetch(far, address, "/hostname") == near.name, deadline,  # type: ignore[misc]
                   f"{near.name} at {address} from {far.node}")
    for family in {6: Family.IPV6, 4: Family.IPV4}[near.addresses[0].version],:
        assert namespace.fetch(near, far.address(family), "/hostname") == far.name


def test_R14_changed_CIDRs_are_for_new_pods_and_running_ones_keep_their_addresses_and_are_reached(
        cluster: Cluster, shared_namespace: Namespace, node: Node, far: RunningPod) -> None:
    old = pod_on(shared_namespace, NAME, "old")
    streams = [Stream(cluster.lab.router, address, count=200, interval=0.02) for address in old.addresses]
    change_spec(cluster, NAME, {"cidr6": [str(NEW[Family.IPV6])], "cidr4": [str(NEW[Family.IPV4])]})
    await_summaries(node, NEW.values())
    cluster.lab.router.await_learned(*NEW.values())
    cluster.lab.router.await_forgotten(*node.plan.cidrs.values())
    assert all(stream.running for stream in streams), "the pings ended first: nothing was shown"
    assert [stream.finish().lost for stream in streams] == [0, 0]
    must_talk(shared_namespace, far, old)
    new = pod_on(shared_namespace, NAME, "new")
    for family in FAMILIES:
        assert new.address(family) in NEW[family]
        assert old.address(family) in node.plan.cidrs[family]
    must_talk(shared_namespace, far, new)
    restart_agent(node)
    must_talk(shared_namespace, far, old)
    assert RunningPod.of(shared_namespace.find("Pod", "old") or {}).addresses == old.addresses
    shared_namespace.delete("Pod", "old")
    cluster.lab.router.await_forgotten(*(hosts(old)))


def hosts(pod: RunningPod) -> list[Network]:
    return [ip_network(address) for address in pod.addresses]


def test_R14_MTU_families_and_peers_change_for_new_pods_alone(
        cluster: Cluster, shared_namespace: Namespace, node: Node, far: RunningPod) -> None:
    before = pod_on(shared_namespace, NAME, "before")
    spec = spec_of(cluster, NAME)
    second = {"name": "second", "address": str(node.plan.links[Family.IPV4].router), "asn": 65000}
    change_spec(cluster, NAME, {"mtu": 1400, "defaults": {"ipv4": False},
                                "bgp": {**spec["bgp"], "peers": [*spec["bgp"]["peers"], second]}})
    wait_until(lambda: "65000" in node.path(BIRD_CONFIG).read_text(), 20.0, "the second peer in BIRD's configuration")
    wait_until(lambda: said(node, "node changed"), 20.0, "the new MTU")
    after = pod_on(shared_namespace, NAME, "after")
    assert mtu(shared_namespace, before) == 1500
    assert mtu(shared_namespace, after) == 1400
    assert [address.version for address in after.addresses] == [6]
    for pod in (before, after):
        must_talk(shared_namespace, far, pod)
    assert "second" in node.birdc("show", "protocols", "all")
    put_spec(cluster, NAME, spec)
    wait_until(lambda: "second" not in node.birdc("show", "protocols", "all"), 20.0, "the second peer gone")
    cluster.lab.router.await_learned(*node.plan.cidrs.values())


def mtu(namespace: Namespace, pod: RunningPod) -> int:
    return int(namespace.execute(pod, "cat", "/sys/class/net/eth0/mtu").stdout)


def test_a_removed_NodeConfig_refuses_new_pods_with_the_reason_and_running_ones_stay_reachable(
        cluster: Cluster, shared_namespace: Namespace, node: Node, far: RunningPod) -> None:
    here = pod_on(shared_namespace, NAME, "here")
    spec = spec_of(cluster, NAME)
    cluster.api.delete(f"{NODE_CONFIGS}/{NAME}")
    shared_namespace.create(objects.pod("refused", objects.pod_spec(objects.web(), node=NAME)))
    wait_until(lambda: "NodeConfig node-1 doesn't exist" in described(shared_namespace, "refused"), 30.0,
               "the reason in what kubectl describes")
    must_talk(shared_namespace, far, here)
    shared_namespace.delete("Pod", "here")
    wait_until(lambda: shared_namespace.find("Pod", "here") is None, 30.0, "the end of a pod without a NodeConfig")
    assert condition(cluster.node(NAME), "Ready") == "True"
    make_node_config(cluster, NAME, spec)
    must_talk(shared_namespace, far, shared_namespace.await_pod("refused"))


def described(namespace: Namespace, pod: str) -> str:
    return namespace.cluster.kubectl("describe", "pod", "--namespace", namespace.name, pod).stdout


def test_a_NodeConfig_that_the_API_refuses_changes_nothing(cluster: Cluster, node: Node) -> None:
    before = summaries(node)
    for wrong in (["10.0.0.0/8"], ["ff00::/8"], ["2001:db8::/64", "2001:db8::/48"]):
        with pytest.raises(ApiFailure) as refused:
            change_spec(cluster, NAME, {"cidr6": wrong})
        assert refused.value.code == 422
    assert summaries(node) == before


def test_a_NodeConfig_that_an_older_schema_let_in_is_told_and_the_last_good_one_stays(
        cluster: Cluster, shared_namespace: Namespace, node: Node) -> None:
    """Without the schema, the API takes anything, as one from before a rule does, or after one with more fields."""
    with without_schema(cluster):
        # The API server serves a watch by the schema that it began with.
        restart_agent(node)
        change_spec(cluster, NAME, {"mtu": 1450, "shapes": {"round": True}})
        await_condition(cluster, "spec.shapes")
        wait_until(lambda: [e for e in said(node, "node changed") if e["mtu"] == 1450], 20.0, "the field beside it")
        change_spec(cluster, NAME, {"cidr6": ["ff00::/8"], "mtu": 1300})
        await_condition(cluster, "ff00::/8")
        kept = pod_on(shared_namespace, NAME, "kept")
        assert kept.address(Family.IPV6) in node.plan.cidrs[Family.IPV6]
        assert mtu(shared_namespace, kept) == 1450
        change_spec(cluster, NAME, {"cidr6": [str(node.plan.cidrs[Family.IPV6])], "shapes": None})


def await_condition(cluster: Cluster, word: str) -> None:
    wait_until(lambda: word in str(cluster.api.get(f"{NODE_CONFIGS}/{NAME}").get("status")), 20.0,
               f"{word} in the status of the NodeConfig")


@contextmanager
def without_schema(cluster: Cluster) -> Iterator[None]:
    before = cluster.api.get(CRD)["spec"]
    version, = before["versions"]
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    cluster.api.merge(CRD, {"spec": {"versions": [{**version, "schema": anything}]}})
    try:
        wait_until(lambda: accepts_anything(cluster), 20.0, "a schema that lets anything in")
        yield
    finally:
        cluster.api.merge(CRD, {"spec": {"versions": before["versions"]}})


def accepts_anything(cluster: Cluster) -> bool:
    """Asked in a dry run: the server takes a moment for a new schema."""
    path = f"{NODE_CONFIGS}/{NAME}?dryRun=All"
    return "sure" in str(cluster.api.merge(path, {"spec": {"sure": True}}))


def test_R2_a_first_agent_without_a_NodeConfig_starts_once_there_is_one(
        cluster: Cluster, shared_namespace: Namespace, node: Node, far: RunningPod) -> None:
    """After a boot: what an agent has left in /run is gone."""
    spec = spec_of(cluster, NAME)
    node.stop_agent()
    node.path(ALIVE_FILE).unlink()
    cluster.api.delete(f"{NODE_CONFIGS}/{NAME}")
    node.start_agent()
    shared_namespace.create(objects.pod("first", objects.pod_spec(objects.web(), node=NAME)))
    wait_until(lambda: said(node, "waiting for the NodeConfig"), 20.0, "an agent that says what it waits for")
    assert not said(node, "runtime ready")
    assert node.status().code == AgentUnavailable.code
    make_node_config(cluster, NAME, spec)
    node.wait_ready()
    must_talk(shared_namespace, far, shared_namespace.await_pod("first"))


def test_an_agent_that_restarts_without_a_NodeConfig_serves_all_but_new_pods(
        cluster: Cluster, shared_namespace: Namespace, node: Node, far: RunningPod) -> None:
    stays, goes = (pod_on(shared_namespace, NAME, name) for name in ("stays", "goes"))
    spec = spec_of(cluster, NAME)
    cluster.api.delete(f"{NODE_CONFIGS}/{NAME}")
    restart_agent(node)
    assert said(node, "serving without a NodeConfig")
    must_talk(shared_namespace, far, stays)
    shared_namespace.delete("Pod", goes.name)
    wait_until(lambda: shared_namespace.find("Pod", goes.name) is None, 30.0, "the end of a pod without a NodeConfig")
    assert node.status().code == 0
    make_node_config(cluster, NAME, spec)
    must_talk(shared_namespace, far, pod_on(shared_namespace, NAME, "anew"))
    assert node.birdc("show", "status").count("Router ID is 192.0.2.6") == 1
    assert condition(cluster.node(NAME), "Ready") == "True"
