"""Notices as events, and the filter programs as instructions."""

import struct
from ipaddress import ip_address, ip_network

import pytest

from flock.model.family import Address
from flock.netlink import constants as nl
from flock.netlink.bpf import Line, assemble, gone_links_filter, losses_filter
from flock.netlink.events import AddressGone, LinkChanged, LinkGone, NeighbourGone, RouteGone, parse_event
from flock.netlink.messages import ensure_address, ensure_neighbour, ifinfo
from flock.netlink.routes import Route, blackhole, delete_route
from flock.netlink.wire import Message, attr, message, messages

SIX, FOUR = ip_address("2001:db8::1"), ip_address("192.0.2.1")
MAC = bytes.fromhex("666c00000001")


def notice(kind: int, request: bytes) -> Message:
    (found,) = messages(message(kind, 0, request[16:]))
    return found


@pytest.mark.parametrize("lost", [SIX, FOUR])
def test_addresses_and_neighbours_of_either_family(lost: Address) -> None:
    gone = parse_event(notice(nl.RTM_DELADDR, ensure_address(7, lost, lost.max_prefixlen)))
    assert gone == AddressGone(ifindex=7, address=lost)
    known = parse_event(notice(nl.RTM_DELNEIGH, ensure_neighbour(7, lost, MAC)))
    assert known == NeighbourGone(ifindex=7, address=lost)


def test_routes_of_flock_alone() -> None:
    route = Route(dst=ip_network("2001:db8::1/128"), proto=71, ifindex=9)
    assert parse_event(notice(nl.RTM_DELROUTE, delete_route(route))) == RouteGone(ifindex=9, route=route)
    summary = blackhole(ip_network("10.0.0.0/8"), 70)
    assert parse_event(notice(nl.RTM_DELROUTE, delete_route(summary))) == RouteGone(ifindex=0, route=summary)
    other = Route(dst=ip_network("2001:db8::1/128"), proto=3, ifindex=9)
    assert parse_event(notice(nl.RTM_DELROUTE, delete_route(other))) is None


@pytest.mark.parametrize("up", [True, False])
def test_links_that_changed_or_are_gone(up: bool) -> None:
    body = ifinfo(5, nl.IFF_UP if up else 0) + attr(nl.IFLA_IFNAME, b"flkx\0") + attr(nl.IFLA_ADDRESS, MAC)
    changed = parse_event(notice(nl.RTM_NEWLINK, bytes(16) + body))
    assert changed == LinkChanged(ifindex=5, name="flkx", mac=MAC, up=up)
    assert parse_event(notice(nl.RTM_DELLINK, bytes(16) + body)) == LinkGone(ifindex=5, name="flkx")


@pytest.mark.parametrize("kind", [nl.RTM_NEWROUTE, nl.RTM_NEWADDR, nl.RTM_NEWNEIGH, 999])
def test_what_is_new_is_no_loss(kind: int) -> None:
    assert parse_event(notice(kind, ensure_address(7, SIX, 128))) is None


@pytest.mark.parametrize("kind", [nl.RTM_NEWLINK, nl.RTM_DELLINK, nl.RTM_DELADDR, nl.RTM_DELNEIGH, nl.RTM_DELROUTE])
def test_a_notice_that_was_cut_is_no_event(kind: int) -> None:
    assert parse_event(Message(kind, 0, 0, memoryview(b"\0\0"))) is None


def test_labels_become_distances() -> None:
    program = assemble([Line(0x15, 1, yes="end", no=""), Line(0x06, 2), Line(0x06, 3, label="end")])
    assert program[:8] == struct.pack("=HBBI", 0x15, 1, 0, 1)


@pytest.mark.parametrize("program", [gone_links_filter(), losses_filter()])
def test_every_jump_goes_forward_to_a_line_that_exists(program: bytes) -> None:
    lines = list(struct.iter_unpack("=HBBI", program))
    for place, (code, yes, no, _) in enumerate(lines):
        if code & 0x07 == 0x05:
            assert place + 1 + max(yes, no) < len(lines)
    assert [line[0] for line in lines[-2:]] == [0x06, 0x06]


@pytest.mark.parametrize("kind", [nl.RTM_DELADDR, nl.RTM_DELNEIGH, nl.RTM_NEWLINK])
def test_links_that_nobody_watches_make_no_events(kind: int) -> None:
    packed = {
        nl.RTM_DELADDR: ensure_address(7, SIX, 128),
        nl.RTM_DELNEIGH: ensure_neighbour(7, SIX, MAC),
        nl.RTM_NEWLINK: bytes(16) + ifinfo(7),
    }[kind]
    assert parse_event(notice(kind, packed), lambda index: index == 7) is not None
    assert parse_event(notice(kind, packed), lambda index: index != 7) is None


def test_routes_of_links_that_nobody_watches_make_no_events_but_blackholes_do() -> None:
    route = Route(dst=ip_network("2001:db8::1/128"), proto=71, ifindex=9)
    assert parse_event(notice(nl.RTM_DELROUTE, delete_route(route)), lambda _: False) is None
    assert parse_event(notice(nl.RTM_DELROUTE, delete_route(route)), lambda _: True) is not None
    summary = delete_route(blackhole(ip_network("10.0.0.0/8"), 70))
    assert parse_event(notice(nl.RTM_DELROUTE, summary), lambda _: False) is not None
