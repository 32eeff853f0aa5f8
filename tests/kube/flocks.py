"""What tests ask of flock on a cluster's nodes, and change of it: agents, NodeConfigs, routes."""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.kube.objects import Document

from flock.model.family import Family, Network
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


@contextmanager
def kept_spec(cluster: Cluster, node: str) -> Iterator[Document]:
    """Whatever becomes of a NodeConfig inside, it is as before afterwards, and its node's summaries too."""
    before = spec_of(cluster, node)
    try:
        yield copy.deepcopy(before)
    finally:
        cluster.api.delete(f"{NODE_CONFIGS}/{node}")
        make_node_config(cluster, node, before)
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
    return [entry for entry in map(json.loads, lines) if what in entry.get("message", "")]


def summaries(node: Node) -> set[str]:
    """The node's blackholes of flock's protocols, as iproute2 writes them."""
    return {line.split()[1] for family in Family
            for line in node.run("ip", f"-{family.suffix}", "route", "show", "type", "blackhole").stdout.splitlines()
            if "proto 71" in line or "proto 70" in line}


def await_summaries(node: Node, cidrs: Sequence[str]) -> None:
    wait_until(lambda: summaries(node) == set(cidrs), 20.0, f"the summaries {cidrs} of {node.name}")


def router_knows(cluster: Cluster, network: Network | str) -> bool:
    """Whether the router has a route to exactly that network."""
    family = 6 if ":" in str(network) else 4
    return bool(cluster.lab.router.run("ip", f"-{family}", "route", "show", "exact", str(network)).stdout.strip())


def await_router(cluster: Cluster, network: Network | str, *, knows: bool = True) -> None:
    wait_until(lambda: router_knows(cluster, network) is knows, 20.0,
               f"{network} {'known to' if knows else 'gone from'} the router")
