"""What the parser says with code and a schema can't: the same rules in CEL, made from the same tables. Pure.

Each function gives a rule (or several, with their messages) on what the API server calls ``self``. A rule that can't be
judged, since a part of its subject is no address at all, holds: another rule says that. The API server refuses rules
whose cost it can't bound, and what ``split`` gives has no bound for it; what ``find`` gives has.

Sources: CEL library of Kubernetes 1.31 and later (``isIP``, ``ip``, ``isCIDR``, ``cidr``, ``find``), and how it
estimates costs (k8s.io/apiserver pkg/cel/library/cost.go); Go's net/netip, which reads addresses there.
"""

import json
from collections.abc import Iterable, Mapping

from flock.api.bgp import MAX_U16, MAX_U32, RESERVED_AS
from flock.api.cidrs import SPECIAL
from flock.api.ip_algo import MOST_FIELDS, WIDEST, WORDS
from flock.model.family import FAMILIES, Family, Network

Rules = Mapping[str, str]

_MAPPED = "IPv4-mapped"
_LINK_LOCAL = "link-local"


def _networks(*but: str) -> list[Network]:
    return [network for family in FAMILIES for network, kind in SPECIAL[family] if kind not in but]


def _texts(networks: Iterable[Network]) -> str:
    return json.dumps([str(network) for network in networks])


def _overlap(one: str, other: str) -> str:
    """Two texts are prefixes with an address in common."""
    return f"(cidr({one}).containsCIDR({other}) || cidr({other}).containsCIDR({one}))"


def is_cidr(family: Family | None) -> Rules:
    """A prefix of a family, or of either."""
    if family is None:
        return {"isCIDR(self)": "must be a CIDR (address/length), not IPv4-mapped"}
    return {f"isCIDR(self) && cidr(self).ip().family() == {family.suffix}":
            f"must be an {family.label} CIDR (address/length)"}


def is_unicast() -> Rules:
    """``flock.api.cidrs.network_rule``. Go refuses IPv4-mapped text, so what covers all of that space is found by the
    half of ``::fffe:0:0/95`` beside it.
    """
    special = f"{_texts(_networks(_MAPPED))}.exists(s, {_overlap('s', 'self')})"
    mapped = "(cidr(self).prefixLength() < 96 && cidr(self).containsIP('::fffe:0:0'))"
    kinds = dict.fromkeys(kind for family in FAMILIES for _, kind in SPECIAL[family])
    return {f"!isCIDR(self) || !({special} || {mapped})": f"must hold no {', '.join(kinds)} addresses"}


def are_disjoint() -> Rules:
    """A list of prefixes, none of which overlaps another."""
    return {f"!self.all(c, isCIDR(c)) || self.all(c, self.exists_one(d, {_overlap('c', 'd')}))":
            "must hold no CIDR twice, and none that overlaps another"}


def host_routes_within() -> Rules:
    """Each host route lies wholly in a CIDR of the node."""
    within = " || ".join(f"(has(self.{field}) && self.{field}.exists(c, isCIDR(c) && cidr(c).containsCIDR(r)))"
                         for field in _fields())
    return {f"!has(self.hostRoutes) || self.hostRoutes.all(r, !isCIDR(r) || {within})":
            "hostRoutes must lie in the node's CIDRs"}


def anycast_apart() -> Rules:
    """No anycast prefix shares an address with the pods' own."""
    shared = " || ".join(
        f"(has(self.{field}) && self.{field}.exists(c, isCIDR(c) && {_overlap('c', 'a.cidr')}))" for field in _fields())
    return {f"!has(self.anycast) || self.anycast.all(a, !isCIDR(a.cidr) || !({shared}))":
            "anycast must not overlap the pods' own CIDRs"}


def least_mtu(least: int) -> Rules:
    """Where the node has IPv6 CIDRs."""
    return {f"!has(self.mtu) || !has(self.cidr6) || self.cidr6.size() == 0 || self.mtu >= {least}":
            f"mtu must be at least {least} where there is an IPv6 CIDR"}


def _fields() -> list[str]:
    return [f"cidr{family.suffix}" for family in FAMILIES]


def duration_within(least: float, most: float) -> Rules:
    """Seconds, at least and at most."""
    low, high = f"{round(least * 1000)}ms", f"{round(most * 1000)}ms"
    return {f"duration(self) >= duration('{low}') && duration(self) <= duration('{high}')":
            f"must be a duration from {least:g}s to {most:g}s"}


def whole_seconds() -> Rules:
    return {"duration(self) == timestamp(duration(self).getSeconds()) - timestamp(0)": "must be whole seconds"}


def is_free_asn() -> Rules:
    numbers = sorted(number for number in RESERVED_AS if 0 < number < MAX_U32)
    return {f"!(self in {numbers})": "is a reserved AS number"}


def is_router_id() -> Rules:
    wrong = "['0.0.0.0/8', '127.0.0.0/8', '224.0.0.0/4', '255.255.255.255/32'].exists(s, cidr(s).containsIP(self))"
    return {"isIP(self) && ip(self).family() == 4": "must look like an IPv4 address",
            f"!isIP(self) || !{wrong}": "must not be 0, loopback, multicast or broadcast"}


def is_peer_name() -> Rules:
    return {"""!self.contains('"') && self.trim() != ''""": "must be printable, without quotation marks"}


def is_interface() -> Rules:
    return {"self != '.' && self != '..'": "must be the name of one network interface"}


def is_community() -> Rules:
    """The numbers of one; its form is the schema's."""
    first, middle, last = "self.find('^[0-9]+')", "self.find(':[0-9]+:')", "self.find('[0-9]+$')"
    return {f"{middle} == '' ? int({first}) <= {MAX_U16} && int({last}) <= {MAX_U16} : int({first}) <= {MAX_U32} "
            f"&& int({middle}.replace(':', '')) <= {MAX_U32} && int({last}) <= {MAX_U32}":
            f"must be two parts up to {MAX_U16} or three up to {MAX_U32} (64513:100)"}


def _bare(peer: str) -> str:
    return f"{peer}.address.find('^[^%]*')"


def _zone(peer: str) -> str:
    """With its ``%``; empty where the address has none."""
    return f"{peer}.address.find('%.*$')"


def is_neighbour() -> Rules:
    """A peer: its address, the interface that may stand in it after ``%``, and what goes with which."""
    bare, zone = _bare("self"), _zone("self")
    link_local = _texts(network for family in FAMILIES for network, kind in SPECIAL[family] if kind == _LINK_LOCAL)
    special = _texts(_networks(_MAPPED, _LINK_LOCAL))
    return {
        f"isIP({bare})": "address must be an IP address, not IPv4-mapped",
        f"!isIP({bare}) || !{special}.exists(s, cidr(s).containsIP({bare}))":
            "address must be a neighbour's: not unspecified, loopback, multicast or reserved",
        f"{zone} != '%.' && {zone} != '%..' && ({zone} == '' || !has(self.interface) "
        f"|| {zone} == '%' + self.interface)": "the interface in address must be one, and that of the field interface",
        f"has(self.interface) || {zone} != '' || !isIP({bare}) || "
        f"!{link_local}.exists(s, cidr(s).containsIP({bare}))": "a link-local address needs an interface",
        f"!has(self.multihop) || ({zone} == '' && !has(self.interface))":
            "multihop goes with no interface and no link-local address",
    }


def are_no_twins() -> Rules:
    """A list of peers in which no two have one address on one interface."""
    def on(peer: str) -> str:
        return (f"({peer}.address.contains('%') ? {_zone(peer)} : "
                f"has({peer}.interface) ? '%' + {peer}.interface : '')")

    same = f"ip({_bare('p')}) == ip({_bare('q')}) && {on('p')} == {on('q')}"
    return {f"!self.all(p, isIP({_bare('p')})) || self.all(p, self.exists_one(q, {same}))":
            "must hold no address twice"}


def is_ip_algo() -> Rules:
    """What ``flock.api.ip_algo`` says of fields together; the form of each, and how many, is the schema's."""
    twice = "|".join(f"(^|,) *{word}([ =][^,]*)?(,.*)?, *{word}([ =,]|$)" for word in WORDS)
    total = " + ".join(map(_nibbles, range(MOST_FIELDS)))
    return {
        f"!self.matches('{twice}')": "must have no field twice",
        f"{total} <= {WIDEST}": f"must fit the {WIDEST} nibbles that an IPv6 address has beside N, and a literal its "
                                "own width",
    }


def _nibbles(number: int) -> str:
    """What one field takes; far too many for a literal that is longer than its width."""
    before = f"([^,]*,){{{number}}}" if number else ""
    field = f"self.find('^{before}[^,]*').find('[^,]*$')"
    digits = f"({field}.find('x[0-9a-f]*').size() - 1)"
    width = f"int({field}.find('[0-9]+ *$').trim())"
    return (f"({field}.trim() == '' ? 0 : {field}.contains('=') ? ({digits} > {width} ? {WIDEST + 1} : {width}) : "
            f"{field}.contains('0x') ? {digits} : 1)")


def has_a_family() -> Rules:
    return {"!has(self.ipv6) || !has(self.ipv4) || self.ipv6 || self.ipv4":
            "ipv6 and ipv4 both false leave pods without any address"}


def values_fit(with_values: Iterable[str]) -> Rules:
    """A label requirement: values where its operator takes some, and none where it doesn't."""
    return {f"(self.operator in {json.dumps(list(with_values))}) == (has(self.values) && self.values.size() > 0)":
            "values must not be empty with In and NotIn, and must be with Exists and DoesNotExist"}
