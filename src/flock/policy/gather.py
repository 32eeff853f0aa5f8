"""The addresses in each set of the ruleset, kept up to date pod by pod. Pure.

Invariant: after every call the elements of a held gathering are those that the pods and namespaces given so far
contribute, and ``drain`` tells exactly how they differ from what it told before. An address that two pods have stays
until neither has it. What one pod costs depends on the rules that may mean it, not on the number of pods.
"""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address

import msgspec

from flock.api.network_policy import IPBlock, Protocol
from flock.api.selector import Operator, Selector
from flock.policy.sources import Scope, Source
from flock.policy.world import Member, MemberId

Gathering = frozenset[Source]
"""What one set holds: the contributions of all its sources."""

_Place = tuple[str | None, str, str]
"""A namespace (None: any), a label and its value (both "": any) that a pod must have for a source to mean it."""


class Difference(msgspec.Struct, frozen=True):
    """How the elements of one set changed."""

    added: frozenset[bytes]
    removed: frozenset[bytes]


class Gatherer:
    """Holds pods, namespaces and gatherings; not for threads."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[MemberId, Member]] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._index = _Index()
        self._held: dict[Gathering, int] = {}
        self._counts: dict[Gathering, dict[bytes, int]] = {}
        self._users: dict[Source, set[Gathering]] = {}
        self._before: dict[Gathering, dict[bytes, bool]] = {}

    def elements(self, gathering: Gathering) -> frozenset[bytes]:
        """What a held set contains."""
        return frozenset(self._counts[gathering])

    def size(self, gathering: Gathering) -> int:
        """How many elements a held set has, of both families."""
        return len(self._counts[gathering])

    def drain(self) -> dict[Gathering, Difference]:
        """What changed since the last call, in sets that are held."""
        found = {}
        for gathering, before in self._before.items():
            counts = self._counts[gathering]
            added = frozenset(element for element, was in before.items() if not was and element in counts)
            removed = frozenset(element for element, was in before.items() if was and element not in counts)
            if added or removed:
                found[gathering] = Difference(added, removed)
        self._before.clear()
        return found

    def hold(self, gathering: Gathering) -> None:
        """Keep the elements of a set from now on; they are not a difference."""
        self._held[gathering] = self._held.get(gathering, 0) + 1
        if self._held[gathering] > 1:
            return
        for source in gathering:
            self._users.setdefault(source, set()).add(gathering)
            if len(self._users[source]) == 1:
                self._index.add(source, self._labels)
        counts = self._counts[gathering] = {}
        for contributed in self._contributions(gathering):
            for element in contributed:
                counts[element] = counts.get(element, 0) + 1

    def _contributions(self, gathering: Gathering) -> Iterable[set[bytes]]:
        """What each pod contributes that any source means; of one that several mean, all of it together."""
        found: dict[MemberId, set[bytes]] = {}
        for source in gathering:
            for namespace in self._index.namespaces(source, self._pods):
                for name, pod in self._pods[namespace].items():
                    if self._index.means(source, pod):
                        found.setdefault(name, set()).update(_elements(source, pod))
        return found.values()

    def release(self, gathering: Gathering) -> None:
        """One user less; with the last the elements are forgotten."""
        self._held[gathering] -= 1
        if self._held[gathering]:
            return
        del self._held[gathering], self._counts[gathering]
        self._before.pop(gathering, None)
        for source in gathering:
            self._users[source].discard(gathering)
            if not self._users[source]:
                del self._users[source]
                self._index.remove(source)

    def put_pod(self, pod: Member) -> None:
        """A pod as it is now."""
        before = self._pods.get(pod.namespace, {}).get(pod.id)
        if before == pod:
            return
        was = self._index.matching(before) if before is not None else frozenset()
        self._pods.setdefault(pod.namespace, {})[pod.id] = pod
        self._move(before, was, pod, self._index.matching(pod))

    def remove_pod(self, name: MemberId) -> None:
        """A pod that is gone; one that isn't there is, too."""
        pods = self._pods.get(name[0], {})
        pod = pods.pop(name, None)
        if pod is None:
            return
        if not pods:
            del self._pods[name[0]]
        self._move(pod, self._index.matching(pod), None, frozenset())

    def put_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace's labels as they are now; None: it is gone, and no selector of namespaces matches it."""
        before = self._labels.get(name)
        if before == labels:
            return
        pods = list(self._pods.get(name, {}).values())
        was = [self._index.matching(pod) for pod in pods]
        if labels is None:
            del self._labels[name]
        else:
            self._labels[name] = labels
        if self._index.put_namespace(name, labels):
            for pod, matched in zip(pods, was, strict=True):
                self._move(pod, matched, pod, self._index.matching(pod))

    def _move(self, before: Member | None, was: frozenset[Source], after: Member | None,
              now: frozenset[Source]) -> None:
        same = before is not None and after is not None and (
            (before.addresses, before.ports) == (after.addresses, after.ports))
        for gathering in self._affected(was ^ now if same else was | now):
            old = self._contribution(gathering, was, before) if before is not None else set()
            new = self._contribution(gathering, now, after) if after is not None else set()
            if old != new:
                self._count(gathering, old - new, new - old)

    def _affected(self, sources: Iterable[Source]) -> set[Gathering]:
        return {gathering for source in sources for gathering in self._users[source]}

    def _count(self, gathering: Gathering, lost: Iterable[bytes], gained: Iterable[bytes]) -> None:
        counts, before = self._counts[gathering], self._before.setdefault(gathering, {})
        for element in gained:
            before.setdefault(element, element in counts)
            counts[element] = counts.get(element, 0) + 1
        for element in lost:
            before.setdefault(element, True)
            counts[element] -= 1
            if not counts[element]:
                del counts[element]

    @staticmethod
    def _contribution(gathering: Gathering, matched: frozenset[Source], pod: Member) -> set[bytes]:
        found: set[bytes] = set()
        for source in gathering & matched:
            found.update(_elements(source, pod))
        return found


def _elements(source: Source, pod: Member) -> Iterator[bytes]:
    addresses = pod.addresses
    if isinstance(source.where, IPBlock):
        addresses = tuple(address for address in addresses if _within(source.where, address))
    if source.port is None:
        yield from addresses
        return
    for port in pod.ports:
        if (port.name, port.protocol) == (source.port.name, source.port.protocol.name):
            for address in addresses:
                yield packed_port(address, source.port.protocol, port.port)


def packed_port(address: bytes, protocol: Protocol, port: int) -> bytes:
    """``address . protocol . port`` as a concatenated key: each part padded to four bytes (nf_tables)."""
    return address + bytes((protocol.value, 0, 0, 0)) + port.to_bytes(2, "big") + b"\0\0"


def _within(block: IPBlock, packed: bytes) -> bool:
    address = ip_address(packed)
    return (address.version == block.cidr.version and address in block.cidr
            and not any(address.version == hole.version and address in hole for hole in block.excepted))


class _Index:
    """Finds the sources that mean a pod without asking each."""

    def __init__(self) -> None:
        self._places: dict[_Place, set[Source]] = {}
        self._matched: dict[Selector, set[str]] = {}
        self._uses: dict[Selector, int] = {}

    def add(self, source: Source, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        for place in _places(source):
            self._places.setdefault(place, set()).add(source)
        if (selector := _namespaces(source)) is not None:
            self._uses[selector] = self._uses.get(selector, 0) + 1
            if selector not in self._matched:
                self._matched[selector] = {name for name, labels in namespaces.items() if selector.matches(labels)}

    def remove(self, source: Source) -> None:
        for place in _places(source):
            self._places[place].discard(source)
            if not self._places[place]:
                del self._places[place]
        if (selector := _namespaces(source)) is not None:
            self._uses[selector] -= 1
            if not self._uses[selector]:
                del self._uses[selector], self._matched[selector]

    def put_namespace(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """Note a namespace's labels; whether any selector's answer is another now."""
        changed = False
        for selector, matched in self._matched.items():
            matches = labels is not None and selector.matches(labels)
            if matches != (name in matched):
                changed = True
                (matched.add if matches else matched.discard)(name)
        return changed

    def namespaces(self, source: Source, known: Mapping[str, object]) -> Iterable[str]:
        """The namespaces among ``known`` in which a source may mean a pod."""
        where = source.where
        if not isinstance(where, Scope):
            return known
        if where.namespace is not None:
            return [where.namespace] if where.namespace in known else []
        return self._matched[where.namespaces] & known.keys()

    def matching(self, pod: Member) -> frozenset[Source]:
        """The sources that mean this pod."""
        return frozenset(source for source in self._candidates(pod) if self.means(source, pod))

    def _candidates(self, pod: Member) -> Iterator[Source]:
        for key, value in (("", ""), *pod.labels.items()):
            yield from self._places.get((pod.namespace, key, value), ())
            yield from self._places.get((None, key, value), ())

    def means(self, source: Source, pod: Member) -> bool:
        """Whether a source means a pod."""
        where = source.where
        if not isinstance(where, Scope):
            return True
        if where.namespace is None:
            if pod.namespace not in self._matched[where.namespaces]:
                return False
        elif where.namespace != pod.namespace:
            return False
        return where.pods.matches(pod.labels)


def _places(source: Source) -> Iterator[_Place]:
    """Where a source is looked for: under a label that it demands, the one with the fewest values."""
    where = source.where
    if not isinstance(where, Scope):
        yield None, "", ""
        return
    needed = min((one for one in where.pods.requirements if one.operator is Operator.IN),
                 key=lambda one: len(one.values), default=None)
    if needed is None:
        yield where.namespace, "", ""
        return
    for value in needed.values:
        yield where.namespace, needed.key, value


def _namespaces(source: Source) -> Selector | None:
    where = source.where
    return where.namespaces if isinstance(where, Scope) and where.namespace is None else None
