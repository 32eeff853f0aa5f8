"""Creating, changing and deleting in the fake API server, with the refusals of a real one.

Sources: Kubernetes API concepts; k8s.io/apiserver pkg/endpoints/handlers and pkg/registry/generic/registry.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from flock.api.names import parse_object_name
from flock.testing.api_list import BadRequest
from flock.testing.api_patch import BadPatch, json_patch, merge_patch, strategic_merge_patch
from flock.testing.api_store import Key, Kind, Object, Store, Stored

_APPLY = "application/apply-patch+yaml"
_NOT_ALLOWED = (405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
_PATCHES = {
    "application/merge-patch+json": merge_patch,
    "application/strategic-merge-patch+json": strategic_merge_patch,
    "application/json-patch+json": json_patch,
    _APPLY: strategic_merge_patch,
}


class Refused(Exception):
    """A refusal: HTTP status, the API's word for it, its message."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A request that changes something."""

    method: str
    sub: str
    query: Mapping[str, str]
    content_type: str
    body: bytes

    def read(self) -> Any:  # noqa: ANN401 - whatever the client sent
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError as error:
            raise BadRequest(f"couldn't get version/kind; json parse error: {error}") from error


class Writes:
    """Writes of clients to one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def existing(self, kind: Kind, key: Key) -> Stored:
        found = self._store.get(kind, key)
        if found is None:
            raise Refused(404, "NotFound", f'{kind.plural} "{key[1]}" not found')
        return found

    def write(self, kind: Kind, key: Key, write: Write) -> tuple[int, Mapping[str, object]]:
        """Status and answer of a request that changes something."""
        match write.method, bool(key[1]):
            case "POST", False:
                return 201, self._create(kind, key[0], write.read())
            case "PUT", True:
                return 200, self._update(kind, key, write.sub, write.read())
            case "PATCH", True:
                return self._patch(kind, key, write)
            case "DELETE", True:
                return 200, self._delete(kind, key, write.query, write.read() if write.body else {})
            case _:
                raise Refused(*_NOT_ALLOWED)

    def _create(self, kind: Kind, namespace: str, thing: Object) -> Object:
        metadata = _metadata(kind, thing)
        if kind.namespaced:
            if not namespace:
                raise Refused(*_NOT_ALLOWED)
            if metadata.setdefault("namespace", namespace) != namespace:
                raise BadRequest("the namespace of the object does not match the namespace sent on the request")
            self._check_namespace(namespace)
        name = metadata.get("name") or _generated(metadata, self._store.version)
        if not isinstance(name, str) or not _is_name(name):
            raise Refused(422, "Invalid", f'{kind.kind} "{name}" is invalid: metadata.name: Invalid value: "{name}"')
        metadata["name"] = name
        if self._store.get(kind, (namespace, name)) is not None:
            raise Refused(409, "AlreadyExists", f'{kind.plural} "{name}" already exists')
        if metadata.pop("resourceVersion", None):
            raise Refused(500, "", "resourceVersion should not be set on objects to be created")
        metadata.pop("uid", None)
        if kind.status and kind.kind != "Node":
            thing.pop("status", None)
        if kind.kind == "Namespace":
            metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": name}
        return self._store.put(kind, thing).object

    def _check_namespace(self, namespace: str) -> None:
        if not any(one.key[1] == namespace for kind in self._store.kinds("Namespace") for one in self._store.all(kind)):
            raise Refused(404, "NotFound", f'namespaces "{namespace}" not found')

    def _update(self, kind: Kind, key: Key, sub: str, thing: Object) -> Object:
        metadata = _metadata(kind, thing)
        before = self.existing(kind, key)
        if metadata.get("name") != key[1]:
            raise BadRequest(f"the name of the object ({metadata.get('name')}) does not match the name on the URL")
        if kind.namespaced and metadata.setdefault("namespace", key[0]) != key[0]:
            raise BadRequest("the namespace of the object does not match the namespace on the URL")
        version = metadata.get("resourceVersion")
        if kind.custom and not version:
            raise Refused(422, "Invalid", "metadata.resourceVersion: Invalid value: 0: must be specified for an update")
        return self._replace(kind, before, sub, thing, version)

    def _patch(self, kind: Kind, key: Key, write: Write) -> tuple[int, Mapping[str, object]]:
        change = _PATCHES.get(write.content_type)
        if change is None or (kind.custom and write.content_type == "application/strategic-merge-patch+json"):
            raise Refused(415, "UnsupportedMediaType", f"the body of the request was in an unknown format - accepted "
                          f"media types include: {', '.join(_PATCHES)}")
        body = write.read()
        if write.content_type == _APPLY:
            if not write.query.get("fieldManager"):
                raise Refused(422, "Invalid", "fieldManager: Required value: is required for apply patch")
            if self._store.get(kind, key) is None and not write.sub:
                return 201, self._create(kind, key[0], body)
        before = self.existing(kind, key)
        try:
            found = change(before.object, body)
        except BadPatch as error:
            raise Refused(422, "Invalid", f"the patch can't be applied: {error}") from error
        if not isinstance(found, dict):
            raise Refused(422, "Invalid", "the patch makes it no object")
        version = found["metadata"].get("resourceVersion")
        if version == before.object["metadata"]["resourceVersion"]:
            version = None
        return 200, self._replace(kind, before, write.sub, found, version)

    def _replace(self, kind: Kind, before: Stored, sub: str, thing: Object, version: str | None) -> Object:
        if version is not None and version != before.object["metadata"]["resourceVersion"]:
            raise Refused(409, "Conflict", f'Operation cannot be fulfilled on {kind.plural} "{before.key[1]}": the '
                          "object has been modified; please apply your changes to the latest version and try again")
        uid = (thing.get("metadata") or {}).get("uid")
        if uid and uid != before.object["metadata"]["uid"]:
            raise Refused(409, "Conflict", "Precondition failed: UID in precondition does not match")
        if kind.status:
            kept, taken = ("status", "spec") if not sub else ("spec", "status")
            merged = {**(before.object if sub else thing), taken: thing.get(taken), kept: before.object.get(kept)}
            thing = {key: value for key, value in merged.items() if value is not None}
        return self._store.put(kind, thing).object

    def _delete(self, kind: Kind, key: Key, query: Mapping[str, str], options: Mapping[str, Any]) -> Object:
        before = self.existing(kind, key)
        uid = (options.get("preconditions") or {}).get("uid")
        if uid and uid != before.object["metadata"]["uid"]:
            raise Refused(409, "Conflict", "Precondition failed: UID in precondition does not match")
        grace = query.get("gracePeriodSeconds", options.get("gracePeriodSeconds"))
        scheduled = kind.kind == "Pod" and (before.object.get("spec") or {}).get("nodeName")
        if scheduled and str(grace) != "0":
            metadata = {**before.object["metadata"], "deletionTimestamp": "2026-12-01T00:00:30Z",
                        "deletionGracePeriodSeconds": int(grace or 30)}
            return self._store.put(kind, {**before.object, "metadata": metadata}).object
        self._store.remove(kind, key)
        if kind.kind == "Pod":
            return before.object
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def _metadata(kind: Kind, thing: object) -> dict[str, Any]:
    if not isinstance(thing, dict) or not isinstance(thing.get("metadata"), dict):
        raise BadRequest("the object has no metadata")
    for field, expected in (("kind", kind.kind), ("apiVersion", kind.api_version)):
        if thing.get(field, None if kind.custom else expected) != expected:
            raise BadRequest(f"{field} {thing.get(field)!r} in the data does not match the expected {expected}")
    metadata: dict[str, Any] = dict(thing["metadata"])
    thing["metadata"] = metadata
    return metadata


def _generated(metadata: Mapping[str, Any], number: int) -> str:
    prefix = metadata.get("generateName")
    if not prefix:
        raise Refused(422, "Invalid", "metadata.name: Required value: name or generateName is required")
    return f"{prefix}{number:05x}"


def _is_name(text: str) -> bool:
    try:
        parse_object_name(text)
    except ValueError:
        return False
    return True
