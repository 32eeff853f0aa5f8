"""Would this packet pass, and which rule says so: NetworkPolicy read from its specification, rule by rule. Pure.

The operator's answer, the judge of flows that a change forbids, and the tests' oracle. Invariant: it shares no code
with ``select`` and ``compile``, so that a mistake in one of them shows as a difference.

Sources: k8s.io/api networking/v1 types.go; the NetworkPolicy page of the Kubernetes documentation.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from ipaddress import ip_address

import msgspec

from flock.api.network_policy import IPBlock, NetworkPolicy, Peer, PodPeer, Port, PortRange, Protocol, Rule
from flock.policy.world import Key, Member, World


class Direction(Enum):
    """As seen from the pod that a policy selects."""

    INGRESS = "ingress"
    EGRESS = "egress"

    # Enum's own is in Python, and every pod's entries go by direction.
    __hash__ = object.__hash__


class Packet(msgspec.Struct, frozen=True, kw_only=True):
    """A flow's first packet, as it is on the node's forward path: after a Service's address was translated, before
    masquerading. Addresses are packed; ``protocol`` is the IANA number, ``port`` the destination's, None where the
    protocol has none.
    """

    source: bytes
    target: bytes
    protocol: int = Protocol.TCP.value
    port: int | None = None


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """What one pod's policies say in one direction. ``rule`` is the number, from 0, of the rule of ``policy`` that
    allows; where none does, ``policies`` are those that isolate.
    """

    direction: Direction
    subject: Member
    allowed: bool
    policy: Key | None = None
    rule: int | None = None
    policies: tuple[Key, ...] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether this node lets a packet pass, and by which rulings: none where no pod of it has a say."""

    allowed: bool
    rulings: tuple[Ruling, ...] = ()


def explain(world: World, packet: Packet) -> Verdict:
    """Judge a packet: the source's egress, then the destination's ingress, for the ends that are pods of this node."""
    if packet.source in world.node or packet.target in world.node:
        return Verdict(allowed=True)
    rulings = [*_rulings(world, packet, Direction.EGRESS), *_rulings(world, packet, Direction.INGRESS)]
    return Verdict(allowed=all(one.allowed for one in rulings), rulings=tuple(rulings))


def _rulings(world: World, packet: Packet, direction: Direction) -> Iterator[Ruling]:
    own = packet.source if direction is Direction.EGRESS else packet.target
    for subject in world.subjects():
        if own in subject.addresses:
            yield judge(world, subject, packet, direction)


def judge(world: World, subject: Member, packet: Packet, direction: Direction) -> Ruling:
    """What the policies that select one pod of this node say."""
    selecting = [policy for _, policy in sorted(world.policies.items())
                 if policy.namespace == subject.namespace and policy.selector.matches(subject.labels)
                 and _rules(policy, direction) is not None]
    for policy in selecting:
        for number, rule in enumerate(_rules(policy, direction) or ()):
            if _allows(_Question(world, policy, subject, packet, direction), rule):
                return Ruling(direction=direction, subject=subject, allowed=True, rule=number,
                              policy=(policy.namespace, policy.name))
    return Ruling(direction=direction, subject=subject, allowed=not selecting,
                  policies=tuple((policy.namespace, policy.name) for policy in selecting))


def _rules(policy: NetworkPolicy, direction: Direction) -> tuple[Rule, ...] | None:
    return policy.ingress if direction is Direction.INGRESS else policy.egress


class _Question(msgspec.Struct, frozen=True):
    """What is asked of each rule."""

    world: World
    policy: NetworkPolicy
    subject: Member
    packet: Packet
    direction: Direction

    @property
    def other(self) -> bytes:
        return self.packet.target if self.direction is Direction.EGRESS else self.packet.source

    def owners(self) -> list[Member]:
        """The pods that have the other end's address."""
        return [member for member in self.world.members.values() if self.other in member.addresses]

    def receivers(self) -> Sequence[Member]:
        """The pods at the receiving end, whose names for ports count."""
        return [self.subject] if self.direction is Direction.INGRESS else self.owners()


def _allows(asked: _Question, rule: Rule) -> bool:
    if rule.peers is not None and not any(_is_peer(asked, peer) for peer in rule.peers):
        return False
    return rule.ports is None or any(_is_port(asked, port) for port in rule.ports)


def _is_peer(asked: _Question, peer: Peer) -> bool:
    if isinstance(peer, IPBlock):
        address = ip_address(asked.other)
        return (address.version == peer.cidr.version and address in peer.cidr
                and not any(address.version == hole.version and address in hole for hole in peer.excepted))
    return any(_is_meant(asked, peer, owner) for owner in asked.owners())


def _is_meant(asked: _Question, peer: PodPeer, owner: Member) -> bool:
    if peer.namespaces is None:
        if owner.namespace != asked.policy.namespace:
            return False
    else:
        labels = asked.world.namespaces.get(owner.namespace)
        if labels is None or not peer.namespaces.matches(labels):
            return False
    return peer.pods is None or peer.pods.matches(owner.labels)


def _is_port(asked: _Question, port: Port) -> bool:
    number = asked.packet.port
    if number is None or asked.packet.protocol != port.protocol.value:
        return False
    if isinstance(port, PortRange):
        return port.first <= number <= port.last
    wanted = (port.name, number, port.protocol.name)
    return any((one.name, one.port, one.protocol) == wanted for owner in asked.receivers() for one in owner.ports)
