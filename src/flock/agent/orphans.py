"""Whose allocation has outlived its pod (R5): decided from a whole view alone, twice, and never by name. Pure.

An allocation is an orphan where no pod of this node has its UID any more, or where that pod has ended (Succeeded,
Failed). A static pod's runtime UID is its mirror pod's hash. Allocations without a UID (podman, a rebuilt entry) are
nobody's to judge here: the runtime's DEL or GC ends them.

Unknown is valid: before the view is complete nothing is judged, an ADD younger than ``YOUNG`` may be newer than the
watch, and whoever cuts a live interface asks the API server for that one pod first.

Source: the cases A6, A8 and A9 of other projects (a collector that ate living pods) are this module's tests.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from flock.api.objects import PodView
from flock.model.attachment import Attachment
from flock.model.ids import AttachmentKey

YOUNG = 60.0
"""Seconds after its ADD in which an allocation is never an orphan."""

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
        return Why.NO_POD
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


def seen_twice(before: Iterable[Orphan], now: Iterable[Orphan]) -> tuple[Orphan, ...]:
    """Those that were orphans, of the same ADD, at the sighting before, too."""
    known: set[tuple[AttachmentKey, float]] = {(one.attachment.key, one.attachment.created) for one in before}
    return tuple(one for one in now if (one.attachment.key, one.attachment.created) in known)
