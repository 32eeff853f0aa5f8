"""Pods, Namespaces and Nodes as flock needs them: narrow frozen views of what Kubernetes or a manifest says. Pure.

Invariant: only the fields that are used are looked at, by type; whatever else an object holds, however deep, is neither
read nor kept. A view that exists has a valid name.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from flock.api.named_ports import NamedPort, named_ports
from flock.api.names import check_head, parse_object_name, subject_of
from flock.api.problems import ABSENT, InvalidObject, Problem
from flock.api.raw import (
    RawContainer,
    RawNamespace,
    RawNode,
    RawNodeSpec,
    RawNodeStatus,
    RawPod,
    RawPodSpec,
    RawPodStatus,
)
from flock.api.reader import Notes, Section

T = TypeVar("T")

MIRROR_HASH = "kubernetes.io/config.hash"
"""A mirror pod's annotation: the UID under which the runtime knows the static pod (kubelet, pkg/kubelet/types)."""

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""The label that the API server puts on every namespace, with its name."""

_DIGEST = re.compile(r"(?:^|@)sha256:([0-9a-f]{64})\Z")


class PodView(msgspec.Struct, frozen=True, kw_only=True):
    """One pod. ``image`` is the reference of its first ordinary container, ``image_id`` what its status says."""

    namespace: str
    name: str
    uid: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    node_name: str = ""
    host_network: bool = False
    phase: str = ""
    ready: bool = False
    deleting: bool = False
    image: str = ""
    image_id: str = ""
    mirror_hash: str = ""
    pod_ips: tuple[str, ...] = ()
    service_account: str = ""
    ports: tuple[NamedPort, ...] = ()

    @property
    def runtime_uid(self) -> str:
        """The UID that the runtime is told: a static pod's is not its mirror pod's."""
        return self.mirror_hash or self.uid


class NamespaceView(msgspec.Struct, frozen=True, kw_only=True):
    """One namespace."""

    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """One Node. ``addresses`` are its InternalIPs, ``network_unavailable`` that condition's status, "" for none."""

    name: str
    uid: str = ""
    labels: Mapping[str, str] = {}
    addresses: tuple[str, ...] = ()
    pod_cidrs: tuple[str, ...] = ()
    ready: bool = False
    network_unavailable: str = ""
    deleting: bool = False


def parse_pod(raw: object) -> PodView:
    """A pod from its decoded JSON or YAML; ``InvalidObject`` otherwise."""
    name = _check(raw, "Pod")
    return pod_view(_convert(raw, RawPod, subject_of("Pod", name)))


def pod_view(pod: RawPod) -> PodView:
    """What is kept of a pod."""
    spec, status, meta = pod.spec or RawPodSpec(), pod.status or RawPodStatus(), pod.metadata
    first = spec.containers[0] if spec.containers else RawContainer()
    annotations = meta.annotations or {}
    return PodView(
        namespace=meta.namespace or "default",
        name=meta.name,
        uid=meta.uid or "",
        labels=meta.labels or {},
        annotations=annotations,
        node_name=spec.nodeName or "",
        host_network=bool(spec.hostNetwork),
        phase=status.phase or "",
        ready=any(one.type == "Ready" and one.status == "True" for one in status.conditions or ()),
        deleting=meta.deletionTimestamp is not None,
        image=first.image or "",
        image_id=next((s.imageID or "" for s in status.containerStatuses or () if s.name == first.name), ""),
        mirror_hash=annotations.get(MIRROR_HASH, ""),
        pod_ips=tuple(one.ip for one in status.podIPs or () if one.ip),
        service_account=spec.serviceAccountName or "default",
        ports=named_ports(spec.containers or (), spec.initContainers or ()),
    )


def parse_namespace(raw: object) -> NamespaceView:
    """A namespace from its decoded JSON or YAML; ``InvalidObject`` otherwise."""
    name = _check(raw, "Namespace")
    return namespace_view(_convert(raw, RawNamespace, subject_of("Namespace", name)))


def namespace_view(namespace: RawNamespace) -> NamespaceView:
    """What is kept of a namespace."""
    meta = namespace.metadata
    labels = {**(meta.labels or {}), NAMESPACE_LABEL: meta.name}
    return NamespaceView(name=meta.name, labels=labels, annotations=meta.annotations or {})


def node_view(node: RawNode) -> NodeView:
    """What is kept of a Node."""
    meta, spec, status = node.metadata, node.spec or RawNodeSpec(), node.status or RawNodeStatus()
    conditions = {one.type: one.status for one in status.conditions or ()}
    return NodeView(
        name=meta.name,
        uid=meta.uid or "",
        labels=meta.labels or {},
        addresses=tuple(one.address for one in status.addresses or () if one.type == "InternalIP"),
        pod_cidrs=tuple(spec.podCIDRs or ()),
        ready=conditions.get("Ready") == "True",
        network_unavailable=conditions.get("NetworkUnavailable", ""),
        deleting=meta.deletionTimestamp is not None,
    )


def image_digest(pod: PodView) -> str | None:
    """The 64 hex digits of the image's digest where they are known before the image is pulled, else None (I10).

    The reference says it where the image is pinned; else an earlier sandbox of the pod left it in the status. (A
    runtime that knows no repository for an image says ``sha256:…`` there, the digest of its configuration.)
    """
    pinned = _DIGEST.search(pod.image) if "@" in pod.image else None
    found = pinned or _DIGEST.search(pod.image_id)
    return found.group(1) if found else None


def _check(raw: object, kind: str) -> str | None:
    """The head's problems, all of them; the rest of an object is converted only when there are none."""
    notes = Notes()
    top = Section(raw, "", notes)
    name = check_head(top, "v1", kind)
    metadata = top.section("metadata")
    if metadata is not None and metadata.get("namespace") is not None:
        metadata.parsed("namespace", parse_object_name)
    if metadata is not None:
        for key in ("labels", "annotations"):
            _check_strings(metadata, key)
    if notes.problems:
        raise InvalidObject(notes.problems, subject_of(kind, name))
    return name


def _check_strings(metadata: Section, key: str) -> None:
    raw = metadata.get(key)
    if raw is None:
        return
    if not isinstance(raw, Mapping):
        metadata.problem(key, raw, "must be a mapping")
        return
    for name, value in raw.items():
        if not isinstance(name, str):
            metadata.problem(key, name, "must be a string to be a key")
        elif not isinstance(value, str):
            metadata.problem(f"{key}.{name[:128]}", value, "must be a string (quote it)")


def _convert(raw: object, kind: type[T], subject: str) -> T:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        rule, _, path = str(error).partition(" - at ")
        field = path.strip("`").removeprefix("$.") or "object"
        raise InvalidObject([Problem(field, ABSENT, f"is wrong: {rule[:200]}")], subject) from error
