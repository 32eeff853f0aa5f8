"""Which policies apply to which pods of this node, and so which chain each direction of a pod enters. Pure.

``Rulings`` follows policies, namespaces and pods as they change. ``drain`` says how what the table must be differs from
what it said before, ``ruleset`` says all of it. A pod that comes or goes on another node changes elements alone; one of
this node also its own entries in the maps; only a policy, or a pod whose set of policies is new here, brings chains.

Invariant: two pods with the same policies and the same named ports share a chain; a policy is looked at again only by
the pods of its namespace; what ``drain`` costs depends on what changed, not on what there is.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from flock.api.named_ports import NamedPort
from flock.api.network_policy import NetworkPolicy, PortName
from flock.policy.changes import Change, Parts, Ruleset, Sources
from flock.policy.compile import compile_egress, compile_ingress
from flock.policy.explain import Direction
from flock.policy.gather import Gatherer
from flock.policy.ruleset import Fragment, render_program
from flock.policy.uses import Uses
from flock.policy.world import Key, Member, MemberId, World

NOTHING: frozenset[bytes] = frozenset()

OPEN = Fragment(entry="")
"""No policy selects the pod in that direction."""


class _Written(msgspec.Struct, frozen=True):
    """A policy. ``edition`` tells it from those that had its name before; ``called`` is the ports that its rules for
    ingress name, with their protocols.
    """

    policy: NetworkPolicy
    edition: int
    called: frozenset[tuple[str, str]]


class _Choice(msgspec.Struct, frozen=True):
    """What decides a fragment: the editions of the policies, and those of the pod's own ports that they name."""

    direction: Direction
    editions: tuple[int, ...]
    ports: tuple[NamedPort, ...]


class Rulings:
    """Holds what is wanted; not for threads."""

    def __init__(self) -> None:
        self._gatherer = Gatherer()
        self._policies: dict[str, dict[Key, _Written]] = {}
        self._editions = itertools.count()
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._members: dict[MemberId, Member] = {}
        self._subjects: dict[str, MemberId] = {}
        self._compiled: dict[_Choice, Fragment] = {}
        self._stale: set[str] = set()
        self._entries: dict[tuple[str, Direction], Fragment] = {}
        self._sources: dict[str, frozenset[bytes]] = {}
        self._choices: dict[tuple[str, Direction], _Choice] = {}
        self._chosen: Uses[_Choice] = Uses()
        self._fragments: Uses[str] = Uses()
        self._parts = Parts()

    # What changes

    def put_policy(self, policy: NetworkPolicy) -> None:
        """A policy as it is now."""
        key = (policy.namespace, policy.name)
        policies = self._policies.setdefault(policy.namespace, {})
        if key not in policies or policies[key].policy != policy:
            policies[key] = _Written(policy, next(self._editions), frozenset(_called(policy)))
            self._look_again(policy.namespace)

    def remove_policy(self, key: Key) -> None:
        if self._policies.get(key[0], {}).pop(key, None) is not None:
            self._look_again(key[0])

    def put_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace's labels as they are now; None: it is gone."""
        if labels is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = labels
        self._gatherer.put_namespace(name, labels)

    def put_member(self, member: Member) -> None:
        """A pod as it is now, of this node or another."""
        self._members[member.id] = member
        self._gatherer.put_pod(member)
        if member.interface:
            self._subjects[member.interface] = member.id
            self._stale.add(member.interface)

    def knows(self, name: MemberId) -> bool:
        return name in self._members

    def remove_member(self, name: MemberId) -> None:
        member = self._members.pop(name, None)
        if member is None:
            return
        self._gatherer.remove_pod(name)
        if self._subjects.get(member.interface) == name:
            del self._subjects[member.interface]
            self._stale.add(member.interface)

    def _look_again(self, namespace: str) -> None:
        self._stale.update(interface for interface, name in self._subjects.items() if name[0] == namespace)

    # What is wanted

    def world(self) -> World:
        """All of it, for ``explain``."""
        policies = {key: one.policy for some in self._policies.values() for key, one in some.items()}
        return World(policies=policies, namespaces=dict(self._namespaces), members=dict(self._members))

    def ruleset(self, *, whole: bool = True) -> Ruleset:
        """What the last ``drain`` said the table must be, all of it; not ``whole``: of sets only how large they are.

        ``drain`` first, or elements are told twice.
        """
        entries: dict[Direction, dict[str, str]] = {direction: {} for direction in Direction}
        for (interface, direction), fragment in self._entries.items():
            entries[direction][interface] = fragment.entry
        fragments = {one.entry: one for one in self._entries.values()}
        gatherings = {one for fragment in fragments.values() for one in fragment.gatherings}
        return Ruleset(
            fragments=tuple(fragments.values()), entries=entries,
            sources=frozenset((interface, address) for interface, addresses in self._sources.items()
                              for address in addresses),
            sizes={one: self._gatherer.size(one) for one in gatherings},
            sets={one: self._gatherer.elements(one) for one in gatherings} if whole else {})

    def drain(self) -> Change:
        """What is to change since the last call."""
        entries: dict[Direction, dict[str, tuple[str | None, str | None]]] = {one: {} for one in Direction}
        moved: list[Fragment] = []
        for interface, direction in itertools.product(self._stale, Direction):
            before, after = self._entries.get((interface, direction)), self._choose(interface, direction)
            if before == after:
                continue
            entries[direction][interface] = (_entry(before), _entry(after))
            moved += [one for one in (before, after) if one is not None]
            self._enter(interface, direction, before, after)
        added, removed = self._send()
        self._stale.clear()
        return self._change(moved, Change(entries=entries, sources_added=added, sources_removed=removed))

    def _choose(self, interface: str, direction: Direction) -> Fragment | None:
        """The fragment for one direction of a pod, None where the pod is gone."""
        name, last = self._subjects.get(interface), self._choices.pop((interface, direction), None)
        fragment = None
        if name is not None:
            choice, policies = self._decide(self._members[name], direction)
            self._choices[interface, direction] = choice
            self._chosen.take(choice)
            if choice not in self._compiled:
                self._compiled[choice] = _compile(choice, policies)
            fragment = self._compiled[choice]
        if last is not None:
            self._chosen.drop(last)
        return fragment

    def _decide(self, subject: Member, direction: Direction) -> tuple[_Choice, list[NetworkPolicy]]:
        deciding = [one for _, one in sorted(self._policies.get(subject.namespace, {}).items())
                    if _speaks(one.policy, direction) and one.policy.selector.matches(subject.labels)]
        called = {name for one in deciding for name in one.called} if direction is Direction.INGRESS else set()
        ports = tuple(port for port in subject.ports if (port.name, port.protocol) in called)
        return _Choice(direction, tuple(one.edition for one in deciding), ports), [one.policy for one in deciding]

    def _enter(self, interface: str, direction: Direction, before: Fragment | None, after: Fragment | None) -> None:
        if after is not None:
            self._entries[interface, direction] = after
            self._fragments.take(after.entry)
        else:
            del self._entries[interface, direction]
        if before is not None:
            self._fragments.drop(before.entry)

    def _send(self) -> tuple[Sources, Sources]:
        """How the addresses that the stale interfaces may send from change."""
        added: set[tuple[str, bytes]] = set()
        removed: set[tuple[str, bytes]] = set()
        for interface in self._stale:
            name = self._subjects.get(interface)
            before, after = self._sources.pop(interface, NOTHING), NOTHING
            if name is not None:
                after = self._sources[interface] = frozenset(self._members[name].addresses)
            added.update((interface, address) for address in after - before)
            removed.update((interface, address) for address in before - after)
        return frozenset(added), frozenset(removed)

    def _change(self, moved: Sequence[Fragment], change: Change) -> Change:
        """Complete a change by what chains, maps and sets come with the fragments that pods entered, and go."""
        for choice in self._chosen.settle()[1]:
            del self._compiled[choice]
        new, gone = self._fragments.settle()
        fragments = {one.entry: one for one in moved}
        for entry in new:
            for gathering in fragments[entry].gatherings:
                self._gatherer.hold(gathering)
        for entry in gone:
            for gathering in fragments[entry].gatherings:
                self._gatherer.release(gathering)
        return self._parts.change([fragments[entry] for entry in new], [fragments[entry] for entry in gone],
                                  self._gatherer, change)


def _entry(fragment: Fragment | None) -> str | None:
    return None if fragment is None else fragment.entry


def _speaks(policy: NetworkPolicy, direction: Direction) -> bool:
    return (policy.ingress if direction is Direction.INGRESS else policy.egress) is not None


def _called(policy: NetworkPolicy) -> Iterator[tuple[str, str]]:
    for rule in policy.ingress or ():
        for port in rule.ports or ():
            if isinstance(port, PortName):
                yield port.name, port.protocol.name


def _compile(choice: _Choice, policies: Iterable[NetworkPolicy]) -> Fragment:
    if not choice.editions:
        return OPEN
    if choice.direction is Direction.INGRESS:
        return render_program(compile_ingress(policies, choice.ports), choice.direction)
    return render_program(compile_egress(policies), choice.direction)

