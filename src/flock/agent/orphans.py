"""Whose allocation has outlived its pod (R5): decided from a whole view alone, twice, and never by name. Pure.

An allocation is an orphan where no pod of this node has its UID any more, or where that pod has ended (Succeeded,
Failed). A static pod's runtime UID is its mirror pod's hash, and it runs without a mirror pod, too: while there is none
it is no orphan. Allocations without a UID are nobody's to judge here (podman: its DEL ends them), but one that was
rebuilt from its interface belongs to the pod whose status has its addresses, and is that pod's from then on.

Unknown is valid: before the view is complete nothing is judged, an ADD younger than ``YOUNG`` may be newer than the
watch, and whoever cuts a live interface asks the API server for that one pod first.

Source: the cases A6, A8 and A9 of other projects (a collector that ate living pods) are this module's tests.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from flock.api.objects import PodView
from flock.model.attachment import Attachment
from flock.model.family import Address, parse_address
from flock.model.ids import AttachmentKey

YOUNG = 60.0
"""Seconds after its ADD in which an allocation is never an orphan."""

_API_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""What the API server gives; kubelet's hash of a static pod's manifest is 32 digits in a row."""

ENDED = frozenset({"Succeeded", "Failed"})


class Why(Enum):
    """Why an allocation is an orphan."""

    NO_POD = "its pod is gone from this node"
    OTHER_UID = "a pod of this name has another UID"
    ENDED = "its pod has ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """One allocation without a pod."""

    attachment: Attachment
    why: Why


def judge(attachment: Attachment, pod: PodView | None) -> Why | None:
    """Why an allocation is an orphan, given the pod of its name on this node; None where it isn't."""
    if not attachment.uid:
        return None
    if pod is None:
        return Why.NO_POD if _API_UID.fullmatch(attachment.uid) else None
    if attachment.uid not in (pod.uid, pod.runtime_uid):
        return Why.OTHER_UID
    return Why.ENDED if pod.phase in ENDED else None


def decide_orphans(
    committed: Iterable[Attachment], pods: Mapping[tuple[str, str], PodView], *, complete: bool, now: float
) -> tuple[Orphan, ...]:
    """All orphans of one moment; none from a partial view. ``now``: seconds since the machine's start."""
    if not complete:
        return ()
    found = []
    for attachment in committed:
        why = judge(attachment, pods.get((attachment.namespace, attachment.pod)))
        if why is not None and now - attachment.created >= YOUNG:
            found.append(Orphan(attachment=attachment, why=why))
    return tuple(found)


def find_owners(
    committed: Iterable[Attachment], pods: Iterable[PodView]
) -> Iterator[tuple[Attachment, PodView]]:
    """Rebuilt allocations, each with the one pod of this node that has all its addresses."""
    nameless = [entry for entry in committed if not entry.uid and not entry.pod and not entry.netns]
    if not nameless:
        return
    having: dict[Address, list[PodView]] = {}
    for pod in pods:
        if not pod.host_network and pod.phase not in ENDED:
            for address in _addresses(pod):
                having.setdefault(address, []).append(pod)
    for entry in nameless:
        owners = [having.get(address, []) for address in entry.addresses()]
        if owners and len(owners[0]) == 1 and all(each == owners[0] for each in owners):
            yield entry, owners[0][0]


def _addresses(pod: PodView) -> Iterator[Address]:
    for text in pod.pod_ips:
        with contextlib.suppress(ValueError):
            yield parse_address(text)


def seen_twice(before: Iterable[Orphan], now: Iterable[Orphan]) -> tuple[Orphan, ...]:
    """Those that were orphans, of the same ADD, at the sighting before, too."""
    known: set[tuple[AttachmentKey, float]] = {(one.attachment.key, one.attachment.created) for one in before}
    return tuple(one for one in now if (one.attachment.key, one.attachment.created) in known)
