"""The CustomResourceDefinition of NodeConfig, from the limits and tables of its parser. Pure.

``kubectl apply`` refuses what the agent would refuse: types, lengths, patterns and ranges by the schema
(``crd_spec``), what fields say together by CEL rules (``crd_rules``), unknown fields by strict field validation, which
is kubectl's default. ``deploy/kubernetes/crd.yaml`` is this as text.
"""

from flock.api.crd_spec import spec_schema
from flock.api.crd_status import status_schema
from flock.api.names import API_GROUP
from flock.api.schema import Schema, mapping


def node_config_crd() -> Schema:
    """The whole object, as ``kubectl apply`` takes it."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"nodeconfigs.{API_GROUP}"},
        "spec": {
            "group": API_GROUP,
            "scope": "Cluster",
            "names": {"kind": "NodeConfig", "listKind": "NodeConfigList", "plural": "nodeconfigs",
                      "singular": "nodeconfig", "shortNames": ["nc"], "categories": ["flock"]},
            "versions": [_version()],
        },
    }


def _version() -> Schema:
    return {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            _column("IPv6", "string", ".spec.cidr6"),
            _column("IPv4", "string", ".spec.cidr4"),
            _column("ASN", "integer", ".spec.bgp.asn"),
            _column("Peers up", "string", ".status.peersUp"),
            _column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
            _column("Age", "date", ".metadata.creationTimestamp"),
            _column("Why", "string", '.status.conditions[?(@.type=="Ready")].message') | {"priority": 1},
        ],
        "schema": {"openAPIV3Schema": mapping(
            {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
             "spec": spec_schema(), "status": status_schema()},
            "spec",
        )},
    }


def _column(name: str, kind: str, path: str) -> Schema:
    return {"name": name, "type": kind, "jsonPath": path}
