"""What a fake API server holds: objects with one resource version for all, and the history that watches replay.

Invariant, as in etcd: every change has a version of its own, greater than all before; a version before the last
compaction is gone; a write that changes nothing has no version.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

Object = dict[str, Any]
Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One resource: ``prefix`` is ``/api/v1`` or ``/apis/GROUP/VERSION``. ``custom``: defined by a CRD."""

    prefix: str
    plural: str
    kind: str
    namespaced: bool
    status: bool = False
    custom: bool = False

    @property
    def api_version(self) -> str:
        return self.prefix.removeprefix("/apis/").removeprefix("/api/")


KINDS = (
    Kind(prefix="/api/v1", plural="pods", kind="Pod", namespaced=True, status=True),
    Kind(prefix="/api/v1", plural="namespaces", kind="Namespace", namespaced=False, status=True),
    Kind(prefix="/api/v1", plural="nodes", kind="Node", namespaced=False, status=True),
    Kind(prefix="/api/v1", plural="events", kind="Event", namespaced=True),
    Kind(prefix="/api/v1", plural="secrets", kind="Secret", namespaced=True),
    Kind(prefix="/api/v1", plural="configmaps", kind="ConfigMap", namespaced=True),
    Kind(prefix="/apis/events.k8s.io/v1", plural="events", kind="Event", namespaced=True),
    Kind(prefix="/apis/networking.k8s.io/v1", plural="networkpolicies", kind="NetworkPolicy", namespaced=True),
    Kind(prefix="/apis/flock.fritzlab.net/v1alpha1", plural="nodeconfigs", kind="NodeConfig", namespaced=False,
         status=True, custom=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One state of one object; ``raw`` is what goes over the wire, which a test may have made hostile."""

    kind: Kind
    key: Key
    version: int
    object: Object
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """One change; for a deletion ``after`` is None and ``last`` is the object's last state, with its version."""

    version: int
    before: Stored | None
    after: Stored | None
    last: Stored


class Store:
    """The objects. ``listeners`` are called after each change."""

    def __init__(self) -> None:
        self.version = 100
        self.compacted = 0
        self.history: list[Happened] = []
        self.listeners: list[Callable[[], None]] = []
        self._objects: dict[Kind, dict[Key, Stored]] = {kind: {} for kind in KINDS}

    def get(self, kind: Kind, key: Key) -> Stored | None:
        return self._objects[kind].get(key)

    def kinds(self, name: str) -> list[Kind]:
        """The resources of a kind."""
        return [kind for kind in self._objects if kind.kind == name]

    def all(self, kind: Kind) -> list[Stored]:
        """In the order of a list: by namespace and name."""
        return [one for _, one in sorted(self._objects[kind].items())]

    def put(self, kind: Kind, thing: Object, raw: bytes | None = None) -> Stored:
        """Create or change; metadata that a server owns is set here."""
        key = key_of(kind, thing)
        before = self.get(kind, key)
        if before is not None and raw is None and _same(before.object, thing):
            return before
        made = self._stamp(kind, thing, before)
        version = self.version = self.version + 1
        made["metadata"]["resourceVersion"] = str(version)
        after = Stored(kind=kind, key=key, version=version, object=made, raw=raw or _encode(made))
        self._objects[kind][key] = after
        self._happened(Happened(version=version, before=before, after=after, last=after))
        return after

    def remove(self, kind: Kind, key: Key) -> Stored | None:
        """Take away; None where there is no such object."""
        before = self._objects[kind].pop(key, None)
        if before is None:
            return None
        version = self.version = self.version + 1
        metadata = {**before.object["metadata"], "resourceVersion": str(version)}
        thing = {**before.object, "metadata": metadata}
        last = Stored(kind=kind, key=key, version=version, object=thing, raw=_encode(thing))
        self._happened(Happened(version=version, before=before, after=None, last=last))
        return last

    def since(self, version: int) -> Iterator[Happened]:
        """What happened after ``version``."""
        return (one for one in self.history if one.version > version)

    def compact(self) -> None:
        """Forget all history."""
        self.compacted = self.version
        self.history.clear()

    def _happened(self, change: Happened) -> None:
        self.history.append(change)
        for listener in tuple(self.listeners):
            listener()

    def _stamp(self, kind: Kind, thing: Object, before: Stored | None) -> Object:
        metadata = dict(thing.get("metadata") or {})
        old = before.object["metadata"] if before is not None else {}
        metadata["uid"] = old.get("uid") or metadata.get("uid") or str(uuid.uuid4())
        metadata["creationTimestamp"] = old.get("creationTimestamp") or "2026-12-01T00:00:00Z"
        if before is None:
            metadata["generation"] = 1
        else:
            same_spec = before.object.get("spec") == thing.get("spec")
            metadata["generation"] = old["generation"] + (0 if same_spec else 1)
        return {"apiVersion": kind.api_version, "kind": kind.kind, **thing, "metadata": metadata}


def key_of(kind: Kind, thing: Mapping[str, Any]) -> Key:
    metadata = thing["metadata"]
    return (metadata.get("namespace", "default") if kind.namespaced else "", metadata["name"])


def _same(before: Object, after: Object) -> bool:
    volatile = ("resourceVersion", "generation", "uid", "creationTimestamp")

    def bare(one: Object) -> Object:
        metadata = {key: value for key, value in one["metadata"].items() if key not in volatile}
        return {**one, "metadata": metadata, "apiVersion": "", "kind": ""}

    return bare(before) == bare(after)


def _encode(thing: Object) -> bytes:
    return msgspec.json.encode(thing)
