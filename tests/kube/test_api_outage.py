"""The API server gone for a minute, cut off for a moment, and an agent's credentials that end meanwhile.

What kubelet says of its runtime's network is read in kubelet's log: that a Node's lease runs out while there is nobody
to renew it at is Kubernetes' own affair.
"""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_address

import pytest
from tests.kube import objects
from tests.kube.credentials import BoundTokens, put_token, use_token_file
from tests.kube.flocks import allocations, restart_agent
from tests.kube.namespaces import Namespace, RunningPod, fetch_from
from tests.kube.objects import Document
from tests.kube.runtime import calls_seen, kill

from flock.testing.wait import wait_until
from flock_lab.kube.cluster import Cluster
from flock_lab.kube.control import API_SERVER
from flock_lab.kube.documents import STATIC_PODS
from flock_lab.kube.plan import PORT
from flock_lab.kube.worker import Worker
from flock_lab.node import Node
from flock_lab.trace import Stream

pytestmark = [pytest.mark.cluster, pytest.mark.flock_alone, pytest.mark.timeout(600)]

NOT_READY = "Container runtime network not ready"
OUTAGE = 60.0
LONG_OUTAGE = 300.0
RATE = 10
AGNHOST = "agnhost"
PAUSE = "pause"


@pytest.fixture
def namespace(shared_namespace: Namespace) -> Namespace:
    return shared_namespace


def followed(node: Node) -> dict[str, Document]:
    """How the agent follows each resource of the API."""
    status = node.run(sys.executable, "-m", "flock.cli.main", "status", "-o", "json").stdout
    found: dict[str, Document] = json.loads(status)["agent"]["api"]
    return found


def lists(node: Node) -> dict[str, int]:
    return {name: state["lists"] for name, state in followed(node).items()}


def await_followed(node: Node, deadline: float = 60.0) -> None:
    wait_until(lambda: all(state["complete"] and not state["failures"] for state in followed(node).values()), deadline,
               f"the API server followed again by {node.name}")


@contextmanager
def network_always_ready(worker: Worker) -> Iterator[None]:
    """kubelet doesn't find the runtime's network wanting meanwhile."""
    log = worker.node.log("kubelet")
    before = log.stat().st_size
    yield
    with open(log, "rb") as file:
        file.seek(before)
        assert NOT_READY not in file.read().decode(errors="replace")


# Moments


def test_watches_that_break_are_resumed_without_a_list(cluster: Cluster, namespace: Namespace) -> None:
    worker = cluster.worker(2)
    before = followed(worker.node)
    cut(worker.node)
    wait_until(lambda: all(state["watches"] > before[name]["watches"]
                           for name, state in followed(worker.node).items()), 30.0, "new watches")
    await_followed(worker.node)
    namespace.run(objects.pod("broken", objects.pod_spec(objects.pause(), node=worker.name)))
    assert lists(worker.node) == {name: state["lists"] for name, state in before.items()}


def cut(node: Node) -> None:
    """Break the node's connections to the API server."""
    node.run("ss", "--kill", "--no-header", "dport", "=", f":{PORT}")


def test_a_token_that_is_void_stops_nothing_for_longer_than_its_file_has_no_other(
        cluster: Cluster, namespace: Namespace, tokens: BoundTokens) -> None:
    worker = cluster.worker(2)
    before = lists(worker.node)
    second = tokens.issue("second")
    tokens.revoke("first")

    def refused() -> bool:
        # The API server believes a token for ten seconds after it has looked.
        cut(worker.node)
        return any("401" in state["error"] for state in followed(worker.node).values())
    wait_until(refused, 30.0, "an agent whose token is void")
    put_token(worker.node, second)
    await_followed(worker.node)
    namespace.run(objects.pod("void", objects.pod_spec(objects.pause(), node=worker.name)))
    assert lists(worker.node) == before


def test_a_frozen_API_server_costs_no_list(cluster: Cluster, namespace: Namespace) -> None:
    worker = cluster.worker(2)
    pod, = namespace.run(objects.pod("frozen", objects.pod_spec(objects.web(), node=worker.name)))
    before = lists(worker.node)
    cluster.control.freeze(API_SERVER)
    try:
        kill(worker.node, pod, AGNHOST)
        wait_until(lambda: serves(cluster, pod), 30.0, "the restarted container")
    finally:
        cluster.control.thaw(API_SERVER)
    namespace.run(objects.pod("thawed", objects.pod_spec(objects.pause(), node=worker.name)))
    assert lists(worker.node) == before


def test_an_agent_that_restarts_never_makes_its_node_not_ready(cluster: Cluster) -> None:
    """containerd asks for STATUS whenever kubelet looks, every five seconds."""
    worker = cluster.worker(2)
    before = ready_since(cluster, worker)
    with network_always_ready(worker):
        for stop in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
            if stop is signal.SIGTERM:
                worker.node.stop_agent()
            else:
                worker.node.kill_agent()
            await_status(worker.node)
            worker.node.start_agent()
            worker.node.wait_ready()
    assert ready_since(cluster, worker) == before


def await_status(node: Node) -> None:
    """Until kubelet has looked at a runtime whose agent isn't there."""
    with calls_seen(node) as calls:
        wait_until(lambda: any(call.startswith("STATUS") for call in calls()), 20.0, "a STATUS without an agent")
        assert set(calls()) == {"STATUS 0"}


def ready_since(cluster: Cluster, worker: Worker) -> Document:
    found = cluster.node(worker.name) or {}
    entry, = [one for one in found["status"]["conditions"] if one["type"] == "Ready"]
    return {key: entry[key] for key in ("status", "lastTransitionTime")}


# A minute


@pytest.fixture
def tokens(cluster: Cluster) -> Iterator[BoundTokens]:
    """The second node's agent is who it is in ``deploy``, with a token from a file."""
    node = cluster.worker(2).node
    before = node.source
    made = BoundTokens.of(cluster)
    put_token(node, made.issue("first"))
    use_token_file(node)
    restart_agent(node)
    yield made
    node.source = before
    restart_agent(node)
    made.close()


@pytest.fixture
def static(cluster: Cluster, namespace: Namespace) -> RunningPod:
    """A static pod of the second node, whose manifest the test removes."""
    worker = cluster.worker(2)
    document = objects.pod("static", objects.pod_spec(objects.pause()))
    document["metadata"]["namespace"] = namespace.name
    worker.node.path(f"{STATIC_PODS}/outage.json").write_text(json.dumps(document))
    return namespace.await_pod(f"static-{worker.name}")


def serves(cluster: Cluster, pod: RunningPod) -> bool:
    """Whether a pod's web server answers the world on each of its families."""
    try:
        return all(fetch_from(cluster.lab.router, address, objects.PORT, "/hostname") == pod.name
                   for address in pod.addresses)
    except OSError:
        return False


def place(node: Node, pod: RunningPod) -> Document | None:
    """The allocation of a pod."""
    return next((one for one in allocations(node) if one["pod"] == pod.name), None)


@pytest.mark.parametrize("seconds", [OUTAGE, pytest.param(LONG_OUTAGE, marks=pytest.mark.soak)])
def test_without_an_API_server_known_pods_start_and_stop_and_nothing_is_torn_down(
        cluster: Cluster, namespace: Namespace, tokens: BoundTokens, static: RunningPod, seconds: float) -> None:
    here, there = (cluster.worker(number) for number in (1, 2))
    near, far, crashing, dying = namespace.run(*(
        objects.pod(name, objects.pod_spec(objects.web(), node=worker.name))
        for name, worker in (("near", here), ("far", there), ("crashing", there), ("dying", there))))
    second = tokens.issue("second")
    streams = [Stream(cluster.lab.router, address, count=int(seconds * RATE), interval=1 / RATE)
               for pod in (near, far) for address in pod.addresses]
    with network_always_ready(here), network_always_ready(there):
        tokens.revoke("first")
        cluster.control.kill_apiserver()
        wait_until(lambda: all(state["failures"] for state in followed(there.node).values()), 30.0,
                   "an agent that knows that the API server is gone")
        kill(there.node, crashing, AGNHOST)
        anew = restart_a_sandbox(there.node, dying)
        there.node.path(f"{STATIC_PODS}/outage.json").unlink()
        wait_until(lambda: place(there.node, static) is None, 30.0, "the DEL of a pod that ends")
        for pod in (crashing, anew):
            wait_until(lambda pod=pod: serves(cluster, pod), 30.0, f"{pod.name} again")  # type: ignore[misc]
        put_token(there.node, second)
        restart_without_api(here.node)
        assert all(stream.running for stream in streams), "the outage was shorter than what it was for"
        assert [stream.finish().lost for stream in streams] == [0] * len(streams)
        cluster.control.start_apiserver()
        cluster.control.await_api()
        for worker in (here, there):
            namespace.create(objects.pod(f"after-{worker.name}", objects.pod_spec(objects.web(), node=worker.name)))
        await_followed(here.node)
        await_followed(there.node)
    wait_until(lambda: RunningPod.of(namespace.find("Pod", "dying") or {}).addresses == anew.addresses, 60.0,
               "the addresses of the new sandbox in the API")
    for worker in (here, there):
        cluster.await_node(worker.name)
        assert serves(cluster, namespace.await_pod(f"after-{worker.name}"))
    for pod in (near, far):
        assert RunningPod.of(namespace.find("Pod", pod.name) or {}).addresses == pod.addresses
        assert serves(cluster, pod)


def restart_a_sandbox(node: Node, pod: RunningPod) -> RunningPod:
    """Its DEL and another ADD of the same pod; the pod with its new addresses."""
    before = place(node, pod)
    assert before is not None
    kill(node, pod, PAUSE)
    wait_until(lambda: (place(node, pod) or before)["container_id"] != before["container_id"], 60.0,
               "another sandbox of a pod that the agent knows")
    now = place(node, pod) or {}
    return replace(pod, addresses=tuple(map(ip_address, (now["ip6"], now["ip4"]))))


def restart_without_api(node: Node) -> None:
    """An agent that has never heard of its NodeConfig: it keeps what is there."""
    before = allocations(node)
    node.kill_agent()
    await_status(node)
    node.start_agent()
    node.wait_ready()
    assert node.status().code == 0
    assert allocations(node) == before
