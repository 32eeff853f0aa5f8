"""What is asked of nftables and read from it, byte by byte; the kernel itself judges it in tests/kernel."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from flock.netlink import constants as nl
from flock.netlink.nftables import (
    BaseChain,
    chain_names,
    delete_table,
    dump_rules,
    get_chain,
    get_table,
    table_state,
)
from flock.netlink.wire import Message, attr, messages, nested

TABLE = Message(nl.NFT_MSG_NEWTABLE, 0, 0, memoryview(b"\x02\0\0\0" + attr(nl.NFTA_TABLE_NAME, b"t\0")))


def message(kind: int, *attributes: bytes) -> Message:
    return Message(kind, 0, 0, memoryview(b"\x02\0\0\0" + b"".join(attributes)))


def base_chain(hook: int = 4, priority: int = 100, kind: bytes = b"nat\0", policy: int = 1) -> Message:
    return message(
        nl.NFT_MSG_GETCHAIN - 1, attr(nl.NFTA_CHAIN_TABLE, b"t\0"), attr(nl.NFTA_CHAIN_NAME, b"c\0"),
        nested(nl.NFTA_CHAIN_HOOK, attr(nl.NFTA_HOOK_HOOKNUM, struct.pack(">I", hook)),
               attr(nl.NFTA_HOOK_PRIORITY, struct.pack(">i", priority))),
        attr(nl.NFTA_CHAIN_POLICY, struct.pack(">I", policy)), attr(nl.NFTA_CHAIN_TYPE, kind))


def rule(userdata: bytes) -> Message:
    return message(nl.NFT_MSG_GETRULE - 1, attr(nl.NFTA_RULE_USERDATA, userdata))


def test_requests_name_family_table_and_chain() -> None:
    for request, names in ((get_table(2, "t"), [b"t\0"]), (get_chain(2, "t", "c"), [b"t\0", b"c\0"]),
                           (dump_rules(2, "t", "c"), [b"t\0", b"c\0"])):
        (one,) = messages(request)
        assert bytes(one.body[:4]) == b"\x02\0\0\0"
        assert all(name in bytes(one.body) for name in names)


def test_a_table_is_deleted_in_a_transaction_whose_second_message_is_acknowledged() -> None:
    data, acknowledged = delete_table(2, "t")
    begin, delete, end = messages(data)
    assert (begin.kind, delete.kind, end.kind) == (16, 0xA02, 17)
    assert (delete.seq, bool(delete.flags & nl.NLM_F_ACK)) == (acknowledged, True)
    assert bytes(begin.body) == bytes(end.body) == b"\0\0\0\x0a"


def test_a_table_its_chain_and_the_comments_of_its_rules_are_read() -> None:
    rules = [rule(b"\x00\x03hi\0"), rule(b"\x05\x01x\x00\x02a\0"), rule(b"")]
    state = table_state(TABLE, base_chain(priority=-300, policy=0), rules)
    assert state.chain == BaseChain(kind="nat", hook=4, priority=-300, accepts=False)
    assert state.comments == ("hi", "a", "")
    assert state.flags == 0


def test_whatever_changes_changes_the_raw_form() -> None:
    one = table_state(TABLE, base_chain(), [rule(b"\x00\x02a\0")])
    assert one.raw == table_state(TABLE, base_chain(), [rule(b"\x00\x02a\0")]).raw
    for other in (table_state(TABLE, base_chain(priority=50), [rule(b"\x00\x02a\0")]),
                  table_state(TABLE, base_chain(), []), table_state(TABLE, None, [])):
        assert other.raw != one.raw


def test_only_the_chains_of_the_table_are_named() -> None:
    other = message(nl.NFT_MSG_GETCHAIN - 1, attr(nl.NFTA_CHAIN_TABLE, b"u\0"), attr(nl.NFTA_CHAIN_NAME, b"d\0"))
    assert chain_names([base_chain(), other], "t") == {"c"}


@given(st.lists(st.binary(max_size=60), max_size=4), st.binary(max_size=40))
def test_bytes_that_lie_are_read_without_an_error(bodies: list[bytes], userdata: bytes) -> None:
    parts = [Message(nl.NFT_MSG_GETRULE - 1, 0, 0, memoryview(body)) for body in bodies]
    state = table_state(TABLE, parts[0] if parts else None, [*parts, rule(userdata)])
    assert len(state.comments) == len(parts) + 1
    assert isinstance(chain_names(parts, "t"), frozenset)
