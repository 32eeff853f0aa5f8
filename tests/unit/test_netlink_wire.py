"""The bytes of netlink: attributes, batches, answers, and lengths that lie."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.netlink import constants as nl
from flock.netlink.messages import parse_address, parse_link, parse_neighbour
from flock.netlink.routes import parse_route
from flock.netlink.template import derive_template
from flock.netlink.wire import (
    HEADER,
    Message,
    attr,
    attr_u32,
    attributes,
    message,
    messages,
    nested,
    number_messages,
    parse_reply,
    text,
    u32,
)

ATTRIBUTES = st.dictionaries(st.integers(1, 0x3FFF), st.binary(max_size=40), max_size=8)


@given(ATTRIBUTES)
def test_attributes_come_back_as_they_went_in(wanted: dict[int, bytes]) -> None:
    packed = b"".join(attr(kind, value) for kind, value in wanted.items())
    assert len(packed) % 4 == 0
    assert {kind: bytes(value) for kind, value in attributes(memoryview(packed)).items()} == wanted


def test_nested_attributes_are_found_without_their_flag() -> None:
    packed = nested(18, attr(1, b"veth\0"), nested(2, attr_u32(3, 7)))
    outer = attributes(attributes(memoryview(packed))[18])
    assert text(outer[1]) == "veth"
    assert u32(attributes(outer[2])[3]) == 7


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=10))
def test_a_batch_is_numbered_and_acknowledged_at_its_end(payloads: list[bytes]) -> None:
    batch = bytearray(b"".join(message(24, 0x400, attr(1, payload)) for payload in payloads))
    assert number_messages(batch) == len(payloads)
    found = list(messages(batch))
    assert [each.seq for each in found] == list(range(1, len(payloads) + 1))
    assert [bool(each.flags & nl.NLM_F_ACK) for each in found] == [False] * (len(payloads) - 1) + [True]


def test_an_empty_batch_has_no_messages() -> None:
    assert number_messages(bytearray()) == 0


@given(st.binary(max_size=300))
def test_no_datagram_makes_a_reader_fail(datagram: bytes) -> None:
    for found in messages(datagram):
        assert parse_reply(found).seq == found.seq
        for read in (parse_link, parse_address, parse_neighbour, parse_route):
            read(found.body)


@given(st.sampled_from([parse_link, parse_address, parse_neighbour, parse_route]), st.binary(max_size=120), ATTRIBUTES)
def test_no_body_makes_a_reader_fail(read: object, head: bytes, more: dict[int, bytes]) -> None:
    assert callable(read)
    read(memoryview(head + b"".join(attr(kind, value) for kind, value in more.items())))


def test_a_length_that_lies_ends_the_walk() -> None:
    whole = message(16, 0, attr(1, b"x"))
    assert list(messages(whole[:-1])) == []
    assert list(messages(struct.pack("=IHHII", 3, 1, 0, 0, 0) + whole)) == []
    assert attributes(memoryview(struct.pack("=HH", 100, 1) + b"1234")) == {}


def reply(errno: int, flags: int, tail: bytes) -> Message:
    body = struct.pack("=i", -errno) + tail
    packed = HEADER.pack(16 + len(body), nl.NLMSG_ERROR, flags, 5, 0) + body
    return next(messages(packed))


def test_an_ack_is_errno_nought() -> None:
    assert parse_reply(reply(0, 0, bytes(16)))[:2] == (5, 0)


def test_what_the_kernel_says_is_read_behind_the_echoed_request() -> None:
    request = message(16, 0, attr(1, b"abc"))
    said = attr(nl.NLMSGERR_ATTR_MSG, b"Invalid prefsrc address\0")
    assert parse_reply(reply(22, nl.NLM_F_ACK_TLVS, request + said)).text == "Invalid prefsrc address"


def test_what_the_kernel_says_is_read_behind_a_capped_header() -> None:
    request = message(16, 0, attr(1, b"abc"))
    said = attr(nl.NLMSGERR_ATTR_MSG, b"no\0")
    assert parse_reply(reply(22, nl.NLM_F_ACK_TLVS | nl.NLM_F_CAPPED, request[:16] + said)).text == "no"


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.data())
def test_a_template_gives_the_bytes_of_the_function_it_came_from(sizes: list[int], data: st.DataObject) -> None:
    def pack(values: list[bytes] | tuple[bytes, ...]) -> bytes:
        return b"".join(message(20, 0, attr(3, value), attr(4, value + b"tail")) for value in values)

    values = [data.draw(st.binary(min_size=size, max_size=size)) for size in sizes]
    expected = bytearray(pack(values))
    count = number_messages(expected)
    template = derive_template(lambda drawn: pack(list(drawn)), sizes)
    assert (template.fill(values), template.count) == (expected, count)


@pytest.mark.parametrize("wrong", [b"123", b"12345"])
def test_a_template_refuses_a_value_of_another_length(wrong: bytes) -> None:
    template = derive_template(lambda values: message(20, 0, attr(1, values[0])), [4])
    with pytest.raises(ValueError, match="longer or shorter"):
        template.fill([wrong])
