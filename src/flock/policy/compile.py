"""All rules that apply to a pod in one direction, merged into the few look-ups that its packets meet. Pure.

Invariant: a program allows what at least one rule of one policy allows, and nothing else; its length depends on how
many different groups of peers there are, not on how many policies. Which rule allows a packet ``explain`` says.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

import msgspec

from flock.api.named_ports import NamedPort
from flock.api.network_policy import IPBlock, NetworkPolicy, Peer, PortName, PortRange, Protocol, Rule
from flock.policy.sources import Source, scope_of


class Peers(msgspec.Struct, frozen=True):
    """Whoever is meant: everybody, or the pods of ``sources`` and the addresses of ``blocks``."""

    everybody: bool = False
    sources: frozenset[Source] = frozenset()
    blocks: frozenset[IPBlock] = frozenset()

    def __bool__(self) -> bool:
        return self.everybody or bool(self.sources) or bool(self.blocks)

    def joined(self, other: "Peers") -> "Peers":
        if self.everybody or other.everybody:
            return EVERYBODY
        return Peers(False, self.sources | other.sources, self.blocks | other.blocks)

    def without(self, other: "Peers") -> "Peers":
        """Those that ``other`` doesn't name, too."""
        if other.everybody:
            return NOBODY
        return Peers(self.everybody, self.sources - other.sources, self.blocks - other.blocks)


EVERYBODY = Peers(everybody=True)
NOBODY = Peers()


class PortPeers(msgspec.Struct, frozen=True):
    """Who may use some ports, both ends included; the ports of a program's items never overlap."""

    protocol: Protocol
    first: int
    last: int
    peers: Peers


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What a packet is asked: does it come from (go to) ``anywhere``, who may use its port, is it for a port that its
    receiver calls by a name in ``named``. What passes nowhere is dropped.
    """

    anywhere: Peers = NOBODY
    ports: tuple[PortPeers, ...] = ()
    named: frozenset[Source] = frozenset()


def compile_ingress(policies: Iterable[NetworkPolicy], own_ports: Sequence[NamedPort]) -> Program:
    """The program for what reaches a pod that declares ``own_ports``."""
    found = _Merged()
    for namespace, rule in _rules(policies, ingress=True):
        found.add(rule, _peers(rule.peers, namespace), own_ports)
    return found.program()


def compile_egress(policies: Iterable[NetworkPolicy]) -> Program:
    """The program for what a pod sends."""
    found = _Merged()
    for namespace, rule in _rules(policies, ingress=False):
        peers = _peers(rule.peers, namespace)
        found.add(rule, peers, ())
        for port in rule.ports or ():
            if isinstance(port, PortName):
                found.named.update(_declaring(peers, port))
    return found.program()


def _rules(policies: Iterable[NetworkPolicy], *, ingress: bool) -> Iterator[tuple[str, Rule]]:
    for policy in policies:
        for rule in (policy.ingress if ingress else policy.egress) or ():
            yield policy.namespace, rule


def _peers(peers: Sequence[Peer] | None, namespace: str) -> Peers:
    if peers is None:
        return EVERYBODY
    return Peers(
        sources=frozenset(Source(scope_of(peer, namespace)) for peer in peers if not isinstance(peer, IPBlock)),
        blocks=frozenset(peer for peer in peers if isinstance(peer, IPBlock)),
    )


def _declaring(peers: Peers, port: PortName) -> Iterator[Source]:
    """The pods among ``peers`` that have a port of that name."""
    if peers.everybody:
        yield Source(None, port)
    for source in peers.sources:
        yield Source(source.where, port)
    for block in peers.blocks:
        yield Source(block, port)


class _Merged:
    """What is allowed so far."""

    def __init__(self) -> None:
        self.anywhere = NOBODY
        self.ranges: list[tuple[PortRange, Peers]] = []
        self.named: set[Source] = set()

    def add(self, rule: Rule, peers: Peers, own_ports: Sequence[NamedPort]) -> None:
        if rule.ports is None:
            self.anywhere = self.anywhere.joined(peers)
        for port in rule.ports or ():
            if isinstance(port, PortRange):
                self.ranges.append((port, peers))
            else:
                self.ranges.extend((PortRange(port.protocol, one.port, one.port), peers) for one in own_ports
                                   if (one.name, one.protocol) == (port.name, port.protocol.name))

    def program(self) -> Program:
        if self.anywhere.everybody:
            return Program(anywhere=EVERYBODY)
        ports = [
            segment for protocol in Protocol
            for segment in _segments(protocol, [(one.first, one.last, peers.without(self.anywhere))
                                                for one, peers in self.ranges if one.protocol is protocol])
        ]
        return Program(anywhere=self.anywhere, ports=tuple(ports), named=frozenset(self.named))


def _segments(protocol: Protocol, ranges: Sequence[tuple[int, int, Peers]]) -> Iterator[PortPeers]:
    """Ranges that may overlap, cut at each other's ends; neighbours with the same peers are one again."""
    cut = []
    starts: dict[int, list[tuple[int, Peers]]] = {}
    for first, last, peers in ranges:
        if peers:
            starts.setdefault(first, []).append((last, peers))
    bounds = sorted({edge for first, last, peers in ranges if peers for edge in (first, last + 1)})
    active: list[tuple[int, Peers]] = []
    for low, after in pairwise(bounds):
        active = [one for one in active if one[0] >= low] + starts.get(low, [])
        allowed = NOBODY
        for _, peers in active:
            allowed = allowed.joined(peers)
        if allowed:
            cut.append(PortPeers(protocol, low, after - 1, allowed))
    yield from _mended(cut)


def _mended(cut: Iterable[PortPeers]) -> Iterator[PortPeers]:
    """Segments that touch and have the same peers, as one."""
    for peers, some in groupby(cut, key=lambda one: one.peers):
        run: PortPeers | None = None
        for one in some:
            if run is not None and one.first == run.last + 1:
                run = PortPeers(run.protocol, run.first, one.last, peers)
                continue
            if run is not None:
                yield run
            run = one
        if run is not None:
            yield run
