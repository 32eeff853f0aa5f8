"""The BGP part of a NodeConfig: types, and the checks of a peer that BIRD makes for the whole file or not at all. Pure.

Invariant: a ``Peer`` that exists can be rendered alone. A bad one is kept apart as ``BadPeer``, so that it never takes
the others down with it. Sources: RFC 4271, RFC 7607 (AS 0), RFC 4893 (AS 23456), RFC 4724 (restart time of 12 bits),
RFC 8092 (large communities), RFC 5880; and what BIRD 2.0.12 to 3.4.0 was seen to do with each.
"""

import re
from enum import Enum
from ipaddress import IPv4Address

import msgspec

from flock.api.cidrs import special_kind
from flock.api.problems import Problem
from flock.api.reader import Notes, Section
from flock.model.family import FAMILIES, Address, Family, parse_address
from flock.model.ids import parse_ifname

MAX_U16 = 65535
MAX_U32 = 4294967295
PEER_NAME_LIMIT = 253
DEFAULT_RESTART_TIME = 120.0
MOST_RESTART_TIME = 4095
BFD_INTERVAL = (0.01, 60.0)
MOST_HOPS = 255
MOST_MULTIPLIER = 255
MOST_COMMUNITIES = 64

MOST_PEERS = 64
"""Sessions of one node; the API server's rules on pairs of peers need a bound, too."""

RESERVED_AS = frozenset({0, 23456, 65535, MAX_U32})
INTERFACE = re.compile(r"[A-Za-z0-9_.@+~=,-]+")
SECRET_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
SECRET_KEY = re.compile(r"[A-Za-z0-9._-]{1,253}")
COMMUNITY = re.compile(r"[0-9]{1,10}(:[0-9]{1,10}){1,2}")


class ImportPolicy(Enum):
    """What a peer may tell this node."""

    NONE = "none"
    DEFAULT_ROUTE = "default-route"
    ALL = "all"


class SecretRef(msgspec.Struct, frozen=True):
    """Where a password is kept."""

    name: str
    key: str


class Bfd(msgspec.Struct, frozen=True):
    """Bidirectional forwarding detection; ``interval`` in seconds."""

    interval: float = 0.3
    multiplier: int = 3


class Community(msgspec.Struct, frozen=True):
    """A BGP community of two parts, or a large one of three."""

    parts: tuple[int, ...]

    @property
    def large(self) -> bool:
        return len(self.parts) == 3

    def __str__(self) -> str:
        return ":".join(map(str, self.parts))


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """One neighbour. ``interface`` is set where ``address`` is link-local; ``graceful_restart`` is in seconds."""

    name: str
    address: Address
    asn: int
    interface: str | None = None
    password_secret: SecretRef | None = None
    families: tuple[Family, ...] = FAMILIES
    graceful_restart: float | None = None
    bfd: Bfd | None = None
    multihop: int | None = None
    local_pref: int | None = None
    communities: tuple[Community, ...] = ()
    import_: ImportPolicy = ImportPolicy.NONE


class BadPeer(msgspec.Struct, frozen=True):
    """A peer that is left out, and everything that is wrong with it."""

    name: str
    problems: tuple[Problem, ...]


class Bgp(msgspec.Struct, frozen=True, kw_only=True):
    """How this node speaks BGP."""

    asn: int
    router_id: IPv4Address | None = None
    mesh: bool = False
    peers: tuple[Peer, ...] = ()
    bad_peers: tuple[BadPeer, ...] = ()


def read_bgp(section: Section) -> Bgp:
    """The whole ``bgp`` mapping; bad peers are in ``bad_peers``, what else is wrong in the section's notes."""
    asn = _read_asn(section)
    router_id = section.parsed("routerID", _parse_router_id)
    mesh = section.flag("mesh") or False
    peers, bad = _read_peers(section)
    section.done()
    return Bgp(asn=asn or 0, router_id=router_id, mesh=mesh, peers=peers, bad_peers=bad)


def _read_peers(section: Section) -> tuple[tuple[Peer, ...], tuple[BadPeer, ...]]:
    good: list[Peer] = []
    bad: list[BadPeer] = []
    for index, raw in enumerate(section.items("peers", MOST_PEERS)):
        notes = Notes()
        peer_section = Section(raw, f"{section.name('peers')}[{index}]", notes)
        peer = _read_peer(peer_section)
        section.notes.unknown.extend(notes.unknown)
        if peer is not None:
            _check_twins(peer, good, peer_section)
        if peer is not None and not notes.problems:
            good.append(peer)
        else:
            name = peer_section.get("name")
            label = name if isinstance(name, str) and _name_rule(name) is None else f"peers[{index}]"
            bad.append(BadPeer(label, tuple(notes.problems)))
    return tuple(good), tuple(bad)


def _check_twins(peer: Peer, earlier: list[Peer], section: Section) -> None:
    """Two sessions with one neighbour: the second would sleep silently; two of one name can't be told apart."""
    for other in earlier:
        if other.name == peer.name:
            section.problem("name", peer.name, "is another peer's name, too")
        if (other.address, other.interface) == (peer.address, peer.interface):
            section.problem("address", str(peer.address), f'is the address of peer "{other.name}", too')


def _read_peer(section: Section) -> Peer | None:
    name = section.parsed("name", _parse_name) if section.required("name") else None
    asn = _read_asn(section)
    address, interface = _read_neighbour(section)
    multihop = section.integer("multihop", 1, MOST_HOPS)
    if multihop is not None and interface is not None:
        section.problem("multihop", multihop, f'goes with no interface ("{interface}") and no link-local address')
    peer_rest = _read_options(section, address)
    section.done()
    if name is None or asn is None or address is None:
        return None
    return msgspec.structs.replace(
        peer_rest, name=name, asn=asn, address=address, interface=interface, multihop=multihop
    )


def _read_options(section: Section, address: Address | None) -> Peer:
    """The fields of a peer that stand alone, on a peer whose others are still to be set."""
    word = section.text("import")
    policy = next((known for known in ImportPolicy if known.value == word), None)
    if word is not None and policy is None:
        section.problem("import", word, f"must be one of {', '.join(known.value for known in ImportPolicy)}")
    session = address if address is not None else IPv4Address(0)
    return Peer(
        name="",
        address=session,
        asn=0,
        password_secret=_read_secret(section),
        families=_read_families(section, session),
        graceful_restart=_read_restart(section),
        bfd=_read_bfd(section),
        local_pref=section.integer("localPref", 0, MAX_U32),
        communities=_read_communities(section),
        import_=policy or ImportPolicy.NONE,
    )


def _read_asn(section: Section) -> int | None:
    if not section.required("asn"):
        return None
    asn = section.integer("asn", 1, MAX_U32 - 1)
    if asn in RESERVED_AS:
        section.problem("asn", asn, "is a reserved AS number")
        return None
    return asn


def _read_neighbour(section: Section) -> tuple[Address | None, str | None]:
    """Address and interface; ``fe80::1%eth0`` names both at once."""
    interface = section.parsed("interface", _parse_interface)
    text = section.text("address") if section.required("address") else None
    if text is None:
        return None, interface
    bare, percent, zone = text.partition("%")
    try:
        address = parse_address(bare)
    except ValueError:
        section.problem("address", text, "is not an IP address")
        return None, interface
    kind = special_kind(address)
    if kind is not None and kind != "link-local":
        section.problem("address", text, f"is {kind}, no neighbour's address")
    if ":" in bare and address.version == 4:
        section.problem("address", text, "is IPv4-mapped; write it as IPv4")
    if percent:
        interface = _merge_zone(section, interface, zone)
    if kind == "link-local" and interface is None and section.get("interface") is None and not percent:
        section.problem("address", text, "is link-local and needs an interface")
    return address, interface


def _merge_zone(section: Section, interface: str | None, zone: str) -> str | None:
    try:
        named = _parse_interface(zone)
    except ValueError as error:
        section.problem("address", zone, f"as interface {error}")
        return interface
    if interface is not None and interface != named:
        section.problem("interface", interface, f'is not the interface in the address ("{named}")')
    return named


def _read_families(section: Section, address: Address) -> tuple[Family, ...]:
    """The channels of a session; over an IPv6 one both by default (RFC 8950), over an IPv4 one IPv4 alone."""
    if section.get("families") is None:
        return FAMILIES if address.version == 6 else (Family.IPV4,)
    words = section.texts("families")
    known = {family.label.lower(): family for family in FAMILIES}
    for word in words:
        if word not in known:
            section.problem("families", word, f"must be one of {', '.join(known)}")
    found = tuple(family for label, family in known.items() if label in words)
    if not words:
        section.problem("families", [], "must name a family")
    if len(words) != len(set(words)):
        section.problem("families", words, "names a family twice")
    return found


def _read_secret(section: Section) -> SecretRef | None:
    secret = section.section("passwordSecretRef")
    if secret is None:
        return None
    name = secret.text("name") if secret.required("name") else None
    key = secret.text("key") if secret.required("key") else None
    secret.done()
    if name is not None and not SECRET_NAME.fullmatch(name):
        secret.problem("name", name, "is not the name of a Secret")
    if key is not None and not SECRET_KEY.fullmatch(key):
        secret.problem("key", key, "is not a key of a Secret")
    return SecretRef(name, key) if name is not None and key is not None else None


def _read_restart(section: Section) -> float | None:
    restart = section.section("gracefulRestart")
    if restart is None:
        return None
    seconds = restart.duration("restartTime", 1, MOST_RESTART_TIME)
    restart.done()
    if seconds is not None and seconds != int(seconds):
        restart.problem("restartTime", f"{seconds:g}s", "must be whole seconds")
    return DEFAULT_RESTART_TIME if seconds is None else seconds


def _read_bfd(section: Section) -> Bfd | None:
    bfd = section.section("bfd")
    if bfd is None:
        return None
    interval = bfd.duration("interval", *BFD_INTERVAL)
    multiplier = bfd.integer("multiplier", 1, MOST_MULTIPLIER)
    bfd.done()
    return Bfd(Bfd().interval if interval is None else interval, Bfd().multiplier if multiplier is None else multiplier)


def _read_communities(section: Section) -> tuple[Community, ...]:
    found: dict[Community, None] = {}
    for text in section.texts("communities", MOST_COMMUNITIES):
        parts = tuple(map(int, text.split(":"))) if COMMUNITY.fullmatch(text) else ()
        if not parts or max(parts) > (MAX_U16 if len(parts) == 2 else MAX_U32):
            section.problem("communities", text, "must be two parts up to 65535 or three up to 4294967295 (64513:100)")
        else:
            found[Community(parts)] = None
    return tuple(found)


def _parse_router_id(text: str) -> IPv4Address:
    try:
        address = IPv4Address(text)
    except ValueError:
        raise ValueError("must look like an IPv4 address") from None
    if address.is_loopback or address.is_multicast or address.packed[0] == 0 or address == IPv4Address(MAX_U32):
        raise ValueError("must not be 0, loopback, multicast or broadcast")
    return address


def _parse_name(text: str) -> str:
    rule = _name_rule(text)
    if rule is not None:
        raise ValueError(rule)
    return text


def _name_rule(text: str) -> str | None:
    if not 1 <= len(text) <= PEER_NAME_LIMIT:
        return f"must be 1 to {PEER_NAME_LIMIT} characters long"
    if '"' in text or not text.isprintable() or not text.strip():
        return "must be printable, without quotation marks"
    return None


def _parse_interface(text: str) -> str:
    if not INTERFACE.fullmatch(text):
        raise ValueError("must be the name of one network interface")
    return parse_ifname(text)
