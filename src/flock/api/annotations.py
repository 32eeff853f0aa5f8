"""What a pod asks of the network: its own annotations, its namespace's, and what the NodeConfig says otherwise. Pure.

Order (I19): the pod's annotation, else its namespace's, else ``spec.defaults``, else dual-stack as far as the node has
CIDRs. A family that somebody asked for by name (``ipv6``, or a ``cidr6``, or a default in the NodeConfig) is wanted
whether or not the node has CIDRs for it, so that the lack of them is an error and never a silent fall-back.

Invariant: reading raises ``InvalidObject`` alone, with every problem of both objects, whatever their text is.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from flock.api.cidrs import network_rule, read_address, read_network
from flock.api.ip_algo import Field, parse_ip_algo
from flock.api.node_config import NodeConfigSpec
from flock.api.problems import ABSENT, InvalidObject, Problem, printable
from flock.model.family import FAMILIES, Address, Family, Network, family_of

PREFIX = "flock.fritzlab.net/"
VALUE_LIMIT = 4096
ITEM_LIMIT = 64

_KEYS = frozenset({"ipv6", "ipv4", "cidr6", "cidr4", "ip-algo", "anycast"})

T = TypeVar("T")


class FamilyRequest(msgspec.Struct, frozen=True):
    """One wanted family: within ``cidrs`` if any are named, and exactly ``address`` if that is named."""

    family: Family
    cidrs: tuple[Network, ...] = ()
    address: Address | None = None


class PodNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod is to get; no family wanted is for the allocator to refuse, which knows the pod's name (I7)."""

    wanted: tuple[FamilyRequest, ...] = ()
    ip_algo: tuple[Field, ...] = ()
    anycast: tuple[Address, ...] = ()


class _Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """One object's annotations; None and absent keys are what it doesn't say."""

    families: Mapping[Family, bool | Address]
    cidrs: Mapping[Family, tuple[Network, ...]]
    ip_algo: tuple[Field, ...] | None
    anycast: tuple[Address, ...]


_NO_WISHES = _Wishes(families={}, cidrs={}, ip_algo=None, anycast=())


def parse_annotations(pod: Mapping[str, str], namespace: Mapping[str, str], spec: NodeConfigSpec) -> PodNetwork:
    """What a pod with these annotations, in a namespace with those, gets on a node with this NodeConfig."""
    problems: list[Problem] = []
    own = _read(pod, "annotation ", problems)
    outer = _read(namespace, "namespace annotation ", problems)
    if PREFIX + "anycast" in namespace:
        field = f"namespace annotation {PREFIX}anycast"
        problems.append(Problem(field, namespace[PREFIX + "anycast"], "is for pods alone"))
    wanted = tuple(request for family in FAMILIES if (request := _decide(family, own, outer, spec)) is not None)
    for address in own.anycast:
        rule = _claim_rule(address, wanted, spec)
        if rule is not None:
            problems.append(Problem(f"annotation {PREFIX}anycast", str(address), rule))
    if problems:
        raise InvalidObject(problems)
    fields = own.ip_algo if own.ip_algo is not None else outer.ip_algo
    return PodNetwork(
        wanted=wanted,
        ip_algo=spec.defaults.ip_algo if fields is None else fields,
        anycast=own.anycast,
    )


def _decide(family: Family, own: _Wishes, outer: _Wishes, spec: NodeConfigSpec) -> FamilyRequest | None:
    """Whether one family is wanted, and from where (I19)."""
    named = own.cidrs.get(family, outer.cidrs.get(family, ()))
    choice = own.families.get(family, outer.families.get(family, spec.defaults.wanted(family)))
    if choice is None:
        choice = bool(named) or bool(spec.cidrs(family))
    if choice is False:
        return None
    return FamilyRequest(family, named, None if choice is True else choice)


def _claim_rule(address: Address, wanted: tuple[FamilyRequest, ...], spec: NodeConfigSpec) -> str | None:
    """The rule that an anycast claim breaks; the namespace's selector is judged where its labels are known."""
    rules = [rule for rule in spec.anycast if family_of(rule.cidr) is family_of(address) and address in rule.cidr]
    if not rules:
        return "lies in none of the NodeConfig's anycast CIDRs"
    edges = {rules[0].cidr.network_address, rules[0].cidr.broadcast_address}
    if address.version == 4 and rules[0].cidr.prefixlen < 31 and address in edges:
        return f"is the network or broadcast address of {rules[0].cidr}"
    if all(request.family is not family_of(address) for request in wanted):
        return f"is {family_of(address).label}, which the pod itself doesn't have"
    return None


def _read(annotations: Mapping[str, str], where: str, problems: list[Problem]) -> _Wishes:
    ours = {key: value for key, value in annotations.items() if key.startswith(PREFIX)}
    if not ours:
        return _NO_WISHES
    reader = _Reader(ours, where, problems)
    return _Wishes(
        families={family: choice for family in FAMILIES if (choice := reader.choice(family)) is not None},
        cidrs={family: cidrs for family in FAMILIES if (cidrs := reader.cidrs(family)) is not None},
        ip_algo=reader.value("ip-algo", parse_ip_algo),
        anycast=reader.items("anycast", read_address) or (),
    )


class _Reader:
    """The annotations of one object that have flock's prefix."""

    def __init__(self, ours: Mapping[str, str], where: str, problems: list[Problem]) -> None:
        self._values: dict[str, str] = {}
        self._where = where
        self._problems = problems
        for key, value in ours.items():
            name = key[len(PREFIX) :]
            if name not in _KEYS:
                problems.append(Problem(f"{where}{PREFIX}{printable(name, 40)}", ABSENT, "is no annotation of flock's"))
            elif len(value) > VALUE_LIMIT:
                self._problem(name, value, f"is longer than {VALUE_LIMIT} characters")
            else:
                self._values[name] = value

    def _problem(self, name: str, value: str, rule: str) -> None:
        self._problems.append(Problem(f"{self._where}{PREFIX}{name}", value, rule))

    def value(self, name: str, parse: Callable[[str], T]) -> T | None:
        """One value read by ``parse``, whose ValueError is the rule that it breaks."""
        text = self._values.get(name)
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            self._problem(name, text, str(error))
            return None

    def items(self, name: str, parse: Callable[[str], T]) -> tuple[T, ...] | None:
        """A comma list; each item that breaks a rule is a problem of its own."""
        text = self._values.get(name)
        if text is None:
            return None
        parts = [part.strip() for part in text.split(",")]
        if len(parts) > ITEM_LIMIT:
            self._problem(name, text, f"names more than {ITEM_LIMIT} things")
            return None
        found: dict[T, None] = {}
        for part in parts:
            try:
                item = parse(part)
            except ValueError as error:
                self._problem(name, part, str(error) if part else "is empty: an item is missing")
                continue
            if item in found:
                self._problem(name, part, "is there twice")
            found[item] = None
        return tuple(found)

    def choice(self, family: Family) -> bool | Address | None:
        return self.value(f"ipv{family.suffix}", lambda text: _parse_family(text, family))

    def cidrs(self, family: Family) -> tuple[Network, ...] | None:
        return self.items(f"cidr{family.suffix}", lambda text: _parse_cidr(text, family))


def _parse_family(text: str, family: Family) -> bool | Address:
    if text in ("true", "false"):
        return text == "true"
    try:
        return read_address(text, family)
    except ValueError as error:
        looks = any(char in text for char in ".:")
        detail = f" ({error})" if looks else ""
        raise ValueError(f'must be "true", "false" or one {family.label} address{detail}') from None


def _parse_cidr(text: str, family: Family) -> Network:
    network = read_network(text, family)
    rule = None if network.prefixlen == 0 else network_rule(network)
    # Wider than the node's CIDRs is allowed (I17), so only what holds no unicast address at all is refused.
    if rule is not None and rule.startswith("is "):
        raise ValueError(rule)
    return network
