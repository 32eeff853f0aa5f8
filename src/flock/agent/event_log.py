"""Events that wait to be told to the API server: the same one is told once, with a count. Pure.

kubelet asks for a refused pod again and again; each refusal is the same Event (object, reason, message), once more.
Invariant: no more than ``LIMIT`` different ones are kept and no more than ``BURST`` plus one each second are written,
so a node full of wrong pods costs the API server little; what finds no place is counted, never waited for.

Source: core/v1 Event (``count``, ``firstTimestamp``, ``lastTimestamp``), as ``kubectl describe`` shows it. The newer
events.k8s.io/v1 is the same objects, but refuses ``count``: there a series has to be read before it can be written on.
"""

import hashlib
from collections.abc import Iterator

import msgspec

from flock.model.times import rfc3339

LIMIT = 256
REPEAT_GAP = 10.0
BURST = 25
NAME_LIMIT = 200
MESSAGE_LIMIT = 1024
"""What events.k8s.io takes; core/v1 takes more, and kubectl prints it in one line."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The object that an Event is about; ``namespace`` is empty where its kind has none."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""


class Told(msgspec.Struct, kw_only=True):
    """One Event: how often it was seen, and how often that was written.

    ``first`` and ``last`` are wall-clock seconds, ``written_at`` monotonic ones: a clock that jumps silences nothing.
    """

    subject: Subject
    reason: str
    message: str
    warning: bool
    first: float
    last: float
    count: int = 1
    written: int = 0
    written_at: float = 0.0

    @property
    def namespace(self) -> str:
        """Where the Event lives: with its object, else in ``default``."""
        return self.subject.namespace or "default"


class EventLog:
    """One agent's Events; ``salt`` (anything of this start) keeps its names apart from an earlier agent's."""

    def __init__(self, node: str, salt: str) -> None:
        self._node = node
        self._salt = salt
        self._told: dict[tuple[Subject, str, str], Told] = {}
        self._credit = float(BURST)
        self._credited: float | None = None
        self.dropped = 0

    def note(self, subject: Subject, reason: str, message: str, wall: float, *, warning: bool = True) -> bool:
        """Something happened at ``wall``; True where it is new, so that it is worth a write at once."""
        message = message[:MESSAGE_LIMIT]
        key = (subject, reason, message)
        known = self._told.get(key)
        if known is not None:
            known.count += 1
            known.last = wall
            return False
        if len(self._told) >= LIMIT and not self._make_room():
            self.dropped += 1
            return False
        self._told[key] = Told(subject=subject, reason=reason, message=message, warning=warning, first=wall, last=wall)
        return True

    def due(self, now: float) -> Iterator[Told]:
        """What may be written at ``now`` (monotonic), the oldest first; who has written one says ``wrote``."""
        elapsed = max(0.0, now - self._credited) if self._credited is not None else 0.0
        self._credit, self._credited = min(float(BURST), self._credit + elapsed), now
        for told in [one for one in self._told.values() if self._is_due(one, now)]:
            if self._credit < 1.0:
                return
            self._credit -= 1.0
            yield told

    @staticmethod
    def wrote(told: Told, count: int, now: float) -> None:
        told.written, told.written_at = count, now

    def postpone(self, told: Told) -> None:
        """The others first: what the API server can't take now must not keep them from it."""
        key = (told.subject, told.reason, told.message)
        if key in self._told:
            self._told[key] = self._told.pop(key)

    def forget(self, told: Told) -> None:
        """Give one up: the next time it happens it is a new one."""
        self._told.pop((told.subject, told.reason, told.message), None)

    def name(self, told: Told) -> str:
        """The Event's name: the same for the same Event, of this agent's life."""
        identity = repr((self._salt, told.subject, told.reason, told.message))
        return f"{told.subject.name[:NAME_LIMIT]}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"

    def document(self, told: Told) -> dict[str, object]:
        """The whole object."""
        subject = told.subject
        reference = {"apiVersion": subject.api_version, "kind": subject.kind, "name": subject.name, "uid": subject.uid}
        if subject.namespace:
            reference["namespace"] = subject.namespace
        return {
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": self.name(told), "namespace": told.namespace},
            "involvedObject": reference, "reason": told.reason, "message": told.message,
            "type": "Warning" if told.warning else "Normal",
            "source": {"component": "flock", "host": self._node},
            "reportingComponent": "flock", "reportingInstance": self._node,
            "firstTimestamp": rfc3339(told.first), **self.changes(told),
        }

    @staticmethod
    def changes(told: Told) -> dict[str, object]:
        """What differs when it happens again."""
        return {"count": told.count, "lastTimestamp": rfc3339(told.last)}

    @staticmethod
    def _is_due(told: Told, now: float) -> bool:
        return told.count > told.written and (told.written == 0 or now - told.written_at >= REPEAT_GAP)

    def _make_room(self) -> bool:
        """Forget the one that is written and longest quiet."""
        done = [key for key, one in self._told.items() if one.count == one.written]
        if not done:
            return False
        del self._told[min(done, key=lambda key: self._told[key].last)]
        return True
