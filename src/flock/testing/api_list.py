"""Selectors, pages and event lines of the fake API server: what a real one makes of its objects. Pure.

Sources: Kubernetes API concepts ("Retrieving large results sets in chunks"), k8s.io/apiserver pkg/storage.
"""

import base64
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from flock.testing.api_store import Happened, Kind, Object, Stored

Selects = Callable[[Stored], bool]

_FIELDS: Mapping[str, Sequence[str]] = {
    "pods": ("spec.nodeName", "status.phase", "spec.restartPolicy", "spec.serviceAccountName"),
    "nodes": ("spec.unschedulable",),
    "events": ("involvedObject.name", "involvedObject.namespace", "involvedObject.uid", "reason", "type"),
    "namespaces": ("status.phase",),
}


class BadRequest(ValueError):
    """The server's words for what is wrong with a request."""


class Continue(msgspec.Struct):
    """What a continue token stands for."""

    version: int
    start: tuple[str, str]


def read_selectors(kind: Kind, query: Mapping[str, str]) -> Selects:
    """The field and label selectors of a query; BadRequest as a real server words it."""
    tests = [_field_test(kind, term) for term in filter(None, query.get("fieldSelector", "").split(","))]
    tests += [_label_test(term) for term in filter(None, query.get("labelSelector", "").split(","))]
    return lambda stored: all(test(stored.object) for test in tests)


def _field_test(kind: Kind, term: str) -> Callable[[Object], bool]:
    match = re.fullmatch(r"([\w.]+)(==|!=|=)(.*)", term)
    if match is None:
        raise BadRequest(f"invalid selector: '{term}'; can't understand '{term}'")
    path, sign, wanted = match.groups()
    if path not in ("metadata.name", "metadata.namespace", *_FIELDS.get(kind.plural, ())):
        raise BadRequest(f'Unable to find "{kind.prefix}, Resource={kind.plural}" that match field selector '
                         f'"{term}": field label not supported: {path}')
    return lambda thing: (str(_at(thing, path)) == wanted) is (sign != "!=")


def _label_test(term: str) -> Callable[[Object], bool]:
    match = re.fullmatch(r"(!?)([\w./-]+)(?:(==|!=|=)([\w.-]*))?", term)
    if match is None:
        raise BadRequest(f"unable to parse requirement: {term}")
    negated, key, sign, wanted = match.groups()

    def test(thing: Object) -> bool:
        labels = thing["metadata"].get("labels") or {}
        if sign is None:
            return (key in labels) is not bool(negated)
        return (labels.get(key) == wanted) is (sign != "!=")

    return test


def _at(thing: object, path: str) -> object:
    for word in path.split("."):
        thing = thing.get(word) if isinstance(thing, Mapping) else None
    return "" if thing is None else thing


def encode_continue(version: int, start: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(Continue(version, start))).decode().rstrip("=")


def decode_continue(text: str) -> Continue:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Continue)
    except (ValueError, msgspec.MsgspecError) as error:
        raise BadRequest(f"continue key is not valid: {error}") from error


def render_list(kind: Kind, items: Sequence[Stored], version: int, continue_: str, remaining: int) -> bytes:
    """A list as its bytes: typed ones have the head first and items without kind, custom ones are sorted by key."""
    metadata: dict[str, object] = {"resourceVersion": str(version)}
    if continue_:
        metadata = {"continue": continue_, "remainingItemCount": remaining, **metadata}
    head = {"apiVersion": kind.api_version, "kind": f"{kind.kind}List", "metadata": metadata}
    body = b",".join(one.raw if kind.custom else _without_kind(one) for one in items)
    if kind.custom:
        first, rest = {"apiVersion": head["apiVersion"]}, {"kind": head["kind"], "metadata": metadata}
        return msgspec.json.encode(first)[:-1] + b',"items":[' + body + b"]," + msgspec.json.encode(rest)[1:]
    return msgspec.json.encode(head)[:-1] + b',"items":[' + body + b"]}"


def _without_kind(stored: Stored) -> bytes:
    start = msgspec.json.encode({"apiVersion": stored.kind.api_version, "kind": stored.kind.kind})[:-1] + b","
    return b"{" + stored.raw[len(start) :] if stored.raw.startswith(start) else stored.raw


def render_event(change: Happened, selects: Selects) -> bytes | None:
    """A change as the line that a watch with this selector gets, or None."""
    was = change.before is not None and selects(change.before)
    now = change.after is not None and selects(change.after)
    if now:
        return _line("MODIFIED" if was else "ADDED", change.last.raw)
    if not was:
        return None
    if change.after is None:
        return _line("DELETED", change.last.raw)
    # It has left the selection: its last state that was in it, with the version of the change.
    assert change.before is not None
    thing = {**change.before.object, "metadata": {**change.before.object["metadata"],
                                                   "resourceVersion": str(change.version)}}
    return _line("DELETED", msgspec.json.encode(thing))


def render_added(stored: Stored) -> bytes:
    return _line("ADDED", stored.raw)


def render_bookmark(kind: Kind, version: int) -> bytes:
    metadata: dict[str, object] = {"resourceVersion": str(version), "creationTimestamp": None}
    return _line("BOOKMARK", msgspec.json.encode(
        {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}))


def render_error(status: Mapping[str, object]) -> bytes:
    return _line("ERROR", msgspec.json.encode(status))


def _line(kind: str, thing: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + thing + b"}\n"


def status(code: int, reason: str, message: str, **details: object) -> dict[str, object]:
    """A Status of failure."""
    found: dict[str, object] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                                "message": message, "reason": reason, "code": code}
    return {**found, "details": details} if details else found
