"""What the table must be, and how it is to become so: the terms in which rulings speak to the kernel. Pure.

Invariant: a change leads from one whole table to another; it names everything that is new and everything that is gone,
and nothing else.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from flock.model.family import FAMILIES, Family
from flock.policy.explain import Direction
from flock.policy.gather import Difference, Gatherer, Gathering
from flock.policy.ruleset import BlockSet, Chain, Fragment, PortMap, has_ports, set_name
from flock.policy.uses import Uses

Entries = Mapping[Direction, Mapping[str, str]]
"""For each direction, by interface, the chain that a pod's packets enter, "" where all of them pass."""

Sources = frozenset[tuple[str, bytes]]
"""Interfaces with the addresses, packed, that they may send from."""

_LENGTHS = {Family.IPV6: 16, Family.IPV4: 4}
_PORT_LENGTH = 8


class Ruleset(msgspec.Struct, frozen=True, kw_only=True):
    """All that is wanted beside the frame. ``sizes`` is how many elements each gathering has, ``sets``, where it is
    whole, which.
    """

    fragments: tuple[Fragment, ...] = ()
    entries: Entries = {}
    sources: Sources = frozenset()
    sizes: Mapping[Gathering, int] = {}
    sets: Mapping[Gathering, frozenset[bytes]] = {}


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the table has, frame and all: the names of its chains, how many rules each has, the names of its sets and
    maps, how many elements each has as far as the kernel tells, and, where it is ``whole``, by set the elements of
    those of pods' addresses.
    """

    chains: frozenset[str] = frozenset()
    sets: frozenset[str] = frozenset()
    entries: Entries = {}
    sources: Sources = frozenset()
    rules: Mapping[str, int] = {}
    counts: Mapping[str, int] = {}
    elements: Mapping[str, frozenset[bytes]] = {}
    whole: bool = True


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is new comes whole, what is gone by its name. An entry is the chain that an interface entered and the one
    that it is to enter, None where it was, or is to be, in no map.
    """

    chains: tuple[Chain, ...] = ()
    maps: tuple[PortMap, ...] = ()
    blocks: tuple[BlockSet, ...] = ()
    sets: tuple[Gathering, ...] = ()
    elements: Mapping[Gathering, Difference] = {}
    entries: Mapping[Direction, Mapping[str, tuple[str | None, str | None]]] = {}
    sources_added: Sources = frozenset()
    sources_removed: Sources = frozenset()
    gone_chains: frozenset[str] = frozenset()
    gone_sets: frozenset[str] = frozenset()


class Parts:
    """The chains, maps and sets of the fragments in use; fragments share what is equal."""

    def __init__(self) -> None:
        self._uses: Uses[str] = Uses()

    def change(self, new: Sequence[Fragment], gone: Sequence[Fragment], gatherer: Gatherer, change: Change) -> Change:
        """A change, completed by what comes and goes with some fragments, and by what moved in the sets that stay."""
        if not (new or gone):
            moved = gatherer.drain()
            return msgspec.structs.replace(change, elements=moved) if moved else change
        parts = {name: part for fragment in (*new, *gone) for name, part in parts_of(fragment)}
        for fragment in new:
            for name, _ in parts_of(fragment):
                self._uses.take(name)
        for fragment in gone:
            for name, _ in parts_of(fragment):
                self._uses.drop(name)
        came, went = self._uses.settle()
        fresh = tuple(part for name in came if isinstance(part := parts[name], frozenset))
        filled = {one: Difference(gatherer.elements(one), frozenset()) for one in fresh}
        return msgspec.structs.replace(
            change,
            chains=tuple(part for name in came if isinstance(part := parts[name], Chain)),
            maps=tuple(part for name in came if isinstance(part := parts[name], PortMap)),
            blocks=tuple(part for name in came if isinstance(part := parts[name], BlockSet)),
            sets=fresh, elements={**gatherer.drain(), **filled},
            gone_chains=frozenset(name for name in went if isinstance(parts[name], Chain)),
            gone_sets=frozenset(name for part in (parts[name] for name in went) for name in names_of_sets(part)),
        )


Part = Chain | PortMap | BlockSet | Gathering


def parts_of(fragment: Fragment) -> Iterator[tuple[str, Part]]:
    """Everything in a fragment under a name of its own; a gathering's two sets are one part."""
    named: tuple[Chain | PortMap | BlockSet, ...] = (*fragment.chains, *fragment.maps, *fragment.blocks)
    for part in named:
        yield part.name, part
    for gathering in fragment.gatherings:
        yield set_name(gathering, Family.IPV6), gathering


def names_of_sets(part: Part) -> Iterator[str]:
    """The sets and maps that a part consists of."""
    if isinstance(part, PortMap | BlockSet):
        yield part.name
    elif not isinstance(part, Chain):
        for family in FAMILIES:
            yield set_name(part, family)


def of_family(elements: Iterable[bytes], gathering: Gathering, family: Family) -> frozenset[bytes]:
    """Those of a gathering's elements that are of one family."""
    length = _LENGTHS[family] + (_PORT_LENGTH if has_ports(gathering) else 0)
    return frozenset(one for one in elements if len(one) == length)


def rewriting(ruleset: Ruleset, known: Known, frame: Known) -> Change:
    """What makes a table the wanted one of which only names and elements are known: every chain, map and set of CIDRs
    is written anew. ``frame`` is what stays besides.
    """
    parts = {name: part for fragment in ruleset.fragments for name, part in parts_of(fragment)}
    gatherings = [part for part in parts.values() if isinstance(part, frozenset)]
    chains = {name for name, part in parts.items() if isinstance(part, Chain)}
    sets = {name for part in parts.values() for name in names_of_sets(part)}
    return Change(
        chains=tuple(part for part in parts.values() if isinstance(part, Chain)),
        maps=tuple(part for part in parts.values() if isinstance(part, PortMap)),
        blocks=tuple(part for part in parts.values() if isinstance(part, BlockSet)),
        sets=tuple(one for one in gatherings if not known.sets.issuperset(names_of_sets(one))),
        elements={one: _difference(ruleset.sets[one], known, one) for one in gatherings},
        entries={direction: _moves(known.entries.get(direction, {}), ruleset.entries.get(direction, {}))
                 for direction in Direction},
        sources_added=ruleset.sources - known.sources, sources_removed=known.sources - ruleset.sources,
        gone_chains=known.chains - chains - frame.chains, gone_sets=known.sets - sets - frame.sets,
    )


def _difference(wanted: frozenset[bytes], known: Known, gathering: Gathering) -> Difference:
    there = frozenset(element for name in names_of_sets(gathering) for element in known.elements.get(name, ()))
    return Difference(wanted - there, there - wanted)


def _moves(there: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    return {name: (there.get(name), wanted.get(name)) for name in (*there, *wanted)
            if there.get(name) != wanted.get(name)}
