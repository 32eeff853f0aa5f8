"""CIDRs that two NodeConfigs both claim: who may hand out what. Pure.

Invariant: of an overlap exactly one of the two nodes gives addresses, the one whose NodeConfig is older (by creation,
then by name), so both nodes decide the same without asking each other.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import msgspec

from flock.api.node_config import NodeConfig
from flock.model.family import FAMILIES, Network, family_of


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """``ours`` and ``theirs`` have addresses in common; ``yields``: it is the other node that gives them."""

    ours: Network
    theirs: Network
    node: str
    yields: bool

    def __str__(self) -> str:
        who = f"{self.node}, which is older, gives" if self.yields else "this node, which is older, gives"
        return f"{self.ours} overlaps {self.theirs} of node {self.node}: {who} the addresses of both"


def find_overlaps(own: NodeConfig, everyone: Iterable[NodeConfig]) -> tuple[Overlap, ...]:
    """What ``own`` shares with any other NodeConfig."""
    return tuple(_overlaps(own, everyone))


def _overlaps(own: NodeConfig, everyone: Iterable[NodeConfig]) -> Iterator[Overlap]:
    for other in everyone:
        if other.name == own.name:
            continue
        yields = (other.created, other.name) < (own.created, own.name)
        for family in FAMILIES:
            for ours in own.spec.cidrs(family):
                for theirs in other.spec.cidrs(family):
                    if ours.overlaps(theirs):
                        yield Overlap(ours=ours, theirs=theirs, node=other.name, yields=yields)


def usable(cidrs: Iterable[Network], overlaps: Sequence[Overlap]) -> tuple[Network, ...]:
    """What is left of a node's CIDRs once it yields: the whole of them where nothing is shared."""
    left = list(cidrs)
    for overlap in overlaps:
        if overlap.yields:
            left = [rest for cidr in left for rest in _without(cidr, overlap.theirs)]
    return tuple(left)


def _without(cidr: Network, taken: Network) -> Sequence[Network]:
    if family_of(cidr) is not family_of(taken) or not cidr.overlaps(taken):
        return (cidr,)
    if taken.prefixlen <= cidr.prefixlen:
        return ()
    # Typeshed wants one family; both are of the same here.
    return sorted(cast("Iterator[Network]", cidr.address_exclude(taken)))  # type: ignore[arg-type]
