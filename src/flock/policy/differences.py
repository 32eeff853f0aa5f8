"""What is wrong with the table, in words: what must be against what is there. Pure."""

from collections.abc import Iterator

from flock.policy.changes import Known, Ruleset, names_of_sets, parts_of
from flock.policy.plan import FRAME
from flock.policy.ruleset import Chain


def differences(wanted: Ruleset, known: Known) -> list[str]:
    """Everything in which a table isn't the wanted one, as far as both are told: of sets of pods' addresses their
    elements where they are whole, else how many there are, where the kernel says that.
    """
    return [*_names(wanted, known), *_entries(wanted, known), *_elements(wanted, known)]


def _names(wanted: Ruleset, known: Known) -> Iterator[str]:
    parts = [part for fragment in wanted.fragments for _, part in parts_of(fragment)]
    rules = {**FRAME.rules, **{part.name: len(part.rules) for part in parts if isinstance(part, Chain)}}
    sets = FRAME.sets | {name for part in parts for name in names_of_sets(part)}
    for what, must, there in (("chain", rules.keys(), known.chains), ("set", sets, known.sets)):
        yield from (f"{what} {name} is missing" for name in sorted(must - there))
        yield from (f"{what} {name} is somebody else's" for name in sorted(there - must))
    for name in sorted(rules.keys() & known.chains):
        if known.rules.get(name, 0) != rules[name]:
            yield f"chain {name} has {known.rules.get(name, 0)} rules, not {rules[name]}"


def _entries(wanted: Ruleset, known: Known) -> Iterator[str]:
    for direction, must in wanted.entries.items():
        there = known.entries.get(direction, {})
        for interface in sorted(must.keys() | there.keys()):
            if must.get(interface) != there.get(interface):
                yield f"{interface} enters another chain for {direction.value}"
    for interface, _ in sorted(wanted.sources ^ known.sources):
        yield f"{interface} may send from other addresses"


def _elements(wanted: Ruleset, known: Known) -> Iterator[str]:
    for gathering, size in wanted.sizes.items():
        names = list(names_of_sets(gathering))
        if known.whole and wanted.sets:
            there = frozenset(one for name in names for one in known.elements.get(name, ()))
            if there != wanted.sets[gathering]:
                yield f"sets {' and '.join(names)} have other elements"
        elif all(name in known.counts for name in names) and sum(known.counts[name] for name in names) != size:
            yield f"sets {' and '.join(names)} don't have {size} elements"
