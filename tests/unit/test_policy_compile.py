"""Merged programs and gathered sets give the same answer as the specification read rule by rule."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.policy_worlds import in_block, packets_of, worlds

from flock.api.network_policy import IPBlock, NetworkPolicy, PortRange, Protocol, Rule
from flock.model.family import parse_network
from flock.policy.compile import EVERYBODY, Peers, PortPeers, Program, compile_egress, compile_ingress
from flock.policy.explain import Direction, Packet, judge
from flock.policy.gather import Gatherer, packed_port
from flock.policy.world import Member, World

Rules = settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


class Simulated:
    """A program as the kernel would run it, over the sets of a gatherer."""

    def __init__(self, gatherer: Gatherer, program: Program) -> None:
        self._gatherer = gatherer
        self._program = program

    def allows(self, packet: Packet, other: bytes) -> bool:
        program = self._program
        if self._has(program.anywhere, other):
            return True
        if packet.port is None:
            return False
        for one in program.ports:
            if one.protocol.value == packet.protocol and one.first <= packet.port <= one.last:
                return self._has(one.peers, other) or self._named(packet, other)
        return self._named(packet, other)

    def _named(self, packet: Packet, other: bytes) -> bool:
        if not self._program.named or packet.port is None:
            return False
        return packed_port(other, Protocol(packet.protocol), packet.port) in self._elements(self._program.named)

    def _has(self, peers: Peers, other: bytes) -> bool:
        if peers.everybody or (peers.sources and other in self._elements(peers.sources)):
            return True
        return any(in_block(block, other) for block in peers.blocks)

    def _elements(self, gathering: frozenset[object]) -> frozenset[bytes]:
        self._gatherer.hold(gathering)  # type: ignore[arg-type]
        found = self._gatherer.elements(gathering)  # type: ignore[arg-type]
        self._gatherer.release(gathering)  # type: ignore[arg-type]
        return found


def gatherer_of(world: World) -> Gatherer:
    gatherer = Gatherer()
    for name, labels in world.namespaces.items():
        gatherer.put_namespace(name, labels)
    for member in world.members.values():
        gatherer.put_pod(member)
    return gatherer


def selecting(world: World, subject: Member) -> list[NetworkPolicy]:
    return [policy for policy in world.policies.values()
            if policy.namespace == subject.namespace and policy.selector.matches(subject.labels)]


@Rules
@given(st.data())
def test_R15_a_program_allows_what_the_specification_allows(data: st.DataObject) -> None:
    world = data.draw(worlds())
    gatherer = gatherer_of(world)
    for subject in world.subjects():
        policies = selecting(world, subject)
        incoming = [policy for policy in policies if policy.ingress is not None]
        outgoing = [policy for policy in policies if policy.egress is not None]
        into = Simulated(gatherer, compile_ingress(incoming, subject.ports))
        out = Simulated(gatherer, compile_egress(outgoing))
        for packet in data.draw(st.lists(packets_of(world), max_size=12)):
            if incoming:
                arriving = Packet(source=packet.source, target=subject.addresses[0], protocol=packet.protocol,
                                  port=packet.port)
                assert into.allows(arriving, packet.source) is judge(
                    world, subject, arriving, Direction.INGRESS).allowed
            if outgoing:
                leaving = Packet(source=subject.addresses[0], target=packet.target, protocol=packet.protocol,
                                 port=packet.port)
                assert out.allows(leaving, packet.target) is judge(
                    world, subject, leaving, Direction.EGRESS).allowed


def allowing(*rules: Rule) -> NetworkPolicy:
    return NetworkPolicy(namespace="blue", name="p", ingress=rules)


def test_a_thousand_policies_with_the_same_port_are_one_look_up() -> None:
    blocks = [IPBlock(parse_network(f"10.{number >> 8}.{number & 255}.0/24")) for number in range(1000)]
    program = compile_ingress([allowing(Rule((block,), (PortRange(Protocol.TCP, 80, 80),))) for block in blocks], ())
    assert program.ports == (PortPeers(Protocol.TCP, 80, 80, Peers(blocks=frozenset(blocks))),)


def test_ranges_that_overlap_are_cut_where_their_peers_change() -> None:
    one, other = (IPBlock(parse_network(text)) for text in ("10.0.0.0/8", "192.0.2.0/24"))
    program = compile_ingress([allowing(Rule((one,), (PortRange(Protocol.TCP, 80, 90),)),
                                        Rule((other,), (PortRange(Protocol.TCP, 85, 95),)))], ())
    both = Peers(blocks=frozenset([one, other]))
    assert program.ports == (
        PortPeers(Protocol.TCP, 80, 84, Peers(blocks=frozenset([one]))),
        PortPeers(Protocol.TCP, 85, 90, both),
        PortPeers(Protocol.TCP, 91, 95, Peers(blocks=frozenset([other]))),
    )


def test_who_may_use_every_port_is_asked_once() -> None:
    block = IPBlock(parse_network("10.0.0.0/8"))
    program = compile_ingress([allowing(Rule((block,)), Rule((block,), (PortRange(Protocol.TCP, 80, 80),)))], ())
    assert program == Program(anywhere=Peers(blocks=frozenset([block])))


def test_everybody_on_every_port_is_all_there_is_to_say() -> None:
    block = IPBlock(parse_network("10.0.0.0/8"))
    program = compile_ingress([allowing(Rule((block,), (PortRange(Protocol.TCP, 80, 80),))), allowing(Rule())], ())
    assert program == Program(anywhere=EVERYBODY)
