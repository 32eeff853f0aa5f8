"""The CustomResourceDefinition of NodeConfig, from the limits that its parser has. Pure.

The schema says types, lengths, patterns and ranges; CEL rules say what two fields say together. What needs arithmetic
on prefixes (overlaps, host routes within CIDRs) is left to the agent, which says it in its log and in ``flockctl
status``.

Source: Kubernetes API extensions, structural schemas; CEL library ``isIP``, ``isCIDR``, ``cidr`` (1.31 and later).
"""

from collections.abc import Mapping

from flock.api.bgp import MAX_U32, PEER_NAME_LIMIT, ImportPolicy
from flock.api.names import API_GROUP
from flock.api.reader import LIST_LIMIT
from flock.api.selector import Operator
from flock.model.family import FAMILIES, Family
from flock.model.ids import IFNAME_LIMIT

Schema = dict[str, object]

MOST_CIDRS = 16
"""Of one family, in the schema alone: CEL rules need a bound that keeps their cost within the API server's budget."""

MOST_PEERS = 64
DURATION = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"


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
                      "singular": "nodeconfig", "shortNames": ["nc"]},
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
            {"name": "IPv6", "type": "string", "jsonPath": ".spec.cidr6"},
            {"name": "IPv4", "type": "string", "jsonPath": ".spec.cidr4"},
            {"name": "ASN", "type": "integer", "jsonPath": ".spec.bgp.asn"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        "schema": {"openAPIV3Schema": _object(
            {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
             "spec": _spec(), "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            required=["spec"],
        )},
    }


def _spec() -> Schema:
    fields: Schema = {f"cidr{family.suffix}": _cidrs(family) for family in FAMILIES}
    fields |= {
        "defaults": _object(
            {"ipv6": {"type": "boolean"}, "ipv4": {"type": "boolean"}, "ipAlgo": _text(256)},
            rules={"!(has(self.ipv6) && !self.ipv6 && has(self.ipv4) && !self.ipv4)":
                   "ipv6 and ipv4 both false leave pods without any address"},
        ),
        "mtu": _number(576, 65535),
        "reuseDelay": _duration(),
        "masquerade4": {"type": "boolean"},
        "hostRoutes": _list(_cidr("isCIDR(self)", "is not a CIDR"), LIST_LIMIT),
        "anycast": _list(_object({"cidr": _cidr("isCIDR(self)", "is not a CIDR"), "namespaceSelector": _selector()},
                                 required=["cidr"]), MOST_CIDRS),
        "bgp": _bgp(),
    }
    return _object(fields, rules={
        "!has(self.cidr6) || !has(self.mtu) || self.cidr6.size() == 0 || self.mtu >= 1280":
            "mtu must be at least 1280 where the node has IPv6 CIDRs",
    })


def _cidrs(family: Family) -> Schema:
    rule = f"isCIDR(self) && cidr(self).ip().family() == {family.suffix}"
    return _list(_cidr(rule, f"is not an {family.label} CIDR"), MOST_CIDRS)


def _cidr(rule: str, message: str) -> Schema:
    unusable = ("cidr(self).ip().isLoopback() || cidr(self).ip().isLinkLocalUnicast() "
                "|| cidr(self).ip().isLinkLocalMulticast() || cidr(self).prefixLength() == 0")
    return _text(49) | _rules({rule: message, f"!isCIDR(self) || !({unusable})":
                               "is loopback, link-local, multicast or everything: no pods' addresses"})


def _bgp() -> Schema:
    return _object({
        "asn": _asn(),
        "routerID": _text(15) | _rules({"isIP(self) && ip(self).family() == 4": "must look like an IPv4 address"}),
        "mesh": {"type": "boolean"},
        "peers": _list(_peer(), MOST_PEERS) | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    }, required=["asn"])


def _peer() -> Schema:
    return _object({
        "name": _text(PEER_NAME_LIMIT, 1) | {"pattern": '^[^"\\x00-\\x1f\\x7f]+$'},
        "address": _text(64, 2),
        "interface": _text(IFNAME_LIMIT, 1) | {"pattern": "^[A-Za-z0-9_.@+~=,-]+$"},
        "asn": _asn(),
        "passwordSecretRef": _object({"name": _text(253, 1), "key": _text(253, 1)}, required=["name", "key"]),
        "families": _list({"type": "string", "enum": [family.label.lower() for family in FAMILIES]}, len(FAMILIES))
        | {"minItems": 1, "x-kubernetes-list-type": "set"},
        "gracefulRestart": _object({"restartTime": _duration()}),
        "bfd": _object({"interval": _duration(), "multiplier": _number(1, 255)}),
        "multihop": _number(1, 255),
        "localPref": _number(0, MAX_U32),
        "communities": _list(_text(32) | {"pattern": "^[0-9]{1,10}(:[0-9]{1,10}){1,2}$"}, LIST_LIMIT),
        "import": {"type": "string", "enum": [policy.value for policy in ImportPolicy]},
    }, required=["name", "address", "asn"], rules={
        "!has(self.multihop) || !has(self.interface)": "multihop goes with no interface",
        "isIP(self.address.split('%')[0])": "address is not an IP address",
        "!self.address.startsWith('fe80:') || has(self.interface) || self.address.contains('%')":
            "a link-local address needs an interface",
    })


def _selector() -> Schema:
    return _object({
        "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        "matchExpressions": _list(_object({
            "key": {"type": "string"},
            "operator": {"type": "string", "enum": [operator.value for operator in Operator]},
            "values": _list({"type": "string"}, LIST_LIMIT)}, required=["key", "operator"]), LIST_LIMIT),
    })


def _asn() -> Schema:
    reserved = "self != 23456 && self != 65535"
    return _number(1, MAX_U32 - 1) | _rules({reserved: "is a reserved AS number"})


def _object(fields: Mapping[str, object], required: list[str] | None = None, rules: Mapping[str, str] | None = None
            ) -> Schema:
    schema: Schema = {"type": "object", "properties": dict(fields)}
    if required:
        schema["required"] = required
    return schema | (_rules(rules) if rules else {})


def _rules(rules: Mapping[str, str]) -> Schema:
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in rules.items()]}


def _list(items: Schema, most: int) -> Schema:
    return {"type": "array", "maxItems": most, "items": items}


def _text(most: int, least: int = 0) -> Schema:
    return {"type": "string", "maxLength": most} | ({"minLength": least} if least else {})


def _number(least: int, most: int) -> Schema:
    return {"type": "integer", "format": "int64", "minimum": least, "maximum": most}


def _duration() -> Schema:
    return _text(32, 2) | {"pattern": DURATION}
