"""What flock writes to the API of a real cluster: the Node's condition, the NodeConfig's status, Events.

FLOCK_SHOW names a folder that gets what kubectl printed, for docs/kubernetes.md.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.kube import objects
from tests.kube.namespaces import Namespace

from flock.testing.wait import wait_until
from flock_lab.kube.cluster import Cluster, condition
from flock_lab.kube.networks import NODE_CONFIGS

pytestmark = [pytest.mark.cluster, pytest.mark.flock_alone]

NETWORK_UNAVAILABLE = "NetworkUnavailable"
DEADLINE = 30.0


def show(cluster: Cluster, name: str, *words: str) -> str:
    """What kubectl prints; kept, where somebody wants it for the docs."""
    text = cluster.kubectl(*words).stdout
    if folder := os.environ.get("FLOCK_SHOW"):
        Path(folder, f"{name}.txt").write_text(f"$ kubectl {' '.join(words)}\n{text}")
    return text


def until_shown(cluster: Cluster, name: str, *words: str, has: Callable[[str], bool]) -> str:
    wait_until(lambda: has(cluster.kubectl(*words).stdout), DEADLINE, f"what is expected of kubectl {' '.join(words)}")
    return show(cluster, name, *words)


def set_unavailable(cluster: Cluster, node: str) -> None:
    """What a cloud's controller does."""
    cluster.api.ask("PATCH", f"/api/v1/nodes/{node}/status", {"status": {"conditions": [
        {"type": NETWORK_UNAVAILABLE, "status": "True", "reason": "NoRouteCreated", "message": "by a test"}]}},
        "application/strategic-merge-patch+json")


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
    wait_until(lambda: not (cluster.api.get(f"/api/v1/nodes/{node}")["spec"].get("taints") or []), DEADLINE,
               "a node without taints")
    assert condition(cluster.node(node), "Ready") == "True"


def test_kubectl_get_nodeconfigs_says_what_an_operator_asks_first(cluster: Cluster) -> None:
    text = until_shown(cluster, "get", "get", "nodeconfigs", has=lambda text: text.count("True") == 2)
    head, first, _ = text.splitlines()
    assert head.split() == ["NAME", "IPV6", "IPV4", "ASN", "PEERS", "UP", "READY", "AGE"]
    assert first.split()[0] == cluster.worker(1).name
    assert "2/2" in first or "1/1" in first


def test_a_bad_peer_is_named_in_status_and_event_and_the_others_stay_up(cluster: Cluster, bad_peer: str) -> None:
    words = ("describe", "nodeconfig", bad_peer)
    text = until_shown(cluster, "nodeconfig", *words, has=lambda text: "PeersLeftOut" in text and "Events:" in text
                       and "LeftOut" in text.partition("Peers:")[2])
    assert "tor-b" in text
    assert "Established" in text
    until_shown(cluster, "bad-peer", "get", "nodeconfig", bad_peer, has=lambda text: "/" in text)
    wait_until(lambda: "PeersLeftOut" in cluster.kubectl(*words).stdout.partition("Events:")[2], DEADLINE, "the Event")
    show(cluster, "nodeconfig", *words)


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
