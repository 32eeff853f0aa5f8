"""NodeConfig: what one node's agent is told, parsed once into frozen types. Pure.

Invariant: a ``NodeConfig`` that exists keeps every rule that can be judged without looking at the node; everything
wrong with an object is reported together. A field that nobody knows is refused where a person can mend it at once
(``strict``), and kept by name where an older agent met a newer object.
"""

from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network

import msgspec

from flock.api.bgp import BadPeer, Bfd, Bgp, Community, ImportPolicy, Peer, SecretRef, read_bgp
from flock.api.cidrs import MOST_CIDRS, MOST_HOST_ROUTES, cidr_problems, network_rule, overlapping, read_network, within
from flock.api.ip_algo import Field, parse_ip_algo
from flock.api.names import API_VERSION, check_head, subject_of
from flock.api.problems import ABSENT, InvalidObject, Problem
from flock.api.reader import Notes, Section
from flock.api.selector import Selector, read_selector
from flock.model.family import FAMILIES, Family, Network

__all__ = [
    "API_VERSION",
    "AnycastRule",
    "BadPeer",
    "Bfd",
    "Bgp",
    "Community",
    "Defaults",
    "ImportPolicy",
    "NodeConfig",
    "NodeConfigSpec",
    "Peer",
    "SecretRef",
    "parse_node_config",
]

DEFAULT_REUSE_DELAY = 120.0
MOST_REUSE_DELAY = 86400
MOST_MTU = 65535
LEAST_MTU: Mapping[Family, int] = {Family.IPV6: 1280, Family.IPV4: 576}
"""RFC 8200 section 5; RFC 791 section 3.2 (what every IPv4 host takes)."""


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What pods get that don't say; None is dual-stack as far as the node has CIDRs."""

    ipv6: bool | None = None
    ipv4: bool | None = None
    ip_algo: tuple[Field, ...] = ()

    def wanted(self, family: Family) -> bool | None:
        return self.ipv6 if family is Family.IPV6 else self.ipv4


class AnycastRule(msgspec.Struct, frozen=True):
    """Addresses that pods may claim, where ``namespace_selector`` (None: any namespace) matches theirs."""

    cidr: Network
    namespace_selector: Selector | None = None


class NodeConfigSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a NodeConfig."""

    cidr6: tuple[IPv6Network, ...] = ()
    cidr4: tuple[IPv4Network, ...] = ()
    defaults: Defaults = Defaults()
    mtu: int | None = None
    reuse_delay: float = DEFAULT_REUSE_DELAY
    masquerade4: bool = False
    host_routes: tuple[Network, ...] = ()
    anycast: tuple[AnycastRule, ...] = ()
    bgp: Bgp | None = None

    def cidrs(self, family: Family) -> tuple[Network, ...]:
        """The node's CIDRs of one family."""
        return self.cidr6 if family is Family.IPV6 else self.cidr4


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One NodeConfig, named like its node; ``unknown`` are the fields that this version doesn't know.

    The last three are what an API server adds: which object it is, which edition of its spec, and since when.
    """

    name: str
    spec: NodeConfigSpec
    unknown: tuple[str, ...] = ()
    uid: str = ""
    generation: int = 0
    created: str = ""


def parse_node_config(raw: object, *, strict: bool, peers_apart: bool | None = None) -> NodeConfig:
    """Read a decoded NodeConfig; ``InvalidObject`` lists every problem.

    ``strict`` refuses unknown fields and bad peers; without it both are kept by name. ``peers_apart`` keeps bad peers
    apart in a strict reading, too: one of them must not leave a node without any configuration.
    """
    notes = Notes()
    top = Section(raw, "", notes)
    name = check_head(top, API_VERSION, "NodeConfig")
    top.get("status")
    spec_section = top.section("spec") if top.required("spec") else None
    spec = _read_spec(spec_section) if spec_section is not None else NodeConfigSpec()
    top.done()
    problems = list(notes.problems)
    if not (not strict if peers_apart is None else peers_apart) and spec.bgp is not None:
        problems += [problem for bad in spec.bgp.bad_peers for problem in bad.problems]
    if strict:
        problems += [Problem(field, ABSENT, "is not a field of NodeConfig") for field in notes.unknown]
    if problems or name is None:
        raise InvalidObject(problems, subject_of("NodeConfig", name))
    return NodeConfig(name=name, spec=spec, unknown=tuple(notes.unknown))


def _read_spec(section: Section) -> NodeConfigSpec:
    cidrs = {family: _read_cidrs(section, family) for family in FAMILIES}
    section.notes.problems.extend(cidr_problems(cidrs, f"{section.path}."))
    mtu = section.integer("mtu", LEAST_MTU[Family.IPV6 if cidrs[Family.IPV6] else Family.IPV4], MOST_MTU)
    reuse_delay = section.duration("reuseDelay", 0, MOST_REUSE_DELAY)
    bgp_section = section.section("bgp")
    everything = cidrs[Family.IPV6] + cidrs[Family.IPV4]
    spec = NodeConfigSpec(
        cidr6=tuple(cidr for cidr in cidrs[Family.IPV6] if isinstance(cidr, IPv6Network)),
        cidr4=tuple(cidr for cidr in cidrs[Family.IPV4] if isinstance(cidr, IPv4Network)),
        defaults=_read_defaults(section),
        mtu=mtu,
        reuse_delay=DEFAULT_REUSE_DELAY if reuse_delay is None else reuse_delay,
        masquerade4=section.flag("masquerade4") or False,
        host_routes=_read_host_routes(section, everything),
        anycast=_read_anycast(section, everything),
        bgp=read_bgp(bgp_section) if bgp_section is not None else None,
    )
    section.done()
    return spec


def _read_cidrs(section: Section, family: Family) -> tuple[Network, ...]:
    key = f"cidr{family.suffix}"
    found: list[Network] = []
    for text in section.texts(key, MOST_CIDRS):
        try:
            network = read_network(text, family)
        except ValueError as error:
            section.problem(key, text, str(error))
            continue
        rule = network_rule(network)
        if rule is None:
            found.append(network)
        else:
            section.problem(key, text, rule)
    return tuple(found)


def _read_defaults(section: Section) -> Defaults:
    defaults = section.section("defaults")
    if defaults is None:
        return Defaults()
    found = Defaults(
        ipv6=defaults.flag("ipv6"),
        ipv4=defaults.flag("ipv4"),
        ip_algo=defaults.parsed("ipAlgo", parse_ip_algo) or (),
    )
    defaults.done()
    if found.ipv6 is False and found.ipv4 is False:
        defaults.problem("ipv4", False, "leaves pods without any address, ipv6 being false, too")
    return found


def _read_host_routes(section: Section, cidrs: tuple[Network, ...]) -> tuple[Network, ...]:
    found: dict[Network, None] = {}
    for text in section.texts("hostRoutes", MOST_HOST_ROUTES):
        try:
            network = read_network(text)
        except ValueError as error:
            section.problem("hostRoutes", text, str(error))
            continue
        if within(network, cidrs):
            found[network] = None
        else:
            section.problem("hostRoutes", text, "lies in none of the node's CIDRs")
    return tuple(found)


def _read_anycast(section: Section, cidrs: tuple[Network, ...]) -> tuple[AnycastRule, ...]:
    found: list[AnycastRule] = []
    for index, raw in enumerate(section.items("anycast", MOST_CIDRS)):
        entry = Section(raw, f"{section.name('anycast')}[{index}]", section.notes)
        network = entry.parsed("cidr", read_network) if entry.required("cidr") else None
        selector_section = entry.section("namespaceSelector")
        selector = read_selector(selector_section) if selector_section is not None else None
        entry.done()
        if network is None:
            continue
        rule = network_rule(network)
        if rule is None and (other := overlapping(network, cidrs)) is not None:
            rule = f"overlaps the pods' own CIDR {other}"
        if rule is not None:
            entry.problem("cidr", str(network), rule)
        else:
            found.append(AnycastRule(network, selector))
    return tuple(found)
