"""Small worlds for policy, as dense as they can be: few names, so that everything meets everything."""

from ipaddress import IPv4Network, IPv6Network, ip_address

from hypothesis import strategies as st

from flock.api.named_ports import NamedPort
from flock.api.network_policy import IPBlock, NetworkPolicy, PodPeer, PortName, PortRange, Protocol, Rule
from flock.api.selector import Operator, Requirement, Selector
from flock.policy.explain import Packet
from flock.policy.world import Member, World

NAMESPACES = ("blue", "green", "red")
KEYS = ("app", "tier")
VALUES = ("a", "b", "c")
NAMES = ("web",)
PORTS = (80, 81, 8080)
OUTSIDE = (bytes([192, 0, 2, 7]), bytes([198, 51, 100, 9]), bytes.fromhex("20010db8ffff00000000000000000007"))
BLOCKS = ("10.0.0.0/30", "10.0.0.2/32", "10.0.0.0/8", "192.0.2.0/24", "0.0.0.0/0", "2001:db8::/126", "2001:db8::3/128",
          "2001:db8:ffff::/48", "::/0")

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
protocols = st.sampled_from(Protocol)


def requirement() -> st.SearchStrategy[Requirement]:
    values = st.frozensets(st.sampled_from(VALUES), min_size=1, max_size=2)
    with_values = st.builds(Requirement, st.sampled_from(KEYS), st.sampled_from([Operator.IN, Operator.NOT_IN]), values)
    bare = st.builds(Requirement, st.sampled_from(KEYS), st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST]))
    return with_values | bare


selectors = st.builds(Selector, st.lists(requirement(), max_size=2).map(tuple))


def network(text: str) -> IPv4Network | IPv6Network:
    return IPv6Network(text) if ":" in text else IPv4Network(text)


@st.composite
def block(draw: st.DrawFn) -> IPBlock:
    cidr = network(draw(st.sampled_from(BLOCKS)))
    inside = [one for one in map(network, BLOCKS)
              if one.version == cidr.version and one != cidr and one.subnet_of(cidr)]  # type: ignore[arg-type]
    return IPBlock(cidr, tuple(draw(st.lists(st.sampled_from(inside), max_size=2)) if inside else ()))


@st.composite
def port_range(draw: st.DrawFn) -> PortRange:
    protocol = draw(protocols)
    kind = draw(st.sampled_from(["all", "one", "range"]))
    if kind == "all":
        return PortRange(protocol)
    first = draw(st.sampled_from(PORTS))
    return PortRange(protocol, first, first if kind == "one" else first + draw(st.sampled_from([0, 1, 100, 8000])))


named = st.builds(PortName, st.sampled_from([Protocol.TCP, Protocol.UDP]), st.sampled_from(NAMES))
ports = named | port_range()
peers = block() | st.builds(PodPeer, selectors, st.none() | selectors) | st.builds(PodPeer, st.none(), selectors)
some = st.integers(min_value=0, max_value=7)
rules = st.builds(Rule, st.none() | st.lists(peers, max_size=6).map(tuple),
                  st.none() | st.lists(ports, max_size=4).map(tuple))
directions = st.none() | st.lists(rules, max_size=3).map(tuple)


@st.composite
def policies(draw: st.DrawFn) -> NetworkPolicy:
    return NetworkPolicy(namespace=draw(st.sampled_from(NAMESPACES)), name=draw(st.sampled_from("pqrs")),
                         selector=draw(selectors), ingress=draw(directions), egress=draw(directions))


def named_ports() -> st.SearchStrategy[tuple[NamedPort, ...]]:
    one = st.builds(NamedPort, st.sampled_from(NAMES), st.sampled_from(PORTS), st.sampled_from(["TCP", "UDP"]))
    return st.lists(one, max_size=3).map(tuple)


def addresses_of(number: int) -> tuple[bytes, bytes]:
    """What pod ``number`` of a world has at most."""
    return bytes([10, 0, 0, number + 1]), bytes.fromhex("20010db8") + bytes(11) + bytes([number + 1])


@st.composite
def worlds(draw: st.DrawFn) -> World:
    members = []
    for number in range(draw(st.integers(1, 6))):
        addresses = addresses_of(number)
        members.append(Member(
            namespace=draw(st.sampled_from(NAMESPACES)), name=f"pod-{number}", labels=draw(labels),
            addresses=addresses[: draw(st.integers(1, 2))], ports=draw(named_ports()),
            interface=f"flk{number}" if number % 2 == 0 else ""))
    known = draw(st.lists(st.sampled_from(NAMESPACES), unique=True, min_size=1))
    written = draw(st.lists(policies(), max_size=4))
    return World(
        policies={(one.namespace, one.name): one for one in written},
        namespaces={name: {**draw(labels), "kubernetes.io/metadata.name": name} for name in known},
        members={one.id: one for one in members},
    )


def packets_of(world: World) -> st.SearchStrategy[Packet]:
    """Between any two that are of one family."""
    known = [address for member in world.members.values() for address in member.addresses]
    ends = st.sampled_from([*known, *OUTSIDE])
    number = st.sampled_from([*PORTS, 82, 65535])
    ported = st.builds(Packet, source=ends, target=ends, protocol=protocols.map(lambda p: p.value), port=number)
    bare = st.builds(Packet, source=ends, target=ends, protocol=st.sampled_from([1, 58, 47]))
    return (ported | bare).filter(lambda one: len(one.source) == len(one.target) and one.source != one.target)


def in_block(block: IPBlock, packed: bytes) -> bool:
    address = ip_address(packed)
    return (address.version == block.cidr.version and address in block.cidr
            and not any(address in hole for hole in block.excepted))
