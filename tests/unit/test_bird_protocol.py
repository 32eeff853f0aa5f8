"""Replies of four versions of BIRD, as they came, cut anywhere, and with what a hostile neighbour can put into them."""

from collections.abc import Iterable
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.model.family import Family
from flock.routing.bird_protocol import (
    REPLY_LIMIT,
    Reply,
    ReplyReader,
    SessionState,
    parse_sessions,
    parse_status,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "bird"
VERSIONS = ["2.0.12", "2.17.6", "3.1.8", "3.4.0"]

HEAD = "1002-peer_x7    BGP        ---        up     2026-11-30T23:50:22.172078+0000  Established   \n"


def replies(data: bytes, cuts: Iterable[int] = ()) -> list[Reply]:
    reader = ReplyReader()
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [reply for start, end in pairwise(edges) for reply in reader.feed(data[start:end])]


def sessions(text: str) -> tuple[SessionState, ...]:
    return parse_sessions(replies(text.encode(errors="surrogateescape"))[-1], "peer_")


@pytest.mark.parametrize("version", VERSIONS)
def test_sessions_of_every_version(version: str) -> None:
    greeting, reply = replies((GOLDEN / f"protocols-{version}.txt").read_bytes())
    assert (greeting.code, greeting.text) == (1, f"BIRD {version} ready.")
    link_local, internal, far = parse_sessions(reply, "peer_")
    assert link_local.established
    assert (link_local.state, link_local.description, link_local.neighbor, link_local.interface) == (
        "up", "tor-a", ip_address("fe80::1"), "eth0")
    assert (link_local.neighbor_asn, link_local.info, link_local.last_error) == (64512, "", "")
    channels = {channel.family: channel for channel in link_local.channels}
    assert {(family, one.state, one.imported, one.exported) for family, one in channels.items()} == {
        (Family.IPV6, "UP", 1, 1), (Family.IPV4, "UP", 1, 1)}
    assert (internal.bgp_state, internal.neighbor, internal.interface) == ("Idle", ip_address("192.0.2.3"), None)
    assert (far.bgp_state in {"Active", "Connect"}, far.last_error) == (True, "Socket: Network is unreachable")
    assert far.info == "Socket: Network is unreachable"
    assert not any(session.established or session.stuck or session.unbound for session in (internal, far))


@pytest.mark.parametrize("version", VERSIONS)
def test_status_of_every_version(version: str) -> None:
    _, reply = replies((GOLDEN / f"status-{version}.txt").read_bytes())
    status = parse_status(reply)
    assert (status.version, status.router_id, status.state) == (version, "192.0.2.1", "Daemon is up and running")
    assert status.last_reboot is not None
    assert status.last_reconfiguration is not None
    assert 0 <= status.last_reconfiguration - status.last_reboot < 1
    assert 1796082000 < status.last_reboot < 1796083200


@given(cuts=st.lists(st.integers(0, 10_000), max_size=20), version=st.sampled_from(VERSIONS))
def test_a_reply_is_the_same_however_it_is_cut(cuts: list[int], version: str) -> None:
    data = (GOLDEN / f"protocols-{version}.txt").read_bytes()
    assert replies(data, cuts) == replies(data)


@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=5))
def test_any_bytes_are_replies_or_a_value_error(data: bytes, cuts: list[int]) -> None:
    try:
        found = replies(b"0001 BIRD ready.\n" + data, cuts)
    except ValueError:
        return
    for reply in found:
        assert all(session.protocol for session in parse_sessions(reply, ""))
        assert parse_status(reply).state == reply.text.strip()


def test_the_last_line_may_have_any_code() -> None:
    found = replies(b"1010 peer_a  protocol\n0023 1\n0014 Total: 3\n1002-a\n b\n\n1006 c\n")
    assert [reply.code for reply in found] == [1010, 23, 14, 1006]
    assert found[-1].lines == ((1002, "a"), (1002, "b"), (1002, ""), (1006, "c"))


def test_an_endless_reply_is_given_up() -> None:
    reader = ReplyReader()
    piece = b"1000-x\n" * 100_000
    for _ in range(REPLY_LIMIT // len(piece)):
        assert list(reader.feed(piece)) == []
    with pytest.raises(ValueError, match="longer than"):
        list(reader.feed(piece))


@pytest.mark.parametrize("text", ["x\n", " orphan\n", "00a0 x\n"])
def test_what_is_no_reply_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no line of a reply"):
        replies(text.encode())


def test_a_neighbours_text_changes_nothing_but_itself() -> None:
    found = sessions(HEAD + (
        "1006-  Description:    tor\n"
        "   BGP state:          Established\n"
        '     Message:           "BGP state: Idle" Channel ipv6 \udcff 0000 1002-peer_evil\n'
        "     Neighbor address: 2001:db8::2\n"
        "       Hostname: Channel ipv4\n"
        "   Channel ipv6\n     State:          UP\n"
        "     Routes:         3 imported, 0 filtered, 2 exported, 1 preferred\n"
        "     Import limit:   1000 [HIT]\n       Action:       block\n \n0000 \n"))
    (session,) = found
    assert session.established
    assert session.neighbor == ip_address("2001:db8::2")
    assert session.neighbor_text.startswith('"BGP state: Idle" Channel ipv6 \ufffd')
    (channel,) = session.channels
    assert (channel.imported, channel.exported, channel.preferred, channel.limit_hit) == (3, 2, 1, True)


def test_sessions_that_only_the_agent_can_help() -> None:
    head = "1002-peer_x7    BGP        ---        {}   2026-11-30T23:50:22.172078+0000  {}\n1006-  \n0000 \n"
    (unbound,) = sessions(head.format("down", "Error: No listening socket"))
    assert unbound.unbound
    (stuck,) = sessions(head.format("flush", "Flush         BGP Error: Optional attribute error"))
    assert (stuck.stuck, stuck.info) == (True, "BGP Error: Optional attribute error")


def test_only_the_agents_own_peers_are_sessions() -> None:
    other = HEAD.replace("peer_x7", "foreign")
    kernel = HEAD.replace("BGP   ", "Kernel")
    assert sessions(other + kernel + "0000 \n") == ()
