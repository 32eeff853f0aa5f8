"""A program as chains, sets and maps of ``inet flock``: which there are, how they are named, what they say. Pure.

Invariant: a name is a digest of what it names, so a chain, a port map or a set of CIDRs never changes once it is there:
another content is another name, and a change of policy puts new ones beside the old, moves the pods over, and removes
what nobody uses, in one transaction. Sets of pods' addresses are named by whose addresses they hold, and their elements
come and go.

Sources: nft(8). How long each look-up takes, and so what stands in line and what in a set: ``docs/policy.md``.
"""

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address

import msgspec

from flock.api.network_policy import LAST_PORT, IPBlock
from flock.model.family import FAMILIES, Family, Network, family_of
from flock.policy.compile import EVERYBODY, Peers, PortPeers, Program
from flock.policy.explain import Direction
from flock.policy.gather import Gathering
from flock.policy.sources import Source, identity

INLINE_PORTS = 2
INLINE_SOURCES = 4
INLINE_BLOCKS = {Family.IPV6: 4, Family.IPV4: 8}
LOG_GROUP = 100
_LOG = f"group {LOG_GROUP} snaplen 64 queue-threshold 16"
_IP = {Family.IPV6: "ip6", Family.IPV4: "ip"}
_NFPROTO = {Family.IPV6: "ipv6", Family.IPV4: "ipv4"}
_PREFIX = {Direction.INGRESS: "in", Direction.EGRESS: "eg"}
_OTHER = {Direction.INGRESS: "saddr", Direction.EGRESS: "daddr"}


class Chain(msgspec.Struct, frozen=True):
    """One chain and its rules, as nft reads them."""

    name: str
    rules: tuple[str, ...]


class PortMap(msgspec.Struct, frozen=True):
    """Where a packet goes by its protocol and port; ``elements`` as nft reads them."""

    name: str
    ranged: bool
    elements: tuple[str, ...]


class BlockSet(msgspec.Struct, frozen=True):
    """Ranges of ``protocol . address`` that don't overlap, of every protocol; ``elements`` as nft reads them."""

    name: str
    family: Family
    elements: tuple[str, ...]


class Fragment(msgspec.Struct, frozen=True, kw_only=True):
    """All that one program needs; ``entry`` is the chain that a pod's packets enter, "" where all of them pass."""

    entry: str
    chains: tuple[Chain, ...] = ()
    maps: tuple[PortMap, ...] = ()
    blocks: tuple[BlockSet, ...] = ()
    gatherings: frozenset[Gathering] = frozenset()


def render_program(program: Program, direction: Direction) -> Fragment:
    """The fragment of a program."""
    if program.anywhere.everybody:
        return Fragment(entry="")
    return _Renderer(direction).fragment(program)


@lru_cache(maxsize=8192)
def set_name(gathering: Gathering, family: Family) -> str:
    """The set of one family that holds a gathering."""
    return f"{'n' if has_ports(gathering) else 's'}{_digest(sorted(map(identity, gathering)))}_{family.suffix}"


def has_ports(gathering: Gathering) -> bool:
    """Whether its elements are addresses with protocols and ports, not addresses alone."""
    return any(source.port is not None for source in gathering)


class _Renderer:
    """Writes one program down."""

    def __init__(self, direction: Direction) -> None:
        self._direction = direction
        self._address = _OTHER[direction]
        self._chains: dict[str, Chain] = {}
        self._maps: list[PortMap] = []
        self._blocks: dict[str, BlockSet] = {}
        self._gatherings: set[Gathering] = set()

    def fragment(self, program: Program) -> Fragment:
        rules = [*self._peers(program.anywhere), *self._ports(program.ports), *self._named(program.named)]
        name = f"{_PREFIX[self._direction]}_{_digest(rules)}"
        rules += [f'limit rate 10/second burst 20 packets log prefix "{name}" {_LOG}', f'counter drop comment "{name}"']
        self._chains[name] = Chain(name, tuple(rules))
        return Fragment(entry=name, chains=tuple(self._chains.values()), maps=tuple(self._maps),
                        blocks=tuple(self._blocks.values()), gatherings=frozenset(self._gatherings))

    def _ports(self, ports: tuple[PortPeers, ...]) -> Iterator[str]:
        if len(ports) <= INLINE_PORTS:
            for one in ports:
                yield from self._peers(one.peers, f"{_port_match(one)} ")
            return
        ranged = any(one.first != one.last for one in ports)
        elements = tuple(f"{one.protocol.name.lower()} . {_range(one)} : {self._group(one.peers)}" for one in ports)
        name = f"pm_{_digest(elements)}"
        self._maps.append(PortMap(name, ranged, elements))
        yield f"meta l4proto . th dport vmap @{name}"

    def _group(self, peers: Peers) -> str:
        """The verdict for the ports that some peers may use: who isn't among them comes back, and is dropped."""
        if peers == EVERYBODY:
            return "accept"
        rules = tuple(self._peers(peers))
        name = f"g_{self._address[0]}{_digest(rules)}"
        self._chains[name] = Chain(name, rules)
        return f"jump {name}"

    def _named(self, named: frozenset[Source]) -> Iterator[str]:
        if not named:
            return
        self._gatherings.add(named)
        for family in FAMILIES:
            yield f"{_IP[family]} daddr . meta l4proto . th dport @{set_name(named, family)} accept"

    def _peers(self, peers: Peers, match: str = "") -> Iterator[str]:
        if peers.everybody:
            yield f"{match}accept"
            return
        some = sorted(peers.sources, key=identity)
        for gathering in [frozenset(some)] if len(some) > INLINE_SOURCES else [frozenset([one]) for one in some]:
            self._gatherings.add(gathering)
            for family in FAMILIES:
                yield f"{match}{_IP[family]} {self._address} @{set_name(gathering, family)} accept"
        for family in FAMILIES:
            yield from self._cidrs([one for one in peers.blocks if family_of(one.cidr) is family], family, match)

    def _cidrs(self, blocks: list[IPBlock], family: Family, match: str) -> Iterator[str]:
        if sum(1 + len(block.excepted) for block in blocks) <= INLINE_BLOCKS[family]:
            for block in sorted(blocks, key=str):
                yield f"{match}{self._cidr(block, family)}accept"
            return
        # Ranges of a concatenation are found faster than those of one field, and nft 1.0.6 survives who wrote them.
        elements = tuple(f"0-255 . {_interval(first, last, family)}" for first, last in _spans(blocks))
        name = f"b{_digest(elements)}_{family.suffix}"
        self._blocks[name] = BlockSet(name, family, elements)
        yield f"{match}meta l4proto . {_IP[family]} {self._address} @{name} accept"

    def _cidr(self, block: IPBlock, family: Family) -> str:
        head = f"{_IP[family]} {self._address}"
        inside = f"{head} {block.cidr} " if block.cidr.prefixlen else f"meta nfproto {_NFPROTO[family]} "
        return inside + "".join(f"{head} != {hole} " for hole in sorted(set(block.excepted), key=str))


def _port_match(one: PortPeers) -> str:
    word = one.protocol.name.lower()
    return f"meta l4proto {word}" if (one.first, one.last) == (0, LAST_PORT) else f"{word} dport {_range(one)}"


def _range(one: PortPeers) -> str:
    return str(one.first) if one.first == one.last else f"{one.first}-{one.last}"


def _spans(blocks: Iterable[IPBlock]) -> Iterator[tuple[int, int]]:
    """The addresses of all blocks as numbers: sorted ranges that neither overlap nor touch."""
    ranges = sorted(span for block in blocks for span in _without(_span(block.cidr), block.excepted))
    first = last = -1
    for low, high in ranges:
        if first >= 0 and low <= last + 1:
            last = max(last, high)
            continue
        if first >= 0:
            yield first, last
        first, last = low, high
    if first >= 0:
        yield first, last


def _without(span: tuple[int, int], holes: Iterable[Network]) -> Iterator[tuple[int, int]]:
    low, end = span
    for first, last in sorted(map(_span, holes)):
        if first > low:
            yield low, min(first - 1, end)
        low = max(low, last + 1)
    if low <= end:
        yield low, end


def _span(network: Network) -> tuple[int, int]:
    return int(network.network_address), int(network.broadcast_address)


def _interval(first: int, last: int, family: Family) -> str:
    form = IPv6Address if family is Family.IPV6 else IPv4Address
    return str(form(first)) if first == last else f"{form(first)}-{form(last)}"


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

