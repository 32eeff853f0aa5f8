"""No value leaves its quotes, whatever it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.api.bgp import Community
from flock.routing.text import PASSWORD_LIMIT, STRING_LIMIT, add_community, described, prefix_set, quoted

HOSTILE = [
    'a"b', 'x"; } protocol static evil { ipv4; } #', "a\nb", "a\rb", "a\0b", "\x7f", "\x85", "\udc80", "", "x" * 201]


@pytest.mark.parametrize("value", HOSTILE)
def test_what_no_string_can_hold_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="must"):
        quoted(value)


@pytest.mark.parametrize("value", ["a\\", "a;b#c'd $%", " lead and trail ", "ü" * 40, "x" * 80])
def test_passwords_are_literal_up_to_80_bytes(value: str) -> None:
    assert quoted(value, PASSWORD_LIMIT) == f'"{value}"'
    with pytest.raises(ValueError, match="must be 1 to 80 bytes long, is"):
        quoted(value + "x" * (81 - len(value.encode())), PASSWORD_LIMIT)


@given(value=st.text(st.characters(codec=None), max_size=300))
def test_a_quoted_string_is_one_token(value: str) -> None:
    try:
        text = quoted(value)
    except ValueError:
        return
    assert text == f'"{value}"'
    assert text.count('"') == 2
    assert text.splitlines() == [text] or {"\u2028", "\u2029"} & set(text)
    assert len(text.encode()) <= STRING_LIMIT + 2


@given(value=st.text(st.characters(codec=None), max_size=300))
def test_any_word_can_be_a_description(value: str) -> None:
    text = described(value)
    assert text.count('"') == 2
    assert text.isprintable()
    assert 3 <= len(text.encode()) <= STRING_LIMIT + 2


def test_equal_sets_have_equal_text() -> None:
    assert prefix_set(["b", "a", "b"]) == prefix_set(["a", "b"]) == "[ a, b ]"
    assert prefix_set([]) == "[  ]"


def test_communities_of_both_kinds() -> None:
    assert add_community(Community((64513, 100))) == "bgp_community.add((64513,100));"
    assert add_community(Community((64513, 1, 2))) == "bgp_large_community.add((64513,1,2));"
