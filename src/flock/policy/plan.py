"""A change of the table as at most three transactions. Pure.

1. Elements of sets that stand, and new sets of addresses with theirs: by netlink.
2. New chains, port maps and sets of CIDRs, which nothing leads to yet: as text.
3. Pods enter their new chains, and what nobody uses any more goes: by netlink, one transaction.

Invariant: after each of them the table is whole, and a pod has either its old rules or its new ones. Where no chain is
new, which is whenever only pods come and go, there is one transaction.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from flock.model.family import FAMILIES, Family
from flock.netlink import nft_sets as ns
from flock.policy.changes import Change, Known, Sources, of_family
from flock.policy.explain import Direction
from flock.policy.gather import Gathering
from flock.policy.nft_text import (
    BASE_CHAINS,
    BASE_RULES,
    EGRESS_MAP,
    INGRESS_MAP,
    SOURCES,
    TABLE,
    render_chains,
    render_frame,
    render_sources,
)
from flock.policy.ruleset import has_ports, set_name

MAPS = {Direction.EGRESS: EGRESS_MAP, Direction.INGRESS: INGRESS_MAP}
FRAME = Known(chains=BASE_CHAINS, sets=frozenset((*MAPS.values(), *SOURCES.values())),
              entries={direction: {} for direction in Direction}, rules=BASE_RULES)
"""A table in which nobody is."""

_KEYS = {Family.IPV6: ns.Keys.IPV6, Family.IPV4: ns.Keys.IPV4}


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """The transactions, in this order; "" or () where there is nothing to do."""

    before: tuple[bytes, ...] = ()
    text: str = ""
    after: tuple[bytes, ...] = ()


def plan_ground() -> Steps:
    """What the frame stands on, in a table that may be empty: the maps by hand, the sets as text."""
    made = tuple(ns.new_set(TABLE, name, ns.Keys.IFNAME_VERDICTS, number)
                 for number, name in enumerate(MAPS.values(), 1))
    return Steps(before=made, text=render_sources())


def plan_frame() -> Steps:
    """The frame. It comes after the pods' entries: a pod that runs must not be unknown to it for a moment."""
    return Steps(text=render_frame())


def plan_change(change: Change) -> Steps:
    """The transactions of a change."""
    if not (change.chains or change.sets or change.gone_chains or change.gone_sets):
        # Pods that come and go, which is nearly always all there is.
        return Steps(after=(*_elements(change, lambda _: True), *_moves(change)))
    ported = [one for one in change.sets if has_ports(one)]
    before = (*_new_sets(change), *_elements(change, lambda one: one not in ported))
    after = (*_elements(change, ported.__contains__), *_moves(change), *_gone(change))
    if not change.chains:
        return Steps(after=before + after)
    text = render_chains([(set_name(one, family), family) for one in ported for family in FAMILIES],
                         change.blocks, change.maps, change.chains)
    return Steps(before=before, text=text, after=after)


def _new_sets(change: Change) -> Iterator[bytes]:
    kinds = {set_name(one, family): _KEYS[family] for one in change.sets if not has_ports(one) for family in FAMILIES}
    kinds |= {one.name: ns.Keys.PORT_RANGE_VERDICTS if one.ranged else ns.Keys.PORT_VERDICTS for one in change.maps}
    for number, (name, keys) in enumerate(kinds.items(), 1):
        yield ns.new_set(TABLE, name, keys, number)


def _elements(change: Change, wanted: Callable[[Gathering], bool]) -> Iterator[bytes]:
    for gathering, one in change.elements.items():
        if wanted(gathering):
            for family in FAMILIES:
                name = set_name(gathering, family)
                yield from ns.add_elements(TABLE, name, of_family(one.added, gathering, family))
                yield from ns.delete_elements(TABLE, name, of_family(one.removed, gathering, family))


def _moves(change: Change) -> Iterator[bytes]:
    for length, name in SOURCES.items():
        yield from ns.delete_elements(TABLE, name, _source_keys(change.sources_removed, length))
        yield from ns.add_elements(TABLE, name, _source_keys(change.sources_added, length))
    for direction, name in MAPS.items():
        moves = change.entries.get(direction, {})
        yield from ns.delete_elements(TABLE, name, [
            ns.interface_key(interface) for interface, (before, _) in moves.items() if before is not None])
        yield from ns.add_verdicts(TABLE, name, [
            (ns.interface_key(interface), ns.Verdict(after)) for interface, (_, after) in moves.items()
            if after is not None])


def _source_keys(sources: Sources, length: int) -> list[bytes]:
    return [ns.interface_key(interface) + address for interface, address in sources if len(address) == length]


def _gone(change: Change) -> Iterator[bytes]:
    """Chains that pods entered first, then the maps that led to groups, then the groups, then the sets they asked."""
    groups = sorted(name for name in change.gone_chains if name.startswith("g_"))
    maps = sorted(name for name in change.gone_sets if name.startswith("pm_"))
    yield from _delete_chains(sorted(change.gone_chains.difference(groups)))
    yield from (ns.delete_set(TABLE, name) for name in maps)
    yield from _delete_chains(groups)
    yield from (ns.delete_set(TABLE, name) for name in sorted(change.gone_sets.difference(maps)))


def _delete_chains(names: Iterable[str]) -> Iterator[bytes]:
    for name in names:
        yield from ns.delete_chain(TABLE, name)
