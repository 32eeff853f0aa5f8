"""Frames: how bytes are cut changes nothing, and no bytes do harm."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.cni.frames import (
    ENV_LIMIT,
    MAGIC,
    REPLY_LIMIT,
    STDIN_LIMIT,
    RawReply,
    RawRequest,
    RequestDecoder,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from flock.errors import DecodeFailure

keys = st.text(st.characters(exclude_characters="=\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
values = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50)
environments = st.dictionaries(keys, values, max_size=8)


def feed_all(data: bytes, cuts: list[int]) -> RawRequest | None:
    """Feed ``data`` in pieces; what the last piece gave."""
    decoder = RequestDecoder()
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    pieces = [data[start:end] for start, end in itertools.pairwise(places)]
    result = None
    for piece in pieces:
        assert result is None
        result = decoder.feed(piece)
    return result


@given(environments, st.binary(max_size=300), st.lists(st.integers(0, 1000), max_size=12))
def test_any_split_of_a_frame_gives_the_same_request(env: dict[str, str], stdin: bytes, cuts: list[int]) -> None:
    assert feed_all(encode_request(env, stdin), cuts) == RawRequest(env, stdin)


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=12))
def test_arbitrary_bytes_raise_nothing_but_decode_failure(data: bytes, cuts: list[int]) -> None:
    for frame in (data, MAGIC + data, MAGIC + struct.pack("<II", len(data) // 2, len(data) - len(data) // 2) + data):
        outcomes = []
        for places in (cuts, []):
            try:
                outcomes.append(feed_all(frame, places))
            except DecodeFailure:
                outcomes.append(None)
        assert outcomes[0] == outcomes[1]


@given(environments, st.binary(max_size=100), st.integers(0, 500), st.integers(0, 255))
def test_one_changed_byte_raises_nothing_but_decode_failure(
    env: dict[str, str], stdin: bytes, place: int, byte: int
) -> None:
    frame = bytearray(encode_request(env, stdin))
    frame[place % len(frame)] = byte
    try:
        raw = RequestDecoder().feed(bytes(frame))
    except DecodeFailure:
        return
    assert raw is None or isinstance(raw.env, dict)


def test_a_frame_that_ends_early_is_no_request_yet() -> None:
    frame = encode_request({"CNI_COMMAND": "ADD"}, b"{}")
    assert all(RequestDecoder().feed(frame[:end]) is None for end in range(len(frame)))


@pytest.mark.parametrize("frame", [b"", b"FLK", encode_request({"A": "b"}, b"xyz")[:-1]])
def test_a_stored_frame_must_be_whole(frame: bytes) -> None:
    with pytest.raises(DecodeFailure, match="cut short"):
        decode_request(frame)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\n", "not a request frame"),
        (b"X", "not a request frame"),
        (b"FLK2" + bytes(8), "not a request frame"),
        (struct.pack("<4sII", MAGIC, ENV_LIMIT + 1, 0), "environment is too large"),
        (struct.pack("<4sII", MAGIC, 0xFFFFFFFF, 0xFFFFFFFF), "environment is too large"),
        (struct.pack("<4sII", MAGIC, 0, STDIN_LIMIT + 1), "network configuration is too large"),
        (struct.pack("<4sII", MAGIC, 3, 0) + b"A=b", "doesn't end with NUL"),
        (struct.pack("<4sII", MAGIC, 3, 0) + b"Ab\0", "isn't KEY=VALUE"),
        (struct.pack("<4sII", MAGIC, 3, 0) + b"=b\0", "isn't KEY=VALUE"),
        (struct.pack("<4sII", MAGIC, 1, 0) + b"\0", "isn't KEY=VALUE"),
        (encode_request({}, b"") + b"x", "followed by more bytes"),
    ],
)
def test_what_is_no_frame_is_named(data: bytes, words: str) -> None:
    with pytest.raises(DecodeFailure, match=words):
        RequestDecoder().feed(data)


def test_the_first_of_two_equal_keys_counts_as_in_getenv() -> None:
    data = b"A=1\0A=2\0"
    raw = decode_request(struct.pack("<4sII", MAGIC, len(data), 0) + data)
    assert raw.env == {"A": "1"}


def test_bytes_that_are_no_utf8_survive_as_text_and_go_back_unchanged() -> None:
    data = b"CNI_NETNS=/run/\xff\xfe\0"
    raw = decode_request(struct.pack("<4sII", MAGIC, len(data), 0) + data)
    assert encode_request(raw.env, b"")[12:] == data


@pytest.mark.parametrize(
    "env", [{"A=": "b"}, {"": "b"}, {"A\0": "b"}, {"A": "b\0"}, {"A": "\ud800"}, {"A": "x" * ENV_LIMIT}]
)
def test_a_request_that_would_be_refused_is_not_encoded(env: dict[str, str]) -> None:
    with pytest.raises(DecodeFailure):
        encode_request(env, b"")


def test_the_largest_request_passes_and_one_byte_more_does_not() -> None:
    env = {"A": "x" * (ENV_LIMIT - 3)}
    stdin = bytes(STDIN_LIMIT)
    assert decode_request(encode_request(env, stdin)) == RawRequest(env, stdin)
    with pytest.raises(DecodeFailure):
        encode_request(env, stdin + b"x")


@given(st.integers(0, 2**32 - 1), st.binary(max_size=200), st.integers(0, 300))
def test_a_reply_is_whole_or_nothing(code: int, body: bytes, end: int) -> None:
    frame = encode_reply(code, body)
    expected = RawReply(code, body) if end >= len(frame) else None
    assert decode_reply(frame[:end]) == expected


@pytest.mark.parametrize("data", [encode_reply(0, b"x") + b"y", struct.pack("<II", 0, REPLY_LIMIT + 1)])
def test_what_is_no_reply_is_named(data: bytes) -> None:
    with pytest.raises(DecodeFailure):
        decode_reply(data)
