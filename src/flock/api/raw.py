"""Kubernetes objects as they come, reduced to the fields that flock reads. Pure.

Every field may be absent or null. What isn't listed is skipped by the decoder, not kept. Field names are the API's.
Source: k8s.io/api, core/v1/types.go.
"""

# ruff: noqa: N815
import msgspec

from flock.api.named_ports import RawPorts


class RawMeta(msgspec.Struct, gc=False):
    """metadata of any object; of a list, ``resourceVersion`` and ``continue`` alone."""

    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    resourceVersion: str | None = None
    generation: int | None = None
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    continue_: str | None = msgspec.field(default=None, name="continue")


class RawContainer(RawPorts, gc=False):
    name: str = ""
    image: str | None = None


class RawPodSpec(msgspec.Struct, gc=False):
    nodeName: str | None = None
    hostNetwork: bool | None = None
    serviceAccountName: str | None = None
    containers: list[RawContainer] | None = None
    initContainers: list[RawPorts] | None = None


class RawCondition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""


class RawContainerStatus(msgspec.Struct, gc=False):
    name: str = ""
    imageID: str | None = None


class RawPodIP(msgspec.Struct, gc=False):
    ip: str = ""


class RawPodStatus(msgspec.Struct, gc=False):
    phase: str | None = None
    conditions: list[RawCondition] | None = None
    containerStatuses: list[RawContainerStatus] | None = None
    podIPs: list[RawPodIP] | None = None


class RawPod(msgspec.Struct, gc=False):
    metadata: RawMeta = msgspec.field(default_factory=RawMeta)
    spec: RawPodSpec | None = None
    status: RawPodStatus | None = None


class RawNamespace(msgspec.Struct, gc=False):
    metadata: RawMeta = msgspec.field(default_factory=RawMeta)


class RawAddress(msgspec.Struct, gc=False):
    type: str = ""
    address: str = ""


class RawNodeSpec(msgspec.Struct, gc=False):
    podCIDRs: list[str] | None = None


class RawNodeStatus(msgspec.Struct, gc=False):
    addresses: list[RawAddress] | None = None
    conditions: list[RawCondition] | None = None


class RawNode(msgspec.Struct, gc=False):
    metadata: RawMeta = msgspec.field(default_factory=RawMeta)
    spec: RawNodeSpec | None = None
    status: RawNodeStatus | None = None
