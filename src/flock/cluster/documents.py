"""The text of a manifest as documents: YAML of many, or JSON, bounded in every direction. Pure.

Invariant: any bytes at all give documents or ``ManifestError``, nothing else.
"""

import json
from collections.abc import Iterator

from flock.cluster.yaml_values import DEPTH_LIMIT, Builder, Document, ManifestError

FILE_LIMIT = 8 * 1024 * 1024


def read_documents(data: bytes, *, as_json: bool) -> list[Document]:
    """Every document of a file that isn't empty; ``ManifestError`` for the first thing that is wrong."""
    if len(data) > FILE_LIMIT:
        raise ManifestError(1, 1, f"is larger than {FILE_LIMIT} bytes")
    text = _decode(data)
    documents = [_read_json(text)] if as_json else list(Builder(text).documents())
    return [document for document in documents if document.value is not None]


class Lines:
    """Where the fields of a file's documents stand; a document is read again the first time that it is asked about."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._known: dict[int, dict[str, int]] = {}

    def find(self, document: Document, path: str) -> int:
        """The line of a field (``spec.bgp.peers[0].asn``), or of the nearest field around it that is there."""
        lines = self._known.get(document.number)
        if lines is None:
            lines = self._known[document.number] = self._read(document)
        while path:
            if path in lines:
                return lines[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return document.line

    def _read(self, document: Document) -> dict[str, int]:
        builder = Builder(self._data.decode("utf-8-sig", errors="replace"), lines_of=document.number)
        try:
            for _ in builder.documents():
                if builder.number >= document.number:
                    break
        except ManifestError:
            # JSON that isn't YAML too: its line is the document's.
            return {}
        return builder.lines


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestError(1, data.count(b"\n", 0, error.start) + 1, "is not UTF-8 text") from error


def _read_json(text: str) -> Document:
    try:
        value: object = (
            json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant) if text.strip() else None
        )
    except json.JSONDecodeError as error:
        raise ManifestError(1, error.lineno, f"is not JSON: {error.msg} (column {error.colno})") from error
    except RecursionError as error:
        raise ManifestError(1, 1, f"is nested deeper than {DEPTH_LIMIT} levels") from error
    except ValueError as error:
        raise ManifestError(1, 1, f"is not JSON: {str(error)[:200]}") from error
    _check_depth(value)
    return Document(1, 1, value)


def _check_depth(value: object) -> None:
    level = [value]
    for _ in range(DEPTH_LIMIT + 1):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise ManifestError(1, 1, f"is nested deeper than {DEPTH_LIMIT} levels")


def _inside(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is no number")
