"""The schema of a NodeConfig's ``spec``: the limits of its parser, field by field. Pure.

Invariant: what ``parse_node_config(strict=True)`` refuses, this refuses; ``tests/contract/test_crd.py`` asks a real API
server. It refuses a little more: blanks in an ip-algo that aren't spaces.
"""

from flock.api import crd_rules as rule
from flock.api.bgp import (
    BFD_INTERVAL,
    COMMUNITY,
    INTERFACE,
    MAX_U32,
    MOST_COMMUNITIES,
    MOST_HOPS,
    MOST_MULTIPLIER,
    MOST_PEERS,
    MOST_RESTART_TIME,
    PEER_NAME_LIMIT,
    SECRET_KEY,
    SECRET_NAME,
    ImportPolicy,
)
from flock.api.cidrs import MOST_CIDRS, MOST_HOST_ROUTES
from flock.api.ip_algo import MOST_FIELDS, WORDS
from flock.api.ip_algo import TEXT_LIMIT as IP_ALGO_LIMIT
from flock.api.node_config import LEAST_MTU, MOST_MTU, MOST_REUSE_DELAY
from flock.api.reader import DURATION, DURATION_LIMIT, LIST_LIMIT, TEXT_LIMIT
from flock.api.schema import Schema, array, choice, flag, keyed, mapping, number, rules, text
from flock.api.selector import Operator
from flock.model.family import FAMILIES, Family
from flock.model.ids import IFNAME_LIMIT

CIDR_LIMIT = 49
"""Characters of the longest spelling of an IPv6 prefix, its last part written as IPv4."""

ADDRESS_LIMIT = 46 + IFNAME_LIMIT

_COMMUNITY_LIMIT = 32
_PRINTABLE = r"[\p{L}\p{M}\p{N}\p{P}\p{S} ]+"
"""What Python calls printable: every assigned character but controls, formats and blanks other than the space."""


def spec_schema() -> Schema:
    """The whole of ``spec``."""
    fields = {f"cidr{family.suffix}": _cidrs(family) for family in FAMILIES}
    fields |= {
        "defaults": _defaults(),
        "mtu": number(min(LEAST_MTU.values()), MOST_MTU),
        "reuseDelay": _duration(0, MOST_REUSE_DELAY),
        "masquerade4": flag(),
        "hostRoutes": array(text(CIDR_LIMIT) | rules(rule.is_cidr(None)), MOST_HOST_ROUTES),
        "anycast": _anycast(),
        "bgp": _bgp(),
    }
    return mapping(fields) | rules({
        **rule.host_routes_within(), **rule.anycast_apart(), **rule.least_mtu(LEAST_MTU[Family.IPV6])})


def _cidrs(family: Family) -> Schema:
    return array(_cidr(family), MOST_CIDRS) | rules(rule.are_disjoint())


def _cidr(family: Family | None = None) -> Schema:
    return text(CIDR_LIMIT) | rules({**rule.is_cidr(family), **rule.is_unicast()})


def _defaults() -> Schema:
    return mapping({"ipv6": flag(), "ipv4": flag(), "ipAlgo": _ip_algo()}) | rules(rule.has_a_family())


def _ip_algo() -> Schema:
    name = f"{'|'.join(WORDS)}|0x[0-9a-f]{{1,31}}"
    field = f" *({name}) *(= *(0?[1-9]|[12][0-9]|3[01]) *)?"
    return text(IP_ALGO_LIMIT, pattern=f" *|{field}(,{field}){{0,{MOST_FIELDS - 1}}}") | rules(rule.is_ip_algo())


def _anycast() -> Schema:
    return array(mapping({"cidr": _cidr(), "namespaceSelector": _selector()}, "cidr"), MOST_CIDRS)


def _selector() -> Schema:
    words = [operator.value for operator in Operator]
    values = array(text(TEXT_LIMIT), LIST_LIMIT)
    requirement = mapping({"key": text(TEXT_LIMIT), "operator": choice(words), "values": values}, "key", "operator")
    return mapping({
        "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        "matchExpressions": array(requirement | rules(rule.values_fit([Operator.IN.value, Operator.NOT_IN.value])),
                                  LIST_LIMIT),
    })


def _bgp() -> Schema:
    return mapping({
        "asn": _asn(),
        "routerID": text(15) | rules(rule.is_router_id()),
        "mesh": flag(),
        "peers": keyed(_peer(), MOST_PEERS, "name") | rules(rule.are_no_twins()),
    }, "asn")


def _peer() -> Schema:
    return mapping({
        "name": text(PEER_NAME_LIMIT, 1, _PRINTABLE) | rules(rule.is_peer_name()),
        "address": text(ADDRESS_LIMIT, 2, f"[0-9A-Fa-f:.]+(%({INTERFACE.pattern}))?"),
        "interface": text(IFNAME_LIMIT, 1, INTERFACE.pattern) | rules(rule.is_interface()),
        "asn": _asn(),
        "passwordSecretRef": mapping({"name": text(253, 1, SECRET_NAME.pattern),
                                      "key": text(253, 1, SECRET_KEY.pattern)}, "name", "key"),
        "families": array(choice([family.label.lower() for family in FAMILIES]), len(FAMILIES), 1)
        | {"x-kubernetes-list-type": "set"},
        "gracefulRestart": mapping({"restartTime": _duration(1, MOST_RESTART_TIME, whole=True)}),
        "bfd": mapping({"interval": _duration(*BFD_INTERVAL), "multiplier": number(1, MOST_MULTIPLIER)}),
        "multihop": number(1, MOST_HOPS),
        "localPref": number(0, MAX_U32),
        "communities": array(text(_COMMUNITY_LIMIT, pattern=COMMUNITY.pattern) | rules(rule.is_community()),
                             MOST_COMMUNITIES),
        "import": choice([policy.value for policy in ImportPolicy]),
    }, "name", "address", "asn") | rules(rule.is_neighbour())


def _asn() -> Schema:
    return number(1, MAX_U32 - 1) | rules(rule.is_free_asn())


def _duration(least: float, most: float, *, whole: bool = False) -> Schema:
    said = {**rule.duration_within(least, most), **(rule.whole_seconds() if whole else {})}
    return text(DURATION_LIMIT, 1, f"0|{DURATION.pattern}") | rules(said)
