"""What nftables' own netlink says of a table, and the removal of one. Pure.

flock writes rules as text, by nft; what it asks all the time it asks the kernel itself: whether its table stands costs
three short answers, no process, and works where nft is missing or dies of what others wrote.

Invariant: requests name their table, so what others have is neither read nor touched.

Source: net/netfilter/nf_tables_api.c, nfnetlink.c. Numbers in attributes are in network byte order.
"""

import errno
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from flock.errors import IOFailure
from flock.netlink import constants as nl
from flock.netlink.wire import HEADER, Message, attr, attributes, message, text

NO_SUBSYSTEM = (errno.EINVAL, errno.EOPNOTSUPP)
"""What nfnetlink_rcv_msg answers for a subsystem that it doesn't have and can't load."""

_HEADER_SIZE = 4
_U32 = struct.Struct(">I")
_S32 = struct.Struct(">i")
_NFGENMSG = struct.Struct(">BBH")
_COMMENT = 0
"""NFTNL_UDATA_RULE_COMMENT (libnftnl, udata.h). Userdata is a list of type and length, a byte each, and value."""


class NoNftables(IOFailure):
    """The kernel has no nftables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseChain:
    """Where a chain is hooked in; ``kind`` is ``nat``, ``filter`` or ``route``."""

    kind: str
    hook: int
    priority: int
    accepts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table as the kernel has it: its flags, one of its chains (None: it is missing), the comments of that chain's
    rules. ``raw`` is all that the kernel said: whatever changes in these changes it.
    """

    flags: int
    chain: BaseChain | None
    comments: tuple[str, ...]
    raw: bytes


def get_table(family: int, table: str) -> bytes:
    """The request for one table."""
    return message(nl.NFT_MSG_GETTABLE, 0, nfgenmsg(family), name_attr(nl.NFTA_TABLE_NAME, table))


def get_chain(family: int, table: str, chain: str) -> bytes:
    """The request for one chain."""
    return message(nl.NFT_MSG_GETCHAIN, 0, nfgenmsg(family), name_attr(nl.NFTA_CHAIN_TABLE, table),
                   name_attr(nl.NFTA_CHAIN_NAME, chain))


def dump_chains(family: int) -> bytes:
    """The request for every chain of a family: the kernel can't pick those of one table."""
    return message(nl.NFT_MSG_GETCHAIN, nl.NLM_F_DUMP, nfgenmsg(family))


def dump_rules(family: int, table: str, chain: str | None = None) -> bytes:
    """The request for the rules of one chain, or of all of a table; of what isn't there, none come."""
    return message(nl.NFT_MSG_GETRULE, nl.NLM_F_DUMP, nfgenmsg(family), name_attr(nl.NFTA_RULE_TABLE, table),
                   *([name_attr(nl.NFTA_RULE_CHAIN, chain)] if chain is not None else []))


def rule_chains(rules: Iterable[Message]) -> Iterator[str]:
    """The chain of each rule, out of a dump."""
    for rule in rules:
        yield text(attributes(rule.body, _HEADER_SIZE).get(nl.NFTA_RULE_CHAIN))


def transaction(requests: Sequence[bytes]) -> tuple[bytes, int]:
    """Requests as one transaction, and the number of the message that is acknowledged: the last but the end, since
    before Linux 6.10 the end of a transaction has no ACK.
    """
    data = bytearray(b"".join((
        message(nl.NFNL_MSG_BATCH_BEGIN, 0, nfgenmsg(0, nl.NFNL_SUBSYS_NFTABLES)), *requests,
        message(nl.NFNL_MSG_BATCH_END, 0, nfgenmsg(0, nl.NFNL_SUBSYS_NFTABLES)))))
    offset = count = 0
    last = len(requests) + 1
    while offset < len(data):
        count += 1
        length, kind, flags, _, port = HEADER.unpack_from(data, offset)
        HEADER.pack_into(data, offset, length, kind, flags | (nl.NLM_F_ACK if count == last else 0), count, port)
        offset += length
    return bytes(data), last


def delete_table(family: int, table: str) -> tuple[bytes, int]:
    """A transaction that removes a table and all in it, and the number of its message that is acknowledged."""
    return transaction([message(nl.NFT_MSG_DELTABLE, 0, nfgenmsg(family), name_attr(nl.NFTA_TABLE_NAME, table))])


def table_state(table: Message, chain: Message | None, rules: Iterable[Message]) -> TableState:
    """Put the three answers together."""
    listed = [rule for rule in rules if rule.kind == nl.NFT_MSG_GETRULE - 1]
    flags = attributes(table.body, _HEADER_SIZE).get(nl.NFTA_TABLE_FLAGS)
    return TableState(
        flags=_number(_U32, flags),
        chain=_base_chain(chain) if chain is not None else None,
        comments=tuple(_comment(attributes(rule.body, _HEADER_SIZE).get(nl.NFTA_RULE_USERDATA)) for rule in listed),
        raw=b"".join(bytes(part.body[_HEADER_SIZE:]) for part in (table, *([chain] if chain else []), *listed)),
    )


def chain_names(chains: Iterable[Message], table: str) -> frozenset[str]:
    """The names of a table's chains, out of a dump of all."""
    found = (attributes(chain.body, _HEADER_SIZE) for chain in chains)
    return frozenset(text(one.get(nl.NFTA_CHAIN_NAME)) for one in found
                     if text(one.get(nl.NFTA_CHAIN_TABLE)) == table)


def _base_chain(chain: Message) -> BaseChain | None:
    found = attributes(chain.body, _HEADER_SIZE)
    hook = found.get(nl.NFTA_CHAIN_HOOK)
    if hook is None:
        return None
    where = attributes(hook)
    return BaseChain(
        kind=text(found.get(nl.NFTA_CHAIN_TYPE)),
        hook=_number(_U32, where.get(nl.NFTA_HOOK_HOOKNUM)),
        priority=_number(_S32, where.get(nl.NFTA_HOOK_PRIORITY)),
        accepts=_number(_U32, found.get(nl.NFTA_CHAIN_POLICY)) == nl.NF_ACCEPT,
    )


def _comment(userdata: memoryview | None) -> str:
    rest = bytes(userdata or b"")
    while len(rest) >= 2:
        kind, size = rest[0], rest[1]
        if kind == _COMMENT:
            return rest[2 : 2 + size].rstrip(b"\0").decode(errors="replace")
        rest = rest[2 + size :]
    return ""


def _number(form: struct.Struct, value: memoryview | None) -> int:
    return int(form.unpack(value)[0]) if value is not None and len(value) == form.size else 0


def nfgenmsg(family: int, resource: int = 0) -> bytes:
    """What follows the header of every message: family, version 0, resource."""
    return _NFGENMSG.pack(family, 0, resource)


def name_attr(kind: int, name: str) -> bytes:
    """One attribute that holds a name."""
    return attr(kind, name.encode() + b"\0")
