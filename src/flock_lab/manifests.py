"""The manifests that a lab node is given: ordinary Kubernetes objects as YAML. Pure."""

from collections.abc import Mapping

import yaml

from flock.model.family import FAMILIES, Family
from flock_lab.plan import ROUTER_ASN, NodePlan

API_VERSION = "flock.fritzlab.net/v1alpha1"
ANNOTATION_PREFIX = "flock.fritzlab.net/"


def node_config(plan: NodePlan, spec: Mapping[str, object] | None = None) -> str:
    """The NodeConfig of a lab node; ``spec`` replaces fields of it, and removes those that are None."""
    whole: dict[str, object] = {
        **{f"cidr{family.suffix}": [str(plan.cidrs[family])] for family in FAMILIES},
        "bgp": {
            "asn": plan.asn,
            "peers": [{
                "name": "router", "address": str(plan.links[Family.IPV6].router), "asn": ROUTER_ASN,
                "families": ["ipv6", "ipv4"], "gracefulRestart": {"restartTime": "120s"}, "import": "default-route",
            }],
        },
        **(spec or {}),
    }
    wanted = {key: value for key, value in whole.items() if value is not None}
    return _document(API_VERSION, "NodeConfig", {"name": plan.name}, wanted)


def pod(namespace: str, name: str, *, uid: str, node: str, image: str,
        annotations: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None) -> str:
    """A Pod that a kubelet would have been given; annotations are named without flock's prefix."""
    metadata: dict[str, object] = {"name": name, "namespace": namespace, "uid": uid}
    if annotations:
        metadata["annotations"] = {ANNOTATION_PREFIX + key: value for key, value in annotations.items()}
    if labels:
        metadata["labels"] = dict(labels)
    return _document("v1", "Pod", metadata, {"nodeName": node, "containers": [{"name": name, "image": image}]})


def namespace(name: str, annotations: Mapping[str, str] | None = None) -> str:
    """A Namespace, with its defaults for its pods."""
    metadata: dict[str, object] = {"name": name}
    if annotations:
        metadata["annotations"] = {ANNOTATION_PREFIX + key: value for key, value in annotations.items()}
    return _document("v1", "Namespace", metadata, None)


def _document(api_version: str, kind: str, metadata: object, spec: object) -> str:
    document = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
    if spec is not None:
        document["spec"] = spec
    return yaml.safe_dump(document, sort_keys=False)
