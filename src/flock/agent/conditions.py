"""What an agent says of itself in the API: the conditions of its NodeConfig, and the one of its Node (R6). Pure.

Every condition is phrased so that True is well: ``kubectl wait --for=condition=Ready nodeconfig/NAME`` works for each.

NetworkUnavailable is False from the first serving on and stays so, whoever writes otherwise. flock never sets it True,
not at its end either: the taint that the controller-manager makes of it keeps pods away, those too that would mend the
node, and a cluster of one node could not come back. That a node has no network yet is told by the kubelet, whose Ready
is False until the CNI configuration is there.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from flock.agent.unserved import unserved
from flock.api.node_config import NodeConfig
from flock.api.overlaps import Overlap
from flock.model.family import FAMILIES, Family
from flock.model.times import rfc3339

NETWORK_UNAVAILABLE = "NetworkUnavailable"
MESSAGE_LIMIT = 1024
MOST_NAMED = 8


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One statement. ``reason`` is a word in CamelCase (meta/v1 Condition)."""

    type: str
    good: bool
    reason: str
    message: str


class FamilyUse(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of one family; ``free`` None: more than anybody will use."""

    family: Family
    used: int
    resting: int
    free: int | None


def node_condition(node: str, *, has_config: bool) -> Condition:
    """What a serving agent says of its Node: ``good`` is a status of False."""
    if has_config:
        return Condition(type=NETWORK_UNAVAILABLE, good=True, reason="FlockIsServing",
                         message="flock serves the pods of this node")
    return Condition(type=NETWORK_UNAVAILABLE, good=True, reason="NodeConfigMissing",
                     message=f"pods that run keep their addresses; new ones wait until NodeConfig {node} exists")


def conditions_of(config: NodeConfig, *, overlaps: Sequence[Overlap], refused_peers: Mapping[str, str],
                  uses: Sequence[FamilyUse], bird_trouble: str = "", refusal: str = "",
                  failing: Mapping[str, str] = MappingProxyType({})) -> tuple[Condition, ...]:
    """Every condition of a NodeConfig whose agent serves.

    ``bird_trouble``: why BIRD doesn't run with it; ``refusal``: why its newest state isn't in force; ``failing``: why
    a field has no effect now.
    """
    details = (
        _accepted(refusal),
        _known(config),
        _effective(config, failing),
        _bird(config, bird_trouble),
        _peers(refused_peers),
        _disjoint(overlaps),
        _available(uses),
    )
    bad = [one for one in details if not one.good]
    ready = Condition(
        type="Ready", good=True, reason="Serving",
        message=_joined(f"{one.type} is False: {one.message}" for one in bad) if bad else "pods get their addresses")
    if not _available(uses).good:
        ready = Condition(type="Ready", good=False, reason="NoAddresses", message=ready.message)
    return (ready, *details)


def _accepted(refusal: str) -> Condition:
    if not refusal:
        return Condition(type="SpecAccepted", good=True, reason="InForce", message="the newest spec is in force")
    return Condition(type="SpecAccepted", good=False, reason="SpecRefused",
                     message=f"the last good spec stays in force: {refusal}"[:MESSAGE_LIMIT])


def _bird(config: NodeConfig, trouble: str) -> Condition:
    if config.spec.bgp is None:
        return Condition(type="BirdConfigured", good=True, reason="NotNeeded", message="there is no spec.bgp")
    if not trouble:
        return Condition(type="BirdConfigured", good=True, reason="Configured", message="BIRD runs with it")
    return Condition(type="BirdConfigured", good=False, reason="BirdNotConfigured", message=trouble[:MESSAGE_LIMIT])


def _known(config: NodeConfig) -> Condition:
    if not config.unknown:
        return Condition(type="FieldsKnown", good=True, reason="AllKnown", message="this version knows every field")
    return Condition(type="FieldsKnown", good=False, reason="UnknownFields",
                     message=f"not known to this version, which goes on without: {_joined(config.unknown, ', ')}")


def _effective(config: NodeConfig, failing: Mapping[str, str]) -> Condition:
    if failing:
        return Condition(type="FieldsEffective", good=False, reason="Failing",
                         message=_joined(f"{field}: {why}" for field, why in sorted(failing.items())))
    sentences = tuple(unserved(config.spec))
    if not sentences:
        return Condition(type="FieldsEffective", good=True, reason="AllEffective", message="every field has its effect")
    return Condition(type="FieldsEffective", good=False, reason="FieldsWithoutEffect", message=_joined(sentences))


def _peers(refused: Mapping[str, str]) -> Condition:
    if not refused:
        return Condition(type="PeersValid", good=True, reason="AllValid", message="BIRD runs with every peer")
    return Condition(type="PeersValid", good=False, reason="PeersLeftOut",
                     message=_joined(f"{name}: {reason}" for name, reason in sorted(refused.items())))


def _disjoint(overlaps: Sequence[Overlap]) -> Condition:
    if not overlaps:
        return Condition(type="CIDRsDisjoint", good=True, reason="Disjoint", message="no other node has these CIDRs")
    return Condition(type="CIDRsDisjoint", good=False, reason="CIDRsOverlap", message=_joined(map(str, overlaps)))


def _available(uses: Sequence[FamilyUse]) -> Condition:
    empty = [use.family.label for use in uses if use.free is not None and use.free <= 0]
    if not empty:
        return Condition(type="AddressesAvailable", good=True, reason="Available", message="there are free addresses")
    return Condition(type="AddressesAvailable", good=False, reason="NoFreeAddress",
                     message=f"no free address: {', '.join(empty)}; pods start once others end, or with another CIDR")


def _joined(parts: Iterable[str], by: str = "; ") -> str:
    found = list(parts)
    text = by.join(found[:MOST_NAMED])
    if len(found) > MOST_NAMED:
        text = f"{text}{by}and {len(found) - MOST_NAMED} more"
    return text[:MESSAGE_LIMIT]


def written(conditions: Iterable[Condition], known: Iterable[object], generation: int, wall: float,
            ) -> list[dict[str, object]]:
    """Conditions as meta/v1 has them; those whose status is what ``known`` (as read or written last) says keep their
    ``lastTransitionTime``.
    """
    since = {one["type"]: (one.get("status"), one.get("lastTransitionTime"))
             for one in known if isinstance(one, Mapping) and isinstance(one.get("type"), str)}
    found = []
    for condition in conditions:
        status = "True" if condition.good else "False"
        former, moment = since.get(condition.type, (None, None))
        found.append({
            "type": condition.type, "status": status, "observedGeneration": generation, "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": moment if former == status and isinstance(moment, str) else rfc3339(wall),
        })
    return found


def repeated(condition: Condition, known: Iterable[object]) -> bool:
    """Whether ``known``, conditions as read, says the very same."""
    said = (condition.type, "True" if condition.good else "False", condition.reason, condition.message)
    return any(tuple(one.get(key) for key in ("type", "status", "reason", "message")) == said
               for one in known if isinstance(one, Mapping))


def used_addresses(uses: Iterable[FamilyUse]) -> list[dict[str, object]]:
    """The status's ``addresses``, IPv6 first."""
    order = {family: number for number, family in enumerate(FAMILIES)}
    return [
        {"family": use.family.label.lower(), "used": use.used, "resting": use.resting,
         **({"free": use.free} if use.free is not None else {})}
        for use in sorted(uses, key=lambda use: order[use.family])
    ]
