"""Reading one mapping of a decoded YAML or JSON object, field by field, without stopping at the first problem. Pure.

Invariant: whatever the object is, reading it raises nothing; what is wrong is in ``Notes.problems``, what nobody asked
for in ``Notes.unknown``. ``null`` is the same as absent, as it is to the Kubernetes API.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from flock.api.problems import ABSENT, Problem, printable

T = TypeVar("T")

TEXT_LIMIT = 4096
LIST_LIMIT = 256
DURATION_LIMIT = 64

DURATION = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:h|ms|m|s|us|µs))+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|s|us|µs)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}


class Notes:
    """What was found wrong, and what was there that nobody knows, while one object was read."""

    __slots__ = ("problems", "unknown")

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.unknown: list[str] = []

    def add(self, field: str, value: object, rule: str) -> None:
        self.problems.append(Problem(field, value, rule))


class Section:
    """One mapping. ``path`` is how its fields are named in problems; ``done`` notes the fields that nobody read."""

    __slots__ = ("_asked", "_raw", "notes", "path")

    def __init__(self, raw: object, path: str, notes: Notes) -> None:
        self.path = path
        self.notes = notes
        self._asked: set[str] = set()
        if raw is not None and not isinstance(raw, Mapping):
            notes.add(path, raw, "must be a mapping")
        self._raw: Mapping[object, object] = raw if isinstance(raw, Mapping) else {}

    def name(self, key: str) -> str:
        """The full name of a field."""
        return f"{self.path}.{key}" if self.path else key

    def get(self, key: str) -> object:
        """The raw value of a field, None where it is absent."""
        self._asked.add(key)
        return self._raw.get(key)

    def problem(self, key: str, value: object, rule: str) -> None:
        self.notes.add(self.name(key), value, rule)

    def section(self, key: str) -> "Section | None":
        """The mapping in a field, None where it is absent."""
        raw = self.get(key)
        return None if raw is None else Section(raw, self.name(key), self.notes)

    def items(self, key: str, most: int = LIST_LIMIT) -> list[object]:
        """The list in a field, empty where it is absent."""
        raw = self.get(key)
        if raw is None:
            return []
        if not isinstance(raw, list):
            self.problem(key, raw, "must be a list")
            return []
        if len(raw) > most:
            self.problem(key, raw, f"must hold at most {most} items, not {len(raw)}")
        return raw[:most]

    def texts(self, key: str, most: int = LIST_LIMIT) -> list[str]:
        """The strings of a list; anything else in it is a problem."""
        found: list[str] = []
        for item in self.items(key, most):
            if isinstance(item, str) and len(item) <= TEXT_LIMIT:
                found.append(item)
            else:
                self.problem(key, item, f"must be a string of at most {TEXT_LIMIT} characters")
        return found

    def flag(self, key: str) -> bool | None:
        raw = self.get(key)
        if raw is None or isinstance(raw, bool):
            return raw
        self.problem(key, raw, "must be true or false")
        return None

    def integer(self, key: str, low: int, high: int) -> int | None:
        raw = self.get(key)
        if raw is None:
            return None
        if isinstance(raw, bool) or not isinstance(raw, int) or not low <= raw <= high:
            self.problem(key, raw, f"must be a whole number from {low} to {high}")
            return None
        return raw

    def text(self, key: str) -> str | None:
        raw = self.get(key)
        if raw is None:
            return None
        if not isinstance(raw, str):
            self.problem(key, raw, "must be a string")
            return None
        if len(raw) > TEXT_LIMIT:
            self.problem(key, raw, f"must be at most {TEXT_LIMIT} characters long, not {len(raw)}")
            return None
        return raw

    def parsed(self, key: str, parse: Callable[[str], T]) -> T | None:
        """A string read by ``parse``, whose ValueError is the rule that it breaks."""
        text = self.text(key)
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            self.problem(key, text, str(error))
            return None

    def duration(self, key: str, low: float, high: float) -> float | None:
        """Seconds, written as Kubernetes does: ``120s``, ``300ms``, ``1h30m``."""
        raw = self.get(key)
        if raw is None:
            return None
        seconds = parse_duration(raw) if isinstance(raw, str) and len(raw) <= DURATION_LIMIT else None
        if seconds is None:
            self.problem(key, raw, 'must be a duration such as "120s" or "300ms"')
        elif not low <= seconds <= high:
            self.problem(key, raw, f"must be a duration from {low:g}s to {high:g}s")
        else:
            return seconds
        return None

    def required(self, key: str) -> bool:
        """Whether a field is there; that it isn't is a problem."""
        if self.get(key) is not None:
            return True
        self.problem(key, ABSENT, "is required")
        return False

    def done(self) -> None:
        """Note every field that nobody asked for."""
        for key in self._raw:
            if key not in self._asked:
                self.notes.unknown.append(self.name(printable(key, 80) if isinstance(key, str) else repr(type(key))))


def parse_duration(text: str) -> float | None:
    """A duration in Go's notation as seconds, None for anything else."""
    if text == "0":
        return 0.0
    if not DURATION.fullmatch(text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(text))
