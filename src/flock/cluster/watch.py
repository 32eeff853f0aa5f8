"""What an API server's pages and watch lines say: objects of one resource, by name, and how far the server is. Pure.

Invariant: no bytes stop it. An object that can't be used becomes ``Damaged`` with its name and the reason, and the
others stand; a line that isn't even an event is ``LOST``, after which only a new list tells what is. Only the fields
of the resource's own narrow type are decoded, once, straight from the bytes.

Sources: Kubernetes API concepts, "Efficient detection of changes", "Watch bookmarks", "410 Gone responses".
"""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Generic, Protocol, TypeVar

import msgspec

from flock.api.names import parse_object_name
from flock.api.problems import printable
from flock.api.raw import RawMeta
from flock.cluster.answers import Status
from flock.cluster.lines import Oversized
from flock.cluster.salvage import item_spans, texts_at
from flock.errors import InvalidConfig

Key = tuple[str, str]
"""Namespace and name; "" for the namespace of what lives in none."""


class _HasMeta(Protocol):
    metadata: RawMeta


R = TypeVar("R", bound=_HasMeta)
V = TypeVar("V")

_REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Damaged(msgspec.Struct, frozen=True):
    """An object that can't be used. ``key`` is None where not even its name can be told."""

    kind: str
    key: Key | None
    reason: str

    @property
    def name(self) -> str:
        if self.key is None:
            return f"a {self.kind} whose name can't be told"
        return f"{self.kind} {'/'.join(printable(part, 253) for part in self.key if part)}"


class EventKind(Enum):
    """What one line of a watch is."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"
    LOST = "LOST"


class Item(msgspec.Struct, Generic[V], frozen=True):
    """One object: its key, and what is kept of it or why nothing can be."""

    key: Key | None
    value: V | Damaged


class Event(msgspec.Struct, Generic[V], frozen=True):
    """One line. ``item`` is there for the first three kinds, ``status`` for ERROR and LOST."""

    kind: EventKind
    item: Item[V] | None = None
    resource_version: str = ""
    status: Status | None = None


class Change(msgspec.Struct, Generic[V], frozen=True):
    """One object that differs; None where it was or is not there."""

    key: Key
    before: V | None
    after: V | None


class Page(msgspec.Struct, Generic[V]):
    """One page: its items are made while they are taken, so that the taker can pause between them."""

    resource_version: str
    continue_: str
    items: Iterator[Item[V]]


class _Line(msgspec.Struct, Generic[R]):
    type: str
    object: R


class _List(msgspec.Struct, Generic[R]):
    metadata: RawMeta = msgspec.field(default_factory=RawMeta)
    items: list[R] | None = None


class _Failure(msgspec.Struct):
    object: Status


_FAILURE = msgspec.json.Decoder(_Failure)


class Reader(Generic[R, V]):
    """Reads one resource: ``raw`` is what is decoded of it, ``view`` what is kept (InvalidConfig: it can't be used)."""

    def __init__(self, kind: str, raw: type[R], view: Callable[[R], V]) -> None:
        self.kind = kind
        self._view = view
        # mypy knows no subscript by a variable; msgspec does.
        self._line = msgspec.json.Decoder[_Line[R]](_Line[raw])  # type: ignore[valid-type]
        self._list = msgspec.json.Decoder[_List[R]](_List[raw])  # type: ignore[valid-type]
        self._one = msgspec.json.Decoder[R](raw)

    def page(self, data: bytes) -> Page[V]:
        """A page of a list."""
        try:
            found = self._list.decode(data)
        except _REFUSED:
            told = texts_at(data, ("metadata",))
            return Page(told.get("resourceVersion", ""), told.get("continue", ""), self._salvage(data))
        head = found.metadata
        return Page(head.resourceVersion or "", head.continue_ or "", map(self._item, found.items or ()))

    def one(self, data: bytes) -> Item[V]:
        """An object by itself."""
        try:
            raw = self._one.decode(data)
        except _REFUSED as error:
            return self._damaged(texts_at(data, ("metadata",)), error)
        return self._item(raw)

    def line(self, data: bytes | Oversized) -> Event[V]:
        """A line of a watch."""
        if isinstance(data, Oversized):
            return self._broken(data.head, InvalidConfig("it is larger than flock reads"))
        try:
            found = self._line.decode(data)
        except _REFUSED as error:
            return self._broken(data, error)
        version = found.object.metadata.resourceVersion or ""
        match found.type:
            case "ADDED" | "MODIFIED" | "DELETED":
                return Event(EventKind(found.type), self._item(found.object), version)
            case "BOOKMARK":
                return Event(EventKind.BOOKMARK, None, version)
            case "ERROR":
                return Event(EventKind.ERROR, status=_failure(data))
            case _:
                return Event(EventKind.LOST, status=Status(message=f"an event of type {printable(found.type, 40)}"))

    def _item(self, raw: R) -> Item[V]:
        meta = raw.metadata
        key = (meta.namespace or "", meta.name)
        try:
            for part in key if key[0] else key[1:]:
                parse_object_name(part)
            return Item(key, self._view(raw))
        except ValueError as error:
            return Item(None, Damaged(self.kind, None, f"its name {printable(meta.name, 80)} {error}"))
        except (InvalidConfig, RecursionError) as error:
            return Item(key, Damaged(self.kind, key, str(error)))

    def _salvage(self, page: bytes) -> Iterator[Item[V]]:
        for start, end in item_spans(page):
            yield self.one(page[start:end])

    def _broken(self, data: bytes, error: Exception) -> Event[V]:
        """A line whose object can't be decoded: what it was about is what matters."""
        kind = texts_at(data, ()).get("type", "")
        told = texts_at(data, ("object", "metadata"))
        match kind:
            case "ERROR":
                return Event(EventKind.ERROR, status=_failure(data))
            case "BOOKMARK":
                return Event(EventKind.BOOKMARK, None, told.get("resourceVersion", ""))
            case "ADDED" | "MODIFIED" | "DELETED":
                item = self._damaged(told, error)
                if item.key is not None:
                    return Event(EventKind(kind), item, told.get("resourceVersion", ""))
            case _:
                pass
        return Event(EventKind.LOST, status=Status(message=f"a line that can't be read: {str(error)[:200]}"))

    def _damaged(self, told: dict[str, str], error: Exception) -> Item[V]:
        key = (told.get("namespace", ""), told.get("name", ""))
        try:
            for part in key if key[0] else key[1:]:
                parse_object_name(part)
        except ValueError:
            return Item(None, Damaged(self.kind, None, _reason(error)))
        return Item(key, Damaged(self.kind, key, _reason(error)))


def _failure(data: bytes) -> Status:
    try:
        return _FAILURE.decode(data).object
    except _REFUSED:
        return Status(message="an error that can't be read")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error)[:200]
