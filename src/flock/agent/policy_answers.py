"""What ``flockctl policy`` shows: which policies select this node's pods, and whether a packet would pass. Pure."""

from collections.abc import Iterator
from ipaddress import ip_address

import msgspec

from flock.api.network_policy import LAST_PORT, Protocol
from flock.api.problems import printable
from flock.errors import InvalidConfig
from flock.model.family import parse_address
from flock.policy.explain import Direction, Packet, Ruling, explain
from flock.policy.world import Key, Member, World

PROTOCOLS = {one.name.lower(): one.value for one in Protocol} | {"icmp": 1}
_ICMP6 = 58


class Question(msgspec.Struct, frozen=True):
    """Would this pass? ``source`` and ``target`` are addresses or NAMESPACE/POD."""

    source: str
    target: str
    protocol: str = "tcp"
    port: int | None = None


class Answer(msgspec.Struct, frozen=True):
    """For one pair of addresses: whether it passes this node, and the reasons, one for each pod that has a say."""

    source: str
    target: str
    allowed: bool
    reasons: tuple[str, ...]


class Selected(msgspec.Struct, frozen=True):
    """The policies that select one pod of this node; None where a direction is open."""

    pod: str
    ingress: tuple[str, ...] | None
    egress: tuple[str, ...] | None


def parse_question(body: bytes) -> Question:
    """InvalidConfig says what is wrong with it."""
    try:
        asked = msgspec.json.decode(body, type=Question)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig("the question can't be read", str(error)[:200]) from error
    if asked.protocol not in PROTOCOLS:
        raise InvalidConfig(f"protocol {printable(asked.protocol, 40)} is not one of {', '.join(PROTOCOLS)}")
    if asked.protocol == "icmp" and asked.port is not None:
        raise InvalidConfig("icmp has no ports")
    if asked.protocol != "icmp" and (asked.port is None or not 1 <= asked.port <= LAST_PORT):
        raise InvalidConfig(f"{asked.protocol} needs a port from 1 to {LAST_PORT}")
    return asked


def answers(world: World, asked: Question) -> list[Answer]:
    """One answer for each pair of addresses of one family; InvalidConfig where an end is unknown."""
    sources, targets = _addresses(world, asked.source), _addresses(world, asked.target)
    pairs = [(source, target) for source in sources for target in targets if len(source) == len(target)]
    if not pairs:
        raise InvalidConfig(f"{printable(asked.source, 80)} and {printable(asked.target, 80)} have no family in common")
    return [_answer(world, asked, source, target) for source, target in pairs]


def selected(world: World) -> list[Selected]:
    """Every pod of this node, by name."""
    return [Selected(_name(subject), _selecting(world, subject, Direction.INGRESS),
                     _selecting(world, subject, Direction.EGRESS))
            for subject in sorted(world.subjects(), key=lambda one: one.id)]


def _answer(world: World, asked: Question, source: bytes, target: bytes) -> Answer:
    protocol = PROTOCOLS[asked.protocol]
    if asked.protocol == "icmp" and len(source) == 16:
        protocol = _ICMP6
    verdict = explain(world, Packet(source=source, target=target, protocol=protocol, port=asked.port))
    reasons = tuple(_reason(ruling) for ruling in verdict.rulings)
    if not reasons:
        known = source in world.node or target in world.node
        reasons = ("a node and its own pods always reach each other" if known
                   else "neither is a pod of this node: it has no say",)
    return Answer(str(ip_address(source)), str(ip_address(target)), verdict.allowed, reasons)


def _reason(ruling: Ruling) -> str:
    whose = f"{ruling.direction.value} of {_name(ruling.subject)}"
    if ruling.policy is not None:
        return f"{whose}: rule {ruling.rule} of {_key(ruling.policy)} allows it"
    if ruling.allowed:
        return f"{whose}: no policy selects it"
    return f"{whose}: isolated by {', '.join(map(_key, ruling.policies))}, and no rule allows it"


def _addresses(world: World, text: str) -> list[bytes]:
    if "/" not in text:
        try:
            return [parse_address(text).packed]
        except ValueError:
            raise InvalidConfig(f"{printable(text, 80)} is neither an address nor NAMESPACE/POD") from None
    namespace, _, name = text.partition("/")
    found = list(dict.fromkeys(_of_pod(world, namespace, name)))
    if not found:
        raise InvalidConfig(f"pod {printable(text, 320)} has no address that this node knows")
    return found


def _of_pod(world: World, namespace: str, name: str) -> Iterator[bytes]:
    for member in world.members.values():
        if (member.namespace, member.name) == (namespace, name):
            yield from member.addresses


def _selecting(world: World, subject: Member, direction: Direction) -> tuple[str, ...] | None:
    found = tuple(_key(key) for key, policy in sorted(world.policies.items())
                  if policy.namespace == subject.namespace and policy.selector.matches(subject.labels)
                  and (policy.ingress if direction is Direction.INGRESS else policy.egress) is not None)
    return found or None


def _name(member: Member) -> str:
    return f"{member.namespace}/{member.name}" if member.name else member.interface


def _key(key: Key) -> str:
    return "/".join(key)
