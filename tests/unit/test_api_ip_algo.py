"""The text of an ip-algo."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.api.ip_algo import Field, FieldKind, parse_ip_algo, render_ip_algo


def test_fields_widths_and_literals() -> None:
    assert parse_ip_algo("namespace=6, pod,image=4,0xbeef,0x1=3,node,serviceaccount") == (
        Field(FieldKind.NAMESPACE, 6),
        Field(FieldKind.POD),
        Field(FieldKind.IMAGE, 4),
        Field(FieldKind.LITERAL, 4, "beef"),
        Field(FieldKind.LITERAL, 3, "1"),
        Field(FieldKind.NODE),
        Field(FieldKind.SERVICE_ACCOUNT),
    )
    assert parse_ip_algo("") == parse_ip_algo("  ") == ()


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("namespace,", 'no field ""'),
        (",pod", 'no field ""'),
        ("Namespace", 'no field "Namespace"'),
        ("pod=0", "width"),
        ("pod=32", "width"),
        ("pod=", "width"),
        ("pod=-1", "width"),
        ("pod=٣", "width"),
        ("pod,pod", "pod twice"),
        ("0x", 'no field "0x"'),
        ("0xAB", 'no field "0xAB"'),
        ("0xabc=2", "can't hold it"),
        (f"0x{'1' * 32}", "literal of 32 digits"),
        ("namespace=16,pod=16", "asks for 32 nibbles"),
        (",".join(["0x1"] * 9), "more than 8 fields"),
        ('pod"\n', r"pod\\\"\Z|no field"),
    ],
)
def test_what_is_refused_and_why(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        parse_ip_algo(text)


@given(st.text())
def test_any_text_gives_fields_or_one_line(text: str) -> None:
    try:
        fields = parse_ip_algo(text)
    except ValueError as error:
        refusal = str(error)
    else:
        assert parse_ip_algo(render_ip_algo(fields)) == fields
        return
    assert refusal.isprintable()
