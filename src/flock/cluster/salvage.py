"""What can still be told of JSON that the decoder refuses: where a list's items are, what an object is called. Pure.

One object that can't be decoded (nested a thousand levels deep, a lone surrogate, a number where a string belongs)
comes in a page with hundreds of good ones. Here the page is cut by its brackets and strings alone, in a loop without a
stack. Slow beside the decoder, and used only when that has failed.

Invariant: any bytes at all give spans inside them and short texts, without recursion and in linear time.
"""

import re
from collections.abc import Iterator

import msgspec

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]:,]|[^\s{}\[\]:,"]++', re.DOTALL)
_TEXT_LIMIT = 512


def item_spans(page: bytes) -> Iterator[tuple[int, int]]:
    """Where each object of the top-level ``items`` begins and ends; what is cut off is left out."""
    depth = 0
    key = b""
    inside = False
    start = 0
    for token in _TOKEN.finditer(page):
        char = page[token.start() : token.start() + 1]
        if char in b"{[":
            depth += 1
            if depth == 2:
                inside = key == b'"items"' and char == b"["
            elif depth == 3 and inside:
                start = token.start()
        elif char in b"}]":
            if depth == 3 and inside:
                yield start, token.end()
            depth -= 1
        elif depth == 1 and char == b'"':
            key = token[0]


def texts_at(data: bytes, path: tuple[str, ...]) -> dict[str, str]:
    """The short strings in the mapping at ``path``, even where the data end in the middle."""
    wanted = [f'"{word}"'.encode() for word in path]
    found: dict[str, str] = {}
    keys: list[bytes] = []
    """The keys that lead to where the scan is, ``b""`` for an item of a list; at most one more than are asked for."""
    depth = 0
    key: bytes | None = None
    waiting: bytes | None = None
    for token in _TOKEN.finditer(data):
        char = token[0][:1]
        near = depth <= len(wanted) + 1
        if char in b"{[":
            if near and depth > 0:
                keys[depth - 1 :] = [key or b""]
            depth += 1
            key = waiting = None
        elif char in b"}]":
            depth -= 1
            if depth == len(wanted) and keys[:depth] == wanted:
                break
            key = waiting = None
        elif char == b":":
            key, waiting = waiting, None
        elif char == b",":
            key = waiting = None
        elif char == b'"' and near:
            if key is None:
                waiting = token[0]
            elif depth == len(wanted) + 1 and keys[: depth - 1] == wanted and len(token[0]) <= _TEXT_LIMIT:
                _put(found, key, token[0])
    return found


def _put(found: dict[str, str], key: bytes, value: bytes) -> None:
    try:
        found[msgspec.json.decode(key, type=str)] = msgspec.json.decode(value, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
