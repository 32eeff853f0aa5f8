"""Allocations that outlive their pods, with kubelet and containerd down, and those that only look so (R5, R11).

Everything is prepared at once, then the agent starts, as after an upgrade in the middle of it: its first look is that
of R5, and the next comes after a minute (R11), which nobody waits for here: another start looks again.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from tests.kube import objects
from tests.kube.flocks import allocations, said
from tests.kube.namespaces import Namespace, RunningPod, fetch_from
from tests.kube.objects import Document

from flock.model.family import FAMILIES
from flock.model.ownership import ALLOCATIONS_DIR, RELEASED_DIR
from flock.testing.wait import wait_until
from flock_lab.kube.cluster import Cluster, condition
from flock_lab.kube.documents import STATIC_PODS
from flock_lab.kube.worker import Worker
from flock_lab.node import Node
from flock_lab.trace import ping

pytestmark = [pytest.mark.cluster, pytest.mark.flock_alone]

NAME = "node-2"
KINDS = ("forced", "renamed", "completed", "lives", "damaged", "unlinked")


@dataclass(slots=True, kw_only=True)
class Aftermath:
    """The node after all that has happened to it; ``pods`` are as they were before."""

    cluster: Cluster
    worker: Worker
    namespace: Namespace
    pods: dict[str, RunningPod]
    rested: RunningPod
    entries: dict[str, Document] = field(default_factory=dict)
    down: bool = True

    @property
    def node(self) -> Node:
        return self.worker.node

    def bring_back(self) -> None:
        """containerd and kubelet, unless they are there."""
        if self.down:
            self.worker.start_containerd()
            self.worker.await_containerd()
            self.worker.start_kubelet()
        self.down = False
        self.cluster.await_node(NAME)

    def reaches(self, name: str) -> bool:
        """Whether the world gets an answer from a pod on each of its families."""
        pod = self.pods[name]
        return all(ping(self.cluster.lab.router, address).received for address in pod.addresses)

    def removed(self) -> dict[str, str]:
        """The orphans that the agent says it removed since its start, by pod, and why."""
        return {entry["pod"].partition("/")[2]: entry["why"] for entry in said(self.node, "orphan removed")}

    def known(self) -> set[str]:
        """The pods that the store has an allocation for."""
        return {entry["pod"] for entry in allocations(self.node)}

    def resting(self) -> set[str]:
        """The addresses in quarantine."""
        files = self.node.path(RELEASED_DIR).glob("*.json")
        return {entry[key] for entry in (json.loads(path.read_text()) for path in files) for key in ("ip6", "ip4")}


def age(node: Node) -> None:
    """Let every ADD be an hour old; the agent is not running."""
    for path in node.path(ALLOCATIONS_DIR).glob("*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "created": 0.0}))


@pytest.fixture(scope="module")
def aftermath(cluster: Cluster, shared_namespace: Namespace) -> Iterator[Aftermath]:
    worker, namespace = cluster.worker(2), shared_namespace
    static = objects.pod("static", objects.pod_spec(objects.web()))
    static["metadata"]["namespace"] = namespace.name
    file = worker.node.path(f"{STATIC_PODS}/orphans.json")
    file.write_text(json.dumps(static))
    rested, *others = namespace.run(*(
        objects.pod(name, objects.pod_spec(objects.web(), node=NAME)) for name in ("rested", *KINDS)))
    pods = {pod.name: pod for pod in others} | {"static": namespace.await_pod(f"static-{NAME}")}
    namespace.delete("Pod", "rested")
    wait_until(lambda: namespace.find("Pod", "rested") is None, 30.0, "the end of the pod whose address rests")
    made = Aftermath(cluster=cluster, worker=worker, namespace=namespace, pods=pods, rested=rested)
    for daemon in ("kubelet", "containerd"):
        worker.kill(daemon)
    try:
        _break(made)
        yield made
    finally:
        file.unlink(missing_ok=True)
        made.bring_back()


def _break(made: Aftermath) -> None:
    """What happens while neither kubelet nor containerd nor the agent is there."""
    namespace, node = made.namespace, made.node
    node.stop_agent()
    made.entries = {entry["pod"]: entry for entry in allocations(node)}
    for name in ("forced", "renamed"):
        namespace.delete("Pod", name, grace=0)
    namespace.create(objects.pod("renamed", objects.pod_spec(objects.web(), node=NAME)))
    made.cluster.api.merge(namespace.path("/api/v1/{}/pods") + "/completed/status", {"status": {"phase": "Succeeded"}})
    damaged = made.entries["damaged"]
    node.path(ALLOCATIONS_DIR / f"{damaged['container_id']}:{damaged['ifname']}.json").unlink()
    node.run("ip", "link", "delete", made.entries["unlinked"]["host_ifname"])
    age(node)
    node.start_agent()
    node.wait_ready()


def test_R5_force_deleted_renamed_and_completed_pods_lose_their_addresses(aftermath: Aftermath) -> None:
    wait_until(lambda: len(aftermath.removed()) == 3, 30.0, "three orphans removed")
    assert aftermath.removed() == {
        "forced": "its pod is gone from this node",
        "renamed": "a pod of this name has another UID",
        "completed": "its pod has ended",
    }
    assert not aftermath.known() & {"forced", "renamed", "completed"}
    links = aftermath.node.run("ip", "-brief", "link").stdout
    routes = "".join(aftermath.node.run("ip", f"-{family.suffix}", "route").stdout for family in FAMILIES)
    for name in ("forced", "renamed", "completed"):
        assert aftermath.entries[name]["host_ifname"] not in links
        assert not any(f"{address} " in routes for address in aftermath.pods[name].addresses)
        assert {str(address) for address in aftermath.pods[name].addresses} <= aftermath.resting()
        assert not aftermath.reaches(name)


def test_R5_running_pods_and_static_pods_are_no_orphans(aftermath: Aftermath) -> None:
    for name in ("lives", "static"):
        assert aftermath.reaches(name)
        for address in aftermath.pods[name].addresses:
            assert fetch_from(aftermath.cluster.lab.router, address, objects.PORT, "/hostname").startswith(name)
    static = aftermath.pods["static"].name
    assert aftermath.entries[static]["uid"] != aftermath.pods["static"].uid, "it is the mirror pod's hash"
    assert {"lives", static} <= aftermath.known()


def test_a_store_entry_without_an_interface_ends_at_the_start(aftermath: Aftermath) -> None:
    assert said(aftermath.node, "allocation released: its interface is gone")[0]["pod"].endswith("/unlinked")
    assert "unlinked" not in aftermath.known()


def test_R5_an_interface_without_a_store_entry_is_its_pods_again_and_ends_with_it(aftermath: Aftermath) -> None:
    assert said(aftermath.node, "allocation rebuilt from its interface")
    wait_until(lambda: "damaged" in aftermath.known(), 20.0, "a rebuilt allocation that is known by its addresses")
    assert aftermath.reaches("damaged")
    aftermath.namespace.delete("Pod", "damaged", grace=0)
    aftermath.node.stop_agent()
    age(aftermath.node)
    aftermath.node.start_agent()
    aftermath.node.wait_ready()
    wait_until(lambda: "damaged" in aftermath.removed(), 30.0, "its removal")
    assert not aftermath.reaches("damaged")


def test_quarantine_outlives_the_agent(aftermath: Aftermath) -> None:
    assert {str(address) for address in aftermath.rested.addresses} <= aftermath.resting()


def test_kubelet_and_containerd_that_come_back_find_a_node_that_works(aftermath: Aftermath) -> None:
    """Their late DELs of what is gone succeed, and the pods that are wanted start."""
    resting = aftermath.resting()
    aftermath.bring_back()
    again = aftermath.namespace.await_pod("renamed", deadline=90.0)
    assert not {str(address) for address in again.addresses} & resting, "what rests is not given"
    assert RunningPod.of(aftermath.namespace.find("Pod", "lives") or {}).addresses == aftermath.pods["lives"].addresses
    assert condition(aftermath.cluster.node(NAME), "Ready") == "True"
