"""The resources that an agent follows: where each is, and what is kept of it. Pure.

Invariant: what several thousand objects have in common (labels, names of nodes and images) is kept once, and of
annotations only flock's own: the rest of them is the larger part of many objects.
"""

from collections.abc import Mapping
from functools import partial
from typing import Generic, Protocol, TypeVar

import msgspec

from flock.api.names import API_GROUP, API_VERSION
from flock.api.network_policy import NetworkPolicy, parse_network_policy
from flock.api.node_config import NodeConfig, parse_node_config
from flock.api.objects import (
    MIRROR_HASH,
    NamespaceView,
    NodeView,
    PodView,
    namespace_view,
    node_view,
    pod_view,
)
from flock.api.peer_pod import PeerPod, RawPeerPod, peer_pod
from flock.api.raw import RawMeta, RawNamespace, RawNode, RawPod
from flock.cluster.lines import Oversized
from flock.cluster.shared import Shared
from flock.cluster.watch import Event, Item, Page, Reader

V = TypeVar("V")

PODS = "/api/v1/pods"
NAMESPACES = "/api/v1/namespaces"
NODES = "/api/v1/nodes"
NODE_CONFIGS = f"/apis/{API_VERSION}/nodeconfigs"
POLICIES = "/apis/networking.k8s.io/v1/networkpolicies"

PEERS_PACE = 0.1
"""Seconds. Waking up for each pod of a busy cluster costs an agent more than reading it (a third of the whole, at 20
changes a second); the pods of the agent's own node come without delay."""

_OWN = f"{API_GROUP}/"


class RawObject(msgspec.Struct):
    """An object whose inside is parsed by whoever knows its kind."""

    apiVersion: str | None = None  # noqa: N815 - the API's spelling
    kind: str | None = None
    metadata: RawMeta = msgspec.field(default_factory=RawMeta)
    spec: object = None


class Reads(Protocol[V]):
    """A ``watch.Reader`` of any resource with what this one keeps."""

    kind: str

    def page(self, data: bytes) -> Page[V]: ...

    def one(self, data: bytes) -> Item[V]: ...

    def line(self, data: bytes | Oversized) -> Event[V]: ...


class Resource(Generic[V]):
    """What one informer follows. ``name`` is how logs and health call it; changes that come within ``pace`` seconds of
    others may come together.
    """

    def __init__(self, name: str, path: str, reader: Reads[V], pace: float = 0.0, **params: str) -> None:
        self.name = name
        self.pace = pace
        self.path = path
        self.reader = reader
        self.params: Mapping[str, str] = params


def pods_of(node: str) -> Resource[PodView]:
    """The pods of one node."""
    shared = Shared()
    return Resource("pods", PODS, Reader("Pod", RawPod, partial(_pod, shared)), fieldSelector=f"spec.nodeName={node}")


def all_pods() -> Resource[PeerPod]:
    """Every pod of the cluster, narrow."""
    return Resource("all-pods", PODS, Reader("Pod", RawPeerPod, partial(_peer, Shared())), PEERS_PACE)


def namespaces() -> Resource[NamespaceView]:
    """Every namespace."""
    return Resource("namespaces", NAMESPACES, Reader("Namespace", RawNamespace, _namespace))


def nodes() -> Resource[NodeView]:
    """Every node."""
    return Resource("nodes", NODES, Reader("Node", RawNode, node_view))


def node_configs() -> Resource[NodeConfig]:
    """Every NodeConfig."""
    return Resource("nodeconfigs", NODE_CONFIGS, Reader("NodeConfig", RawObject, _node_config))


def policies() -> Resource[NetworkPolicy]:
    """Every NetworkPolicy."""
    return Resource("networkpolicies", POLICIES, Reader("NetworkPolicy", RawObject, _policy))


def _pod(shared: Shared, raw: RawPod) -> PodView:
    view = pod_view(raw)
    return msgspec.structs.replace(
        view,
        labels=shared.mapping(view.labels),
        annotations=shared.mapping(_own_annotations(view.annotations)),
        node_name=shared.part(view.node_name),
        image=shared.part(view.image),
        image_id=shared.part(view.image_id),
    )


def _peer(shared: Shared, raw: RawPeerPod) -> PeerPod:
    view = peer_pod(raw)
    return msgspec.structs.replace(
        view,
        namespace=shared.part(view.namespace),
        labels=shared.mapping(view.labels),
        node_name=shared.part(view.node_name),
        ports=shared.part(view.ports),
    )


def _namespace(raw: RawNamespace) -> NamespaceView:
    view = namespace_view(raw)
    return msgspec.structs.replace(view, annotations=_own_annotations(view.annotations))


def _node_config(raw: RawObject) -> NodeConfig:
    """Unknown fields and bad peers don't make it unusable: an older agent may meet a newer object."""
    meta = raw.metadata
    found = parse_node_config(
        {"apiVersion": raw.apiVersion, "kind": raw.kind, "metadata": {"name": meta.name}, "spec": raw.spec},
        strict=False,
    )
    return msgspec.structs.replace(
        found, uid=meta.uid or "", generation=meta.generation or 0, created=meta.creationTimestamp or "")


def _policy(raw: RawObject) -> NetworkPolicy:
    """What this version doesn't understand of it allows nothing."""
    meta = raw.metadata
    head = {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
    return parse_network_policy(
        {"apiVersion": raw.apiVersion, "kind": raw.kind, "metadata": head, "spec": raw.spec}, strict=False)


def _own_annotations(annotations: Mapping[str, str]) -> Mapping[str, str]:
    return {key: value for key, value in annotations.items() if key.startswith(_OWN) or key == MIRROR_HASH}
