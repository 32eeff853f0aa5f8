"""Lines of a stream, and what can be told of JSON that the decoder refuses."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.cluster.lines import HEAD, LineSplitter, Oversized
from flock.cluster.salvage import item_spans, texts_at


@given(st.lists(st.binary(min_size=1, max_size=30).filter(lambda text: b"\n" not in text and text.strip())),
       st.lists(st.integers(1, 20), min_size=1))
def test_lines_are_whole_however_they_come(lines: list[bytes], sizes: list[int]) -> None:
    stream, found, splitter = b"".join(line + b"\n" for line in lines), [], LineSplitter()
    while stream:
        size = sizes[len(stream) % len(sizes)]
        found += splitter.feed(stream[:size])
        stream = stream[size:]
    assert found == lines


def test_a_line_that_is_too_long_is_told_once_and_the_next_is_whole() -> None:
    splitter = LineSplitter(limit=10)
    assert splitter.feed(b"abc") == []
    assert splitter.feed(b"defghijkl") == [Oversized(b"abcdefghijkl")]
    assert splitter.feed(b"mnop" * 100) == []
    assert splitter.feed(b"q\nnext\n") == [b"next"]


def test_of_a_line_that_is_too_long_only_the_head_is_kept() -> None:
    (found,) = LineSplitter(limit=HEAD).feed(b"x" * (HEAD + 1))
    assert isinstance(found, Oversized)
    assert len(found.head) == HEAD


@given(st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.lists(st.text(max_size=3)), max_size=4)),
       st.booleans())
def test_items_are_found_where_they_are(items: list[dict[str, object]], spaced: bool) -> None:
    separators = (", ", ": ") if spaced else (",", ":")
    thing = {"metadata": {"items": [{"no": 1}]}, "items": items, "after": [{}]}
    page = json.dumps(thing, separators=separators).encode()
    assert [json.loads(page[start:end]) for start, end in item_spans(page)] == items


@pytest.mark.parametrize(("path", "expected"), [
    ((), {"type": "ADDED"}),
    (("object", "metadata"), {"name": 'a"}', "namespace": "b"}),
    (("object", "nothing"), {}),
])
def test_texts_of_one_mapping_are_found_among_others(path: tuple[str, ...], expected: dict[str, str]) -> None:
    data = json.dumps({"type": "ADDED", "object": {
        "metadata": {"labels": {"name": "no"}, "list": [{"name": "no"}], "name": 'a"}', "number": 3, "namespace": "b"},
        "spec": {"metadata": {"name": "no"}, "name": "no"}}}).encode()
    assert texts_at(data, path) == expected


def test_a_thousand_levels_cost_no_stack() -> None:
    data = b'{"metadata":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"name":"a"}}'
    assert texts_at(data, ("metadata",)) == {"name": "a"}


@given(st.binary(max_size=200))
def test_any_bytes_give_something(data: bytes) -> None:
    for start, end in item_spans(data):
        assert 0 <= start < end <= len(data)
    texts_at(data, ("metadata",))
