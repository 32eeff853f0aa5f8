"""Flows as the kernel tells them; tests/kernel lets the kernel itself judge it."""

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.netlink import constants as nl
from flock.netlink.conntrack import delete_flow, dump_unreplied, parse_flow
from flock.netlink.wire import Message, attr, messages, nested

FAMILIES = {"10.64.1.2": (nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST, nl.AF_INET),
            "2001:db8::2": (nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST, nl.AF_INET6)}


def direction(kind: int, source: str, target: str) -> bytes:
    src, dst, _ = next(value for key, value in FAMILIES.items() if (":" in key) is (":" in source))
    return nested(kind, nested(nl.CTA_TUPLE_IP, attr(src, ip_address(source).packed),
                               attr(dst, ip_address(target).packed)), attr(2 | nl.NLA_F_NESTED, b"protocol"))


def entry(*attributes: bytes) -> Message:
    return Message(nl.IPCTNL_MSG_CT_NEW, 0, 0, memoryview(b"\x02\0\0\0" + b"".join(attributes)))


@pytest.mark.parametrize("pod", FAMILIES)
@pytest.mark.parametrize(("status", "answered"), [(0x188, False), (0x18A, True)])
def test_a_flow_is_read_and_removed_by_its_own_name(pod: str, status: int, answered: bool) -> None:
    world = "2001:db8::9" if ":" in pod else "203.0.113.9"
    there = direction(nl.CTA_TUPLE_ORIG, pod, world)
    back = direction(nl.CTA_TUPLE_REPLY, world, pod)
    zone = attr(nl.CTA_ZONE, b"\0\x07")
    flow = parse_flow(entry(there, back, attr(nl.CTA_STATUS, struct.pack(">I", status)), zone))
    assert flow is not None
    assert (str(flow.source), str(flow.target), flow.answered) == (pod, world, answered)
    assert (str(flow.reply_source), str(flow.reply_target)) == (world, pod)
    (request,) = messages(delete_flow(FAMILIES[pod][2], flow))
    assert (request.kind, bytes(request.body[4:])) == (nl.IPCTNL_MSG_CT_DELETE, there + zone)


def test_only_flows_without_an_answer_are_asked_for() -> None:
    (request,) = messages(dump_unreplied(nl.AF_INET))
    assert request.flags & nl.NLM_F_DUMP == nl.NLM_F_DUMP
    assert bytes(request.body) == (b"\x02\0\0\0" + attr(nl.CTA_STATUS, b"\0\0\0\0")
                                   + attr(nl.CTA_STATUS_MASK, b"\0\0\0\x02"))


@given(st.binary(max_size=200), st.binary(max_size=60), st.binary(max_size=60))
def test_a_flow_whose_name_is_unknown_is_none(body: bytes, there: bytes, back: bytes) -> None:
    """A removal without a name would remove every flow."""
    for one in (Message(nl.IPCTNL_MSG_CT_NEW, 0, 0, memoryview(body)),
                entry(attr(nl.CTA_TUPLE_ORIG, there), attr(nl.CTA_TUPLE_REPLY, back))):
        flow = parse_flow(one)
        assert flow is None or flow.name
