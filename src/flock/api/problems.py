"""What is wrong with an object that somebody wrote: each problem as a field, a value and a rule. Pure.

Invariant: every problem of an object is reported together, and a hostile value (control characters, megabytes, a
thousand levels) can neither break the line it is shown on nor cost more than a line.
"""

from collections.abc import Sequence

import msgspec

from flock.errors import InvalidConfig

_SHOWN = 80
_BIG = 1 << 128
_MOST_NAMED = 32


class Absent:
    """Stands for the value of a field that isn't there."""

    __slots__ = ()


ABSENT = Absent()


class Problem(msgspec.Struct, frozen=True):
    """One problem: ``spec.cidr6 "10.0.0.0/8" is IPv4`` is a field, the value found in it, and the rule it breaks."""

    field: str
    value: object
    rule: str

    def __str__(self) -> str:
        return " ".join(part for part in (self.field, show(self.value), self.rule) if part)


class InvalidObject(InvalidConfig):
    """An object that can't be used: ``problems`` is everything that is wrong with it, ``subject`` its name."""

    def __init__(self, problems: Sequence[Problem], subject: str = "") -> None:
        self.problems = tuple(problems)
        self.subject = subject
        named = [str(problem) for problem in self.problems[:_MOST_NAMED]]
        if len(self.problems) > _MOST_NAMED:
            named.append(f"and {len(self.problems) - _MOST_NAMED} more problems")
        text = "; ".join(named)
        super().__init__(f"{subject}: {text}" if subject else text)


def show(value: object) -> str:
    """A value as its author would recognise it, on one line, cut; the kind of thing alone for what has an inside."""
    if isinstance(value, Absent):
        return ""
    if isinstance(value, str):
        return f'"{printable(value, _SHOWN)}"'
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        # int() and str() of very long numbers are quadratic, and refused by Python beyond 4,300 digits.
        return str(value) if abs(value) < _BIG else f"a number of {value.bit_length()} bits"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else f"a {type(value).__name__}"


def printable(text: str, limit: int) -> str:
    """Text on one line: what isn't printable escaped, quotes and backslashes too, the rest cut off."""
    cut = text[: limit + 1]
    safe = "".join(map(_escape, cut[:limit]))
    return safe + ("…" if len(cut) > limit else "")


def _escape(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else char.encode("unicode_escape").decode()
