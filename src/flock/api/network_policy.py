"""NetworkPolicy (networking.k8s.io/v1): who may talk to the pods that a policy selects, as frozen types. Pure.

Invariant: what can't be understood allows nothing. A peer or port that breaks a rule is left out and noted in
``problems``, its neighbours stand, and the policy isolates all the same; a policy whose name or selector can't be read
is refused whole (``InvalidObject``). The API server's defaults are applied here too, for manifests that never met one.

Sources: k8s.io/api networking/v1 types.go and defaults.go, pkg/apis/networking/validation. An API server may still hold
CIDRs that its validation no longer takes (host bits set, leading zeros): they mean what they always did.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TypeVar

import msgspec

from flock.api.cidrs import within
from flock.api.names import check_head, parse_object_name, subject_of
from flock.api.problems import ABSENT, InvalidObject, Problem, printable
from flock.api.reader import Notes, Section
from flock.api.selector import Selector, read_selector
from flock.model.family import Network, parse_network

T = TypeVar("T")

POLICY_API_VERSION = "networking.k8s.io/v1"
LAST_PORT = 65535
_MOST = 100_000
"""Of one list: an object of etcd's largest size can't hold more."""


class Protocol(Enum):
    """A protocol with ports; ``value`` is its IANA number (include/uapi/linux/in.h)."""

    TCP = 6
    UDP = 17
    SCTP = 132


class IPBlock(msgspec.Struct, frozen=True):
    """Addresses by their numbers, pods' or not: those of ``cidr`` that are in none of ``excepted``."""

    cidr: Network
    excepted: tuple[Network, ...] = ()


class PodPeer(msgspec.Struct, frozen=True):
    """Pods by their labels. ``namespaces`` None: those of the policy's own namespace; ``pods`` None: all of them."""

    pods: Selector | None = None
    namespaces: Selector | None = None


Peer = IPBlock | PodPeer


class PortRange(msgspec.Struct, frozen=True):
    """Ports of one protocol, both ends included."""

    protocol: Protocol
    first: int = 0
    last: int = LAST_PORT


class PortName(msgspec.Struct, frozen=True):
    """The ports that the pods at the receiving end call so, of one protocol."""

    protocol: Protocol
    name: str


Port = PortRange | PortName


class Rule(msgspec.Struct, frozen=True):
    """One rule: any of ``peers`` at any of ``ports``. None is everybody, or every port and protocol; () is nobody."""

    peers: tuple[Peer, ...] | None = None
    ports: tuple[Port, ...] | None = None


class NetworkPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """One policy. A direction is None where the policy doesn't speak of it, () where it allows nothing in it."""

    namespace: str
    name: str
    uid: str = ""
    selector: Selector = Selector()
    ingress: tuple[Rule, ...] | None = None
    egress: tuple[Rule, ...] | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def subject(self) -> str:
        return subject_of("NetworkPolicy", self.name, self.namespace)


def parse_network_policy(raw: object, *, strict: bool) -> NetworkPolicy:
    """Read a decoded NetworkPolicy; ``strict`` raises ``InvalidObject`` for every problem and every unknown field."""
    notes = Notes()
    top = Section(raw, "", notes)
    name = check_head(top, POLICY_API_VERSION, "NetworkPolicy")
    namespace, uid = _read_meta(top)
    spec = top.section("spec")
    if spec is None and not notes.problems:
        # The API server takes such a policy: it selects every pod of its namespace and lets nothing in.
        spec = Section({}, "spec", notes)
    selector = _read_subject(spec) if spec is not None else Selector()
    fatal = bool(notes.problems) or name is None
    found = _read_directions(spec) if spec is not None else {}
    top.get("status")
    top.done()
    problems = list(notes.problems)
    if strict:
        problems += [Problem(field, ABSENT, "is not a field of NetworkPolicy") for field in notes.unknown]
    if name is None or fatal or (strict and problems):
        raise InvalidObject(problems, subject_of("NetworkPolicy", name, namespace))
    return NetworkPolicy(namespace=namespace, name=name, uid=uid, selector=selector, ingress=found.get("Ingress"),
                         egress=found.get("Egress"), problems=tuple(problems))


def _read_meta(top: Section) -> tuple[str, str]:
    metadata = top.section("metadata")
    if metadata is None:
        return "default", ""
    namespace = metadata.parsed("namespace", parse_object_name) or "default"
    uid = metadata.get("uid")
    return namespace, uid if isinstance(uid, str) else ""


def _read_subject(spec: Section) -> Selector:
    found = spec.section("podSelector")
    return read_selector(found) if found is not None else Selector()


def _read_directions(spec: Section) -> dict[str, tuple[Rule, ...]]:
    types = _read_types(spec)
    rules = {
        "Ingress": _read_rules(spec, "ingress", "from"),
        "Egress": _read_rules(spec, "egress", "to"),
    }
    if types is None:
        types = {"Ingress", *(["Egress"] if spec.get("egress") else [])}
    spec.done()
    return {direction: rules[direction] for direction in types}


def _read_types(spec: Section) -> set[str] | None:
    """The directions that a policy names; None where it names none, and the API's default decides."""
    named = spec.texts("policyTypes", _MOST)
    for word in named:
        if word not in ("Ingress", "Egress"):
            spec.problem("policyTypes", word, "must be Ingress or Egress")
    if not spec.get("policyTypes"):
        return None
    # Of a direction that nobody knows, nothing is known: both are closed rather than one open by a slip.
    known = {word for word in named if word in ("Ingress", "Egress")}
    return known if len(known) == len(set(named)) and known else {"Ingress", "Egress"}


def _read_rules(spec: Section, key: str, peers: str) -> tuple[Rule, ...]:
    found = []
    for index, raw in enumerate(spec.items(key, _MOST)):
        rule = Section(raw if raw is not None else {}, f"{spec.name(key)}[{index}]", spec.notes)
        if raw is None or isinstance(raw, Mapping):
            found.append(Rule(_read_list(rule, peers, _read_peer), _read_list(rule, "ports", _read_port)))
        rule.done()
    return tuple(found)


def _read_list(rule: Section, key: str, read: Callable[[Section], T | None]) -> tuple[T, ...] | None:
    """None where the list is absent or empty, which is everything; what can't be read is left out, and so allows
    nothing.
    """
    raw = rule.items(key, _MOST)
    if not raw:
        return () if rule.get(key) not in (None, []) else None
    found = []
    for index, one in enumerate(raw):
        section = Section(one, f"{rule.name(key)}[{index}]", rule.notes)
        value = read(section) if isinstance(one, Mapping) else None
        if one is None:
            rule.notes.add(section.path, None, "must be a mapping")
        section.done()
        if value is not None:
            found.append(value)
    return tuple(found)


def _read_peer(section: Section) -> Peer | None:
    before = len(section.notes.problems)
    block = section.section("ipBlock")
    pods, namespaces = section.section("podSelector"), section.section("namespaceSelector")
    if block is not None and (pods is not None or namespaces is not None):
        section.problem("ipBlock", ABSENT, "must stand alone, without podSelector and namespaceSelector")
    if block is None and pods is None and namespaces is None:
        section.notes.add(section.path, ABSENT, "must have an ipBlock, a podSelector or a namespaceSelector")
    found: Peer | None
    if block is not None:
        found = _read_block(block)
    else:
        found = PodPeer(read_selector(pods) if pods is not None else None,
                        read_selector(namespaces) if namespaces is not None else None)
    return found if len(section.notes.problems) == before else None


def _read_block(section: Section) -> IPBlock | None:
    cidr = section.parsed("cidr", _legacy_network) if section.required("cidr") else None
    excepted = []
    for index, text in enumerate(section.texts("except", _MOST)):
        field = f"except[{index}]"
        try:
            network = _legacy_network(text)
        except ValueError as error:
            section.problem(field, text, str(error))
            continue
        if cidr is not None and (network == cidr or not within(network, [cidr])):
            section.problem(field, text, f"must lie in {cidr}, and not be all of it")
        excepted.append(network)
    section.done()
    return IPBlock(cidr, tuple(excepted)) if cidr is not None else None


def _legacy_network(text: str) -> Network:
    """A CIDR as Kubernetes has always read it: host bits are masked off, leading zeros are decimal."""
    address, slash, length = text.partition("/")
    if "." in address:
        head, colon, tail = address.rpartition(":")
        tail = ".".join(part.lstrip("0") or "0" if part.isascii() and part.isdigit() else part
                        for part in tail.split("."))
        address = f"{head}{colon}{tail}"
    try:
        return _unmapped(parse_network(f"{address}{slash}{length.lstrip('0') or length[:1]}"))
    except ValueError:
        raise ValueError("is not a CIDR (address/length)") from None


def _unmapped(network: Network) -> Network:
    """``::ffff:10.0.0.0/104`` is ``10.0.0.0/8``: no packet has the former."""
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is None or network.prefixlen < 96:
        return network
    return parse_network(f"{mapped}/{network.prefixlen - 96}")


def _read_port(section: Section) -> Port | None:
    before = len(section.notes.problems)
    protocol = Protocol.TCP
    word = section.text("protocol")
    if word is not None:
        if word in Protocol.__members__:
            protocol = Protocol[word]
        else:
            section.problem("protocol", word, f"must be one of {', '.join(Protocol.__members__)}")
    port, end = section.get("port"), section.integer("endPort", 1, LAST_PORT)
    if end is not None and (isinstance(port, str) or port is None):
        section.problem("endPort", end, "needs a port that is a number")
    found: Port
    if isinstance(port, str):
        _check_port_name(section, port)
        found = PortName(protocol, port)
    elif port is None:
        found = PortRange(protocol)
    else:
        first = section.integer("port", 1, LAST_PORT) or 0
        if end is not None and end < first:
            section.problem("endPort", end, f"must be at least port, which is {first}")
        found = PortRange(protocol, first, first if end is None else end)
    return found if len(section.notes.problems) == before else None


def _check_port_name(section: Section, name: str) -> None:
    """RFC 6335 section 5.1, as Kubernetes' IsValidPortName."""
    allowed = name.isascii() and all(char.isdigit() or char.islower() or char == "-" for char in name)
    if (not allowed or not 1 <= len(name) <= 15 or not any(char.isalpha() for char in name) or "--" in name
            or name[0] == "-" or name[-1] == "-"):
        section.problem("port", printable(name, 40), "must be a number from 1 to 65535, or a name of at most 15 "
                        "lower-case letters, digits and '-' with a letter among them")
