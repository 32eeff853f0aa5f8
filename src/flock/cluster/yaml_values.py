"""YAML as plain values, built from libyaml's events in a loop, not by a recursive constructor. Pure.

So no depth of the text is a depth of the stack, an alias is counted as what it stands for (ten lines of them can stand
for a billion values), and every key's line can be told. Plain scalars are read as YAML 1.2's core schema does: ``no``
is a word, and ``1:30`` isn't a number.

Invariant: any text at all gives documents or ``ManifestError``, nothing else.
"""

import re
from collections.abc import Iterator

import msgspec
import yaml

VALUE_LIMIT = 1_000_000
DEPTH_LIMIT = 100

_INT = re.compile(r"[-+]?[0-9]{1,40}")
_HEX_OR_OCTAL = re.compile(r"0x[0-9a-fA-F]{1,40}|0o[0-7]{1,40}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,40}|[0-9]{1,40}(?:\.[0-9]{0,40})?)(?:[eE][-+]?[0-9]{1,3})?")
_WORDS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_PLAIN_TAGS = {
    yaml.ScalarEvent: frozenset({None, "!", "tag:yaml.org,2002:str"}),
    yaml.SequenceStartEvent: frozenset({None, "!", "tag:yaml.org,2002:seq"}),
    yaml.MappingStartEvent: frozenset({None, "!", "tag:yaml.org,2002:map"}),
}


class ManifestError(Exception):
    """Text that is no manifest: which document, which line, and why."""

    def __init__(self, document: int, line: int, message: str) -> None:
        super().__init__(message)
        self.document = document
        self.line = line
        self.message = message


class Document(msgspec.Struct, frozen=True):
    """One document: its number and first line, counted from 1, and what it says."""

    number: int
    line: int
    value: object


class _Frame:
    """A mapping or sequence under construction. ``key`` is a mapping's key that waits for its value."""

    __slots__ = ("anchor", "is_map", "key", "map", "path", "seq", "started", "waiting")

    def __init__(self, *, is_map: bool, anchor: str | None, path: str | None, started: int) -> None:
        self.is_map = is_map
        self.anchor = anchor
        self.path = path
        self.started = started
        self.map: dict[object, object] = {}
        self.seq: list[object] = []
        self.key: object = None
        self.waiting = False

    def next_path(self) -> str | None:
        """The path of the value that comes next, where paths are wanted."""
        if self.path is None:
            return None
        if not self.is_map:
            return f"{self.path}[{len(self.seq)}]"
        return f"{self.path}.{self.key}" if self.path else str(self.key)


class Builder:
    """Values out of events. ``lines_of`` names the document of which to note every field's line."""

    def __init__(self, text: str, lines_of: int = 0) -> None:
        self._text = text
        self._lines_of = lines_of
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[object, int]] = {}
        self._count = 0
        self._line = 1
        self._root: object = None
        self.number = 0
        self.lines: dict[str, int] = {}

    def documents(self) -> Iterator[Document]:
        start = 1
        try:
            for event in yaml.parse(self._text, Loader=yaml.CSafeLoader):
                self._line = event.start_mark.line + 1 if event.start_mark is not None else self._line
                if isinstance(event, yaml.DocumentStartEvent):
                    self._begin()
                    start = 0
                elif isinstance(event, yaml.DocumentEndEvent):
                    yield Document(self.number, start or self._line, self._root)
                else:
                    start = start or self._line
                    self._take(event)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark is not None else self._line
            raise ManifestError(max(self.number, 1), line, f"is not YAML: {error.problem}") from error
        except yaml.reader.ReaderError as error:
            line = self._text.count("\n", 0, error.position) + 1
            raise ManifestError(max(self.number, 1), line, f"is not YAML: {error.reason}") from error

    def _begin(self) -> None:
        self.number += 1
        self._anchors.clear()
        self._root = None

    def _take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._check_tag(event)
            self._count += 1
            self._put(_scalar(event), event.anchor, 1)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._open(event)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            frame = self._stack.pop()
            self._count += 1
            self._put(frame.map if frame.is_map else frame.seq, frame.anchor, self._count - frame.started)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise self._error("is not YAML: an alias comes before its anchor")
            value, size = self._anchors[event.anchor]
            self._count += size
            self._put(value, None, size)

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        self._check_tag(event)
        if len(self._stack) >= DEPTH_LIMIT:
            raise self._error(f"is nested deeper than {DEPTH_LIMIT} levels")
        is_map = isinstance(event, yaml.MappingStartEvent)
        path = self._stack[-1].next_path() if self._stack else "" if self.number == self._lines_of else None
        if self._stack and self._stack[-1].is_map and not self._stack[-1].waiting:
            raise self._error("has a mapping or a list as a key")
        self._stack.append(_Frame(is_map=is_map, anchor=event.anchor, path=path, started=self._count))

    def _put(self, value: object, anchor: str | None, size: int) -> None:
        if self._count > VALUE_LIMIT:
            raise self._error(f"holds more than {VALUE_LIMIT} values, aliases counted as what they stand for")
        if anchor is not None:
            self._anchors[anchor] = (value, size)
        if not self._stack:
            self._root = value
            return
        frame = self._stack[-1]
        if not frame.is_map:
            frame.seq.append(value)
        elif frame.waiting:
            frame.map[frame.key] = value
            frame.waiting = False
        else:
            self._key(frame, value)

    def _key(self, frame: _Frame, key: object) -> None:
        if isinstance(key, (dict, list)):
            raise self._error("has a mapping or a list as a key")
        if key == "<<":
            raise self._error('has a merge key ("<<"), which flock doesn\'t read')
        if key in frame.map:
            raise self._error(f"has the key {str(key)[:80]!r} twice")
        frame.key = key
        frame.waiting = True
        path = frame.next_path()
        if path is not None:
            self.lines[path] = self._line

    def _check_tag(self, event: yaml.ScalarEvent | yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if event.tag not in _PLAIN_TAGS[type(event)]:
            raise self._error(f"has the tag {str(event.tag)[:80]!r}, which flock doesn't read")

    def _error(self, message: str) -> ManifestError:
        return ManifestError(self.number, self._line, message)


def _scalar(event: yaml.ScalarEvent) -> object:
    text: str = event.value
    if not event.implicit[0] or event.tag is not None:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _HEX_OR_OCTAL.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text
