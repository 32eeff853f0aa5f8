"""Which CIDRs a pod's address may come from: its annotation against the node's (I16–I18). Pure.

Two CIDRs either nest or are disjoint, so the intersection of an annotation's and a node's is the narrower of them.
"""

from collections.abc import Sequence

from flock.api.cidrs import within
from flock.errors import InvalidConfig
from flock.model.family import Network


def effective_cidrs(annotation: Sequence[Network], node: Sequence[Network]) -> tuple[Network, ...]:
    """The CIDRs to allocate from: the node's, or what the first annotation CIDR that meets any shares with them.

    ``InvalidConfig`` where the node has none (I16) or none is met (I18).
    """
    if not node:
        raise InvalidConfig("node has no CIDRs configured for this family")
    if not annotation:
        return tuple(node)
    for wanted in annotation:
        shared = tuple(both for own in node if (both := intersection(wanted, own)) is not None)
        if shared:
            return shared
    raise InvalidConfig(f"annotation CIDRs {_listed(annotation)} do not intersect any node CIDR {_listed(node)}")


def intersection(annotation: Network, node: Network) -> Network | None:
    """What an annotation's CIDR and a node's share (I17): the narrower one, or None."""
    if within(node, (annotation,)):
        return node
    return annotation if within(annotation, (node,)) else None


def _listed(networks: Sequence[Network]) -> str:
    return f"[{', '.join(map(str, networks))}]"
