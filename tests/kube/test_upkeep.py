"""What flock writes to the API of a real cluster: the Node's condition, the NodeConfig's status, Events.

With FLOCK_SHOW=1 what kubectl prints here goes into docs/kubernetes.md, each text at the place that names it.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.kube import objects
from tests.kube.namespaces import Namespace

from flock.model.family import Family
from flock.testing.wait import wait_until
from flock_lab.kube.cluster import Cluster, condition
from flock_lab.kube.networks import NODE_CONFIGS

pytestmark = [pytest.mark.cluster, pytest.mark.flock_alone]

NETWORK_UNAVAILABLE = "NetworkUnavailable"
TAINT = "node.kubernetes.io/network-unavailable"
DEADLINE = 30.0
DOCS = Path(__file__).resolve().parents[2] / "docs" / "kubernetes.md"


def show(cluster: Cluster, name: str, *words: str) -> str:
    """What kubectl prints; written into the docs, where somebody wants that."""
    text = cluster.kubectl(*words).stdout
    if os.environ.get("FLOCK_SHOW"):
        put_into_docs(name, f"$ kubectl {' '.join(words)}\n{text}")
    return text


def put_into_docs(name: str, text: str) -> None:
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    before = DOCS.read_text()
    block = re.compile(rf"(<!-- kubectl: {name} -->\n```text\n).*?(```)", re.DOTALL)
    assert block.search(before), f"{DOCS} has no place for {name}"
    DOCS.write_text(block.sub(lambda found: f"{found[1]}{lines}\n{found[2]}", before))


def until_shown(cluster: Cluster, name: str, *words: str, has: Callable[[str], bool]) -> str:
    wait_until(lambda: has(cluster.kubectl(*words).stdout), DEADLINE, f"what is expected of kubectl {' '.join(words)}")
    return show(cluster, name, *words)


def set_unavailable(cluster: Cluster, node: str) -> None:
    """What a cloud's controller does."""
    cluster.api.ask("PATCH", f"/api/v1/nodes/{node}/status", {"status": {"conditions": [
        {"type": NETWORK_UNAVAILABLE, "status": "True", "reason": "NoRouteCreated", "message": "by a test"}]}},
        "application/strategic-merge-patch+json")


def taints(cluster: Cluster, node: str) -> list[str]:
    return [taint["key"] for taint in cluster.api.get(f"/api/v1/nodes/{node}")["spec"].get("taints") or []]


@pytest.fixture
def bad_peer(cluster: Cluster) -> Iterator[str]:
    """A node whose NodeConfig has a peer that BIRD can't have."""
    node = cluster.worker(1).name
    path = f"{NODE_CONFIGS}/{node}"
    peers = cluster.api.get(path)["spec"]["bgp"]["peers"]
    wrong = {"name": "tor-b", "address": "2001:db8:ffff::b", "asn": 64512,
             "passwordSecretRef": {"name": "tor", "key": "md5"}}
    cluster.api.merge(path, {"spec": {"bgp": {"peers": [*peers, wrong]}}})
    yield node
    cluster.api.merge(path, {"spec": {"bgp": {"peers": peers}}})


def test_R6_network_unavailable_is_false_on_every_node(cluster: Cluster) -> None:
    for worker in cluster.workers:
        wait_until(lambda worker=worker: condition(cluster.node(worker.name), NETWORK_UNAVAILABLE) == "False",  # type: ignore[misc]
                   DEADLINE, f"the condition of {worker.name}")


def test_R6_whoever_sets_it_true_it_is_false_again_and_the_taint_goes(cluster: Cluster) -> None:
    node = cluster.worker(2).name
    for _ in range(3):
        set_unavailable(cluster, node)
        wait_until(lambda: condition(cluster.node(node), NETWORK_UNAVAILABLE) == "False", DEADLINE, "False again")
    wait_until(lambda: not taints(cluster, node), DEADLINE, "a node without taints")
    assert condition(cluster.node(node), "Ready") == "True"


def test_R6_an_agent_that_ends_takes_nothing_away_and_one_that_starts_lets_pods_in_again(
        cluster: Cluster, namespace: Namespace) -> None:
    """A cluster of one node could never come back if its agent's end kept pods away, its own among them."""
    node = cluster.worker(2).node
    node.stop_agent()
    assert condition(cluster.node(node.name), NETWORK_UNAVAILABLE) == "False"
    assert condition(cluster.node(node.name), "Ready") == "True"
    set_unavailable(cluster, node.name)
    wait_until(lambda: TAINT in taints(cluster, node.name), DEADLINE, "the taint")
    namespace.create(objects.pod("later", objects.pod_spec(
        objects.pause(), nodeSelector={"kubernetes.io/hostname": node.name})))
    node.start_agent()
    namespace.await_pod("later")
    assert condition(cluster.node(node.name), NETWORK_UNAVAILABLE) == "False"
    assert TAINT not in taints(cluster, node.name)


def test_kubectl_get_nodeconfigs_says_what_an_operator_asks_first(cluster: Cluster) -> None:
    text = until_shown(cluster, "get", "get", "nodeconfigs",
                       has=lambda text: text.count("True") == 2 and text.count("1/1") == 2)
    head, first, _ = text.splitlines()
    assert head.split() == ["NAME", "IPV6", "IPV4", "ASN", "PEERS", "UP", "READY", "AGE"]
    assert first.split()[0] == cluster.worker(1).name


def test_a_bad_peer_is_named_in_status_and_event_and_the_others_stay_up(
        cluster: Cluster, namespace: Namespace, bad_peer: str) -> None:
    namespace.run(objects.pod("some", objects.pod_spec(objects.pause(), node=bad_peer)))
    until_shown(cluster, "bad-peer", "get", "nodeconfig", bad_peer, has=lambda text: "1/2" in text)
    text = until_shown(cluster, "nodeconfig", "describe", "nodeconfig", bad_peer, has=lambda text: (
        "PeersLeftOut" in text.partition("Conditions:")[2] and "PeersLeftOut" in text.partition("Events:")[2]))
    peers = text.partition("Peers Up:")[0].rpartition("Peers:")[2]
    assert "tor-b" in peers
    assert "LeftOut" in peers
    assert "Established" in peers


def test_I19_a_wrong_annotation_is_named_where_kubectl_describe_shows_it(
        cluster: Cluster, namespace: Namespace) -> None:
    namespace.create(objects.pod("wrong", objects.pod_spec(objects.pause(), node=cluster.worker(1).name),
                                 annotations={"flock.fritzlab.net/ipv4": "maybe"}))
    words = ("describe", "pod", "wrong", "--namespace", namespace.name)
    text = until_shown(cluster, "pod", *words, has=lambda text: "InvalidNetworkAnnotation" in text
                       and "FailedCreatePodSandBox" in text)
    own = next(line for line in text.splitlines() if "InvalidNetworkAnnotation" in line)
    assert "flock.fritzlab.net/ipv4" in own
    assert "maybe" in own
    assert "true" in own
    namespace.delete("Pod", "wrong", grace=0)


def test_a_refusal_that_kubelet_repeats_is_one_event(cluster: Cluster, namespace: Namespace) -> None:
    node = cluster.worker(1)
    namespace.create(objects.pod("outside", objects.pod_spec(objects.pause(), node=node.name),
                                 annotations={"flock.fritzlab.net/ipv4": "192.0.2.77"}))
    path = namespace.path("/api/v1/{}/events") + "?fieldSelector=involvedObject.name=outside,source=flock"
    wait_until(lambda: sum(event["count"] for event in cluster.api.items(path)) >= 2, 60.0, "a repeated refusal")
    (event,) = cluster.api.items(path)
    assert "192.0.2.77" in event["message"]
    namespace.delete("Pod", "outside", grace=0)


def test_cidrs_that_two_nodes_claim_are_told_on_both(cluster: Cluster) -> None:
    older, younger = cluster.worker(1), cluster.worker(2)
    shared = next(older.node.plan.cidrs[Family.IPV4].subnets(new_prefix=28))
    path = f"{NODE_CONFIGS}/{younger.name}"
    before = cluster.api.get(path)["spec"]["cidr4"]
    cluster.api.merge(path, {"spec": {"cidr4": [*before, str(shared)]}})
    try:
        for worker in (older, younger):
            wait_until(lambda worker=worker: condition(  # type: ignore[misc]
                cluster.api.get(f"{NODE_CONFIGS}/{worker.name}"), "CIDRsDisjoint") == "False", DEADLINE,
                f"the condition of {worker.name}")
        entry = next(one for one in cluster.api.get(path)["status"]["addresses"] if one["family"] == "ipv4")
        assert entry["free"] < 255, "the younger counts nothing of it as its own"
    finally:
        cluster.api.merge(path, {"spec": {"cidr4": before}})
    for worker in (older, younger):
        wait_until(lambda worker=worker: condition(  # type: ignore[misc]
            cluster.api.get(f"{NODE_CONFIGS}/{worker.name}"), "CIDRsDisjoint") == "True", DEADLINE,
            f"the condition of {worker.name} again")
