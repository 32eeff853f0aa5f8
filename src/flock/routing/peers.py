"""One peer: its name in BIRD, why it can't be rendered, and its filters and protocol as text. Pure.

Invariant: the name comes from what the session is (address and interface), so a peer that is renamed or moved in its
list keeps its session, and no word of a user is ever a name in BIRD: keywords differ between versions. Each text stands
alone behind the head of the file (`flock.routing.bird_config`), so that each can be tried alone.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from flock.api.bgp import ImportPolicy, Peer
from flock.model.family import FAMILIES, Address, Family, Network, family_of
from flock.model.text import shown
from flock.routing.text import PASSWORD_LIMIT, add_community, described, quoted

PEER_PREFIX = "peer_"
DEFAULT_RESTART_TIME = 120
IMPORT_LIMIT: Mapping[ImportPolicy, int] = {
    ImportPolicy.NONE: 1_000, ImportPolicy.DEFAULT_ROUTE: 1_000, ImportPolicy.ALL: 100_000,
}
"""Routes of one family from one peer; what is beyond stays out and the session stays up. BIRD's other actions loop, or
stay down, or write a line of log for each route."""

PATH_LIMIT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class BirdInputs:
    """Everything that BIRD's configuration is made of; nothing here changes with a pod or an anycast address.

    ``passwords`` holds the value of each peer's ``passwordSecretRef`` that is known, by the peer's name;
    ``own_addresses`` are the node's, none of which can be a neighbour; ``interfaces`` are the node's links, None where
    that isn't known; ``sources`` is the node's own address of a family, for sessions over several hops.
    """

    node: str
    router_id: IPv4Address
    asn: int = 0
    cidrs: tuple[Network, ...] = ()
    host_routes: tuple[Network, ...] = ()
    anycast_cidrs: tuple[Network, ...] = ()
    peers: tuple[Peer, ...] = ()
    drain: bool = False
    passwords: Mapping[str, str] = field(default_factory=dict)
    own_addresses: frozenset[Address] = frozenset()
    interfaces: frozenset[str] | None = None
    sources: Mapping[Family, Address] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerText:
    """A peer as BIRD reads it: ``name`` is the user's, ``protocol`` BIRD's."""

    name: str
    protocol: str
    text: str


def protocol_name(peer: Peer) -> str:
    """The peer's name in BIRD: at most 64 characters, and one that isn't hexadecimal, which BIRD reads as bytes."""
    identity = f"{peer.address}%{peer.interface or ''}"
    return f"{PEER_PREFIX}x{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def why_not(peer: Peer, inputs: BirdInputs) -> str | None:
    """Why this peer can't be on this node: what BIRD takes without a word and then sleeps or crashes on."""
    if peer.address in inputs.own_addresses:
        return f"address {peer.address} is this node's own"
    if inputs.interfaces is not None and peer.interface is not None and peer.interface not in inputs.interfaces:
        return f"interface {shown(peer.interface)} isn't there"
    if peer.password_secret is not None and peer.name not in inputs.passwords:
        secret = peer.password_secret
        return f"passwordSecretRef {secret.name}/{secret.key} isn't known"
    if peer.multihop is not None and peer.bfd is not None and family_of(peer.address) not in inputs.sources:
        return f"multihop with bfd needs an own {family_of(peer.address).label} address, and none is known"
    return None


def render_peer(peer: Peer, inputs: BirdInputs) -> PeerText:
    """The peer's two filters and its protocol; ValueError says what can't be written."""
    protocol = protocol_name(peer)
    lines = [
        f"filter {protocol}_in {{", *_indented(_import_filter(peer)), "}",
        f"filter {protocol}_out {{", *_indented(_export_filter(peer, inputs)), "}",
        f"protocol bgp {protocol} {{", *_indented(_session(peer, inputs)),
        *_indented(_channel(peer, family, protocol) for family in FAMILIES if family in peer.families), "}",
    ]
    return PeerText(name=peer.name, protocol=protocol, text="\n".join(lines) + "\n")


def _import_filter(peer: Peer) -> Iterator[str]:
    if peer.import_ is ImportPolicy.NONE:
        yield "reject;"
        return
    yield "if net.type = NET_IP6 then { if net ~ FLOCK_OURS6 then reject; } else { if net ~ FLOCK_OURS4 then reject; }"
    yield f"if bgp_path.len > {PATH_LIMIT} then reject;"
    if peer.import_ is ImportPolicy.DEFAULT_ROUTE:
        yield "if net.len != 0 then reject;"
    if peer.local_pref is not None:
        yield f"bgp_local_pref = {peer.local_pref};"
    yield "accept;"


def _export_filter(peer: Peer, inputs: BirdInputs) -> Iterator[str]:
    # Only what was learned from the kernel, whose filter takes protocol number 71 alone.
    yield "if source != RTS_INHERIT then reject;"
    yield "if net.type = NET_IP6 then { if net !~ FLOCK_OUT6 then reject; } else { if net !~ FLOCK_OUT4 then reject; }"
    if peer.local_pref is not None and _internal(peer, inputs):
        yield f"bgp_local_pref = {peer.local_pref};"
    yield from map(add_community, peer.communities)
    yield "if FLOCK_DRAIN then bgp_community.add((65535,0));"  # GRACEFUL_SHUTDOWN, RFC 8326
    yield "accept;"


def _session(peer: Peer, inputs: BirdInputs) -> Iterator[str]:
    yield f"description {described(peer.name)};"
    source = inputs.sources.get(family_of(peer.address)) if peer.multihop is not None else None
    yield f"local{f' {source}' if source else ''} as {inputs.asn};"
    yield f"neighbor {peer.address} as {peer.asn};"
    if peer.interface is not None:
        yield f"interface {quoted(peer.interface, 15)};"
    if peer.multihop is not None:
        yield f"multihop {peer.multihop};"
    elif _internal(peer, inputs):
        # Internal sessions are multihop by default and resolve next hops in BIRD's own table, where none is known.
        yield "direct;"
    if not _internal(peer, inputs):
        yield "enforce first as on;"
    yield "hold time 9; keepalive time 3; connect delay time 1; connect retry time 10; error wait time 1, 30;"
    if peer.password_secret is not None:
        yield f"password {quoted(inputs.passwords[peer.name], PASSWORD_LIMIT)};"
    if (restart := _restart_time(peer)) is not None:
        yield f"graceful restart on; graceful restart time {restart};"
    if peer.bfd is not None:
        yield f"bfd {{ interval {round(peer.bfd.interval * 1000)} ms; multiplier {peer.bfd.multiplier}; }};"


def _restart_time(peer: Peer) -> int | None:
    """Graceful restart is on unless only BFD was asked for: a restart of BIRD costs no packet then."""
    if peer.graceful_restart is not None:
        return round(peer.graceful_restart)
    return DEFAULT_RESTART_TIME if peer.bfd is None else None


def _channel(peer: Peer, family: Family, protocol: str) -> str:
    # RFC 8950: IPv4 with IPv6 next hops, where the session is IPv6.
    extended = family is Family.IPV4 and family_of(peer.address) is Family.IPV6
    return (f"ipv{family.suffix} {{ {'extended next hop on; ' if extended else ''}next hop self; "
            f"import limit {IMPORT_LIMIT[peer.import_]} action block; "
            f"import filter {protocol}_in; export filter {protocol}_out; }};")


def _internal(peer: Peer, inputs: BirdInputs) -> bool:
    return peer.asn == inputs.asn


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
