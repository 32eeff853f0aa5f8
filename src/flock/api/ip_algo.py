"""ip-algo: how the host part of a pod's IPv6 address is built from what the pod is. Pure.

``namespace=6,pod=5,image=4``: fields in order, each with an optional width in nibbles; those without one share what is
left evenly, earlier ones take the remainder (a literal takes its digits). The last nibble of the address is N, random,
and belongs to no field.

Invariant: a parsed ``Field`` is valid by itself; whether the fields fit a CIDR is for ``flock.ipam.embed`` to say.
"""

import re
from enum import Enum

import msgspec

from flock.api.problems import printable

WIDEST = 31
"""Nibbles of an IPv6 address without N."""

MOST_FIELDS = 8
"""The five words, and some literals; the API server's rule needs a term for each."""

TEXT_LIMIT = 256

_LITERAL = re.compile(r"0x[0-9a-f]+")


class FieldKind(Enum):
    """What a field is made from; the value is the word that users write."""

    NAMESPACE = "namespace"
    POD = "pod"
    IMAGE = "image"
    NODE = "node"
    SERVICE_ACCOUNT = "serviceaccount"
    LITERAL = "0x"


class Field(msgspec.Struct, frozen=True):
    """One field. ``width`` is None where it takes its share; ``digits`` are a literal's hex digits, else empty."""

    kind: FieldKind
    width: int | None = None
    digits: str = ""

    def __str__(self) -> str:
        name = f"0x{self.digits}" if self.kind is FieldKind.LITERAL else self.kind.value
        return name if self.width is None else f"{name}={self.width}"


WORDS = {kind.value: kind for kind in FieldKind if kind is not FieldKind.LITERAL}


def parse_ip_algo(text: str) -> tuple[Field, ...]:
    """The fields of an ip-algo; empty text is no ip-algo, so a random interface identifier. ValueError is the rule."""
    if not text.strip():
        return ()
    parts = text.split(",")
    if len(text) > TEXT_LIMIT:
        raise ValueError(f"is longer than {TEXT_LIMIT} characters")
    if len(parts) > MOST_FIELDS:
        raise ValueError(f"has more than {MOST_FIELDS} fields")
    fields = tuple(_parse_field(part.strip()) for part in parts)
    named = [field.kind for field in fields if field.kind is not FieldKind.LITERAL]
    twice = next((kind for kind in named if named.count(kind) > 1), None)
    if twice is not None:
        raise ValueError(f"has the field {twice.value} twice")
    total = sum(field.width or 1 for field in fields)
    if total > WIDEST:
        raise ValueError(f"asks for {total} nibbles; an IPv6 address has {WIDEST} beside N")
    return fields


def render_ip_algo(fields: tuple[Field, ...]) -> str:
    """The text that ``parse_ip_algo`` reads back into the same fields."""
    return ",".join(str(field) for field in fields)


def _parse_field(text: str) -> Field:
    name, equals, width_text = text.partition("=")
    name = name.strip()
    width = _parse_width(width_text.strip(), name) if equals else None
    kind = WORDS.get(name)
    if kind is not None:
        return Field(kind, width)
    if not _LITERAL.fullmatch(name):
        words = ", ".join(WORDS)
        raise ValueError(f'has no field "{printable(name, 40)}"; fields are {words} and a literal such as 0xab')
    digits = name[2:]
    if len(digits) > WIDEST:
        raise ValueError(f"has a literal of {len(digits)} digits; {WIDEST} is the most")
    if width is not None and width < len(digits):
        raise ValueError(f"has the literal 0x{digits} in {width} nibbles, which can't hold it")
    return Field(FieldKind.LITERAL, len(digits) if width is None else width, digits)


def _parse_width(text: str, name: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 2 and 1 <= int(text) <= WIDEST:
        return int(text)
    raise ValueError(f'has a width for "{printable(name, 40)}" that is no number of nibbles from 1 to {WIDEST}')
