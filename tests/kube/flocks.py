"""What tests ask of flock on a cluster's nodes, and change of it: agents, NodeConfigs, routes."""

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from tests.kube.objects import Document

from flock.model.family import Family, Network
from flock.model.ownership import ALLOCATIONS_DIR
from flock.testing.wait import wait_until
from flock_lab.kube.cluster import Cluster
from flock_lab.kube.networks import NODE_CONFIGS
from flock_lab.node import Node


def spec_of(cluster: Cluster, node: str) -> Document:
    """The spec of a node's NodeConfig."""
    found: Document = cluster.api.get(f"{NODE_CONFIGS}/{node}")["spec"]
    return found


def change_spec(cluster: Cluster, node: str, changes: Mapping[str, object]) -> None:
    """Merge into the spec of a NodeConfig; None removes a field."""
    cluster.api.merge(f"{NODE_CONFIGS}/{node}", {"spec": dict(changes)})


def make_node_config(cluster: Cluster, node: str, spec: Document) -> None:
    cluster.api.create(NODE_CONFIGS, {
        "apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig", "metadata": {"name": node}, "spec": spec})


def put_spec(cluster: Cluster, node: str, spec: Document) -> None:
    """Make a NodeConfig's spec that one and no other, whether there is a NodeConfig or not."""
    now = cluster.api.find(f"{NODE_CONFIGS}/{node}")
    if now is None:
        make_node_config(cluster, node, spec)
    elif now["spec"] != spec:
        cluster.api.ask("PUT", f"{NODE_CONFIGS}/{node}", {**now, "spec": spec})


@contextmanager
def kept_spec(cluster: Cluster, node: str) -> Iterator[Document]:
    """Whatever becomes of a NodeConfig inside, it is as before afterwards, and its node's summaries too."""
    before = spec_of(cluster, node)
    try:
        yield copy.deepcopy(before)
    finally:
        put_spec(cluster, node, before)
        at = next(worker.node for worker in cluster.workers if worker.name == node)
        await_summaries(at, [*before["cidr6"], *before["cidr4"]])


def restart_agent(node: Node) -> None:
    """End the agent in peace and start another, which serves when this returns."""
    node.stop_agent()
    node.start_agent()
    node.wait_ready()


def said(node: Node, what: str) -> list[Document]:
    """The lines of the agent's log since its start whose message holds ``what``."""
    lines = [line for line in node.agent_log().splitlines() if line.startswith("{")]
    return [entry for entry in map(json.loads, lines) if what in entry["event"]]


def allocations(node: Node) -> list[Document]:
    """What the store holds for pods of this node, as files."""
    return [json.loads(path.read_text()) for path in sorted(node.path(ALLOCATIONS_DIR).glob("*.json"))]


def summaries(node: Node) -> set[str]:
    """The node's blackholes of flock's protocols, as iproute2 writes them."""
    return {line.split()[1] for family in Family
            for line in node.run("ip", f"-{family.suffix}", "route", "show", "type", "blackhole").stdout.splitlines()
            if "proto 71" in line or "proto 70" in line}


def await_summaries(node: Node, cidrs: Iterable[Network | str]) -> None:
    wanted = set(map(str, cidrs))
    wait_until(lambda: summaries(node) == wanted, 20.0, f"the summaries {wanted} of {node.name}")
