"""Which prefixes and addresses users may name: the rules, and the words in which a refusal says them. Pure.

Sources: RFC 4291 section 2 (IPv6 kinds), RFC 6890 and the IANA special-purpose registries (IPv4 kinds). Every rule here
is one that a router, BIRD or the kernel would else keep silently, after pods have addresses.

``read_*`` raise ValueError whose text is the rule; ``cidr_problems`` lists everything wrong with a node's CIDRs.
"""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network

from flock.api.problems import Problem
from flock.model.family import FAMILIES, Address, Family, Network, family_of, parse_address, parse_network

MOST_CIDRS = 32
"""Of one family; what compares each with each, here and in the API server's rules, needs a bound."""

MOST_HOST_ROUTES = 128

_MAPPED = IPv6Network("::ffff:0:0/96")

SPECIAL: Mapping[Family, tuple[tuple[Network, str], ...]] = {
    Family.IPV6: (
        (IPv6Network("::/128"), "unspecified"),
        (IPv6Network("::1/128"), "loopback"),
        (_MAPPED, "IPv4-mapped"),
        (IPv6Network("fe80::/10"), "link-local"),
        (IPv6Network("ff00::/8"), "multicast"),
    ),
    Family.IPV4: (
        (IPv4Network("0.0.0.0/8"), "unspecified"),
        (IPv4Network("127.0.0.0/8"), "loopback"),
        (IPv4Network("169.254.0.0/16"), "link-local"),
        (IPv4Network("224.0.0.0/4"), "multicast"),
        (IPv4Network("240.0.0.0/4"), "reserved (class E)"),
    ),
}


def special_kind(address: Address) -> str | None:
    """What makes an address no ordinary unicast address (``multicast``, ``loopback``, …), or None."""
    return next((kind for special, kind in SPECIAL[family_of(address)] if address in special), None)


def read_network(text: str, family: Family | None = None) -> Network:
    """One prefix, host bits masked off (I12), of ``family`` where that is given."""
    try:
        network = parse_network(text)
    except ValueError:
        raise ValueError(_why_no_network(text)) from None
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        raise ValueError("is IPv4-mapped; write it as IPv4")
    if family is not None and family_of(network) is not family:
        raise ValueError(f"is {family_of(network).label}")
    return network


def _why_no_network(text: str) -> str:
    if text.strip() != text:
        return "has white space around it"
    address, slash, _ = text.partition("/")
    try:
        bits = family_of(parse_address(address)).bits
    except ValueError:
        return "is not a CIDR (address/length)"
    if not slash:
        return f"is an address; a CIDR needs a length (/{bits} for this address alone)"
    return f"has a prefix length that is not from 0 to {bits}"


def read_address(text: str, family: Family | None = None) -> Address:
    """One ordinary unicast address in its one identity (I13), of ``family`` where that is given."""
    try:
        address = parse_address(text)
    except ValueError:
        raise ValueError("has a zone" if "%" in text else "is not an IP address") from None
    if family is not None and family_of(address) is not family:
        raise ValueError(f"is {family_of(address).label}")
    kind = special_kind(address)
    if kind is not None:
        raise ValueError(f"is {kind}")
    return address


def network_rule(network: Network) -> str | None:
    """The rule that a prefix for unicast addresses breaks, or None."""
    if network.prefixlen == 0:
        return "is the default route, which covers every address"
    for special, kind in SPECIAL[family_of(network)]:
        if _subnet(network, special):
            return f"is {kind}"
        if _subnet(special, network):
            return f"covers {kind} addresses ({special})"
    return None


def cidr_problems(cidrs: Mapping[Family, Sequence[Network]], prefix: str = "") -> tuple[Problem, ...]:
    """Everything wrong with a node's CIDRs (I11): family, kind, overlap. ``prefix`` goes before ``cidr6``."""
    found: list[Problem] = []
    for family in FAMILIES:
        field = f"{prefix}cidr{family.suffix}"
        earlier: list[Network] = []
        for network in cidrs.get(family, ()):
            rule = f"is {family_of(network).label}" if family_of(network) is not family else network_rule(network)
            if rule is None and (other := overlapping(network, earlier)) is not None:
                rule = "is there twice" if other == network else f"overlaps {other}"
            if rule is not None:
                found.append(Problem(field, str(network), rule))
            else:
                earlier.append(network)
    return tuple(found)


def overlapping(network: Network, others: Iterable[Network]) -> Network | None:
    """The first of ``others`` that shares an address with ``network``."""
    return next((other for other in others if _subnet(network, other) or _subnet(other, network)), None)


def within(network: Network, others: Iterable[Network]) -> bool:
    """Whether one of ``others`` holds the whole of ``network``."""
    return any(_subnet(network, other) for other in others)


def network_from(base: int, prefixlen: int, family: Family) -> Network:
    """The prefix that starts at a number."""
    return ip_network((base.to_bytes(family.bits // 8, "big"), prefixlen), strict=False)


def _subnet(inner: Network, outer: Network) -> bool:
    """``inner`` lies in ``outer``; prefixes of two families never do."""
    if inner.version != outer.version or inner.prefixlen < outer.prefixlen:
        return False
    shift = inner.max_prefixlen - outer.prefixlen
    return int(inner.network_address) >> shift == int(outer.network_address) >> shift
