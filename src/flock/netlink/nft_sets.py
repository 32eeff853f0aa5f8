"""nftables' sets and maps by their own netlink: made, filled, emptied and read, many in one transaction. Pure.

An nft process costs 6 ms, and 20 where sets are large, since it reads all of them first; an element by hand costs two
microseconds. Sets with one field, and maps, are only ever made here: what nft 1.1.2 and later write of them kills nft
1.0.6 in the whole network namespace, with this userdata both can read them (and an ifname set without its byte order
lists as "").

Invariant: a transaction is applied whole or not at all, and every message names its table.

Source: net/netfilter/nf_tables_api.c, nfnetlink.c; libnftnl udata.h and nft's datatype.h for types and userdata.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from flock.netlink import constants as nl
from flock.netlink.nftables import name_attr, nfgenmsg
from flock.netlink.wire import Message, attr, attributes, each_attribute, message, nested, text

ELEMENTS = 1000
"""In one message: an attribute holds 65,535 bytes, and the largest element packs into less than 64."""

IFNAME = 16
_HEADER_SIZE = 4
_U32 = struct.Struct(">I")
_S32 = struct.Struct(">i")
_INET = nfgenmsg(nl.NFPROTO_INET)
_ATTR = struct.Struct("=HH")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """``key`` is nft's number of the type, concatenated types six bits each; ``fields`` the lengths of what is found by
    ranges; ``userdata`` what nft 1.0.6 keeps of it (byte orders).
    """

    key: int
    length: int
    userdata: str
    verdicts: bool = False
    fields: tuple[int, ...] = ()

    @property
    def flags(self) -> int:
        found = nl.NFT_SET_MAP if self.verdicts else 0
        return found | nl.NFT_SET_CONCAT | nl.NFT_SET_INTERVAL if self.fields else found


_PORTS = "000400000000010400000000030800040d0000000100060400000000"


class Keys(Enum):
    """What a set that nft itself must not make is of."""

    IPV4 = _Kind(key=7, length=4, userdata="000402000000")
    IPV6 = _Kind(key=8, length=16, userdata="000402000000")
    IFNAME_VERDICTS = _Kind(key=41, length=IFNAME, userdata="000401000000010400000000060400000000", verdicts=True)
    PORT_VERDICTS = _Kind(key=12 << 6 | 13, length=8, userdata=_PORTS, verdicts=True)
    PORT_RANGE_VERDICTS = _Kind(key=12 << 6 | 13, length=8, userdata=_PORTS, verdicts=True, fields=(1, 2))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a map says of a key: enter ``chain`` and don't come back, or ("") let it pass."""

    chain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetState:
    """A set as the kernel has it; ``count`` of its elements is None before Linux 6.17, which is the first to tell."""

    name: str
    flags: int
    count: int | None


def new_set(table: str, name: str, keys: Keys, number: int) -> bytes:
    """Make a set; one of the same kind may be there already. ``number`` names it within the transaction."""
    kind = keys.value
    data = (_number(nl.NFTA_SET_DATA_TYPE, nl.NFT_DATA_VERDICT), _number(nl.NFTA_SET_DATA_LEN, 0))
    fields = [nested(nl.NFTA_LIST_ELEM, _number(nl.NFTA_SET_FIELD_LEN, length)) for length in kind.fields]
    return message(
        nl.NFT_MSG_NEWSET, nl.NLM_F_CREATE, _INET, name_attr(nl.NFTA_SET_TABLE, table),
        name_attr(nl.NFTA_SET_NAME, name), _number(nl.NFTA_SET_FLAGS, kind.flags),
        _number(nl.NFTA_SET_KEY_TYPE, kind.key), _number(nl.NFTA_SET_KEY_LEN, kind.length),
        *(data if kind.verdicts else ()), _number(nl.NFTA_SET_ID, number),
        attr(nl.NFTA_SET_USERDATA, bytes.fromhex(kind.userdata)),
        *([nested(nl.NFTA_SET_DESC, nested(nl.NFTA_SET_DESC_CONCAT, *fields))] if fields else ()))


def delete_set(table: str, name: str) -> bytes:
    """Remove a set that no rule uses, with its elements."""
    return message(nl.NFT_MSG_DELSET, 0, _INET, name_attr(nl.NFTA_SET_TABLE, table), name_attr(nl.NFTA_SET_NAME, name))


def delete_chain(table: str, name: str) -> Iterator[bytes]:
    """Remove a chain that nothing leads to, with its rules."""
    yield message(nl.NFT_MSG_DELRULE, 0, _INET, name_attr(nl.NFTA_RULE_TABLE, table),
                  name_attr(nl.NFTA_RULE_CHAIN, name))
    yield message(nl.NFT_MSG_DELCHAIN, 0, _INET, name_attr(nl.NFTA_CHAIN_TABLE, table),
                  name_attr(nl.NFTA_CHAIN_NAME, name))


def add_elements(table: str, name: str, keys: Iterable[bytes]) -> Iterator[bytes]:
    """Put keys into a set; those that are there stay."""
    yield from _elements(nl.NFT_MSG_NEWSETELEM, nl.NLM_F_CREATE, (table, name), map(_element, keys))


def delete_elements(table: str, name: str, keys: Iterable[bytes]) -> Iterator[bytes]:
    """Take keys out of a set or map; ENOENT, and nothing of the transaction, where one isn't there."""
    yield from _elements(nl.NFT_MSG_DELSETELEM, 0, (table, name), map(_element, keys))


def add_verdicts(table: str, name: str, verdicts: Iterable[tuple[bytes, Verdict]]) -> Iterator[bytes]:
    """Put keys into a map; EEXIST where one is there with another verdict."""
    yield from _elements(nl.NFT_MSG_NEWSETELEM, nl.NLM_F_CREATE, (table, name),
                         (_element(key, _verdict(verdict)) for key, verdict in verdicts))


def interface_key(name: str) -> bytes:
    """An interface's name as a key."""
    return name.encode().ljust(IFNAME, b"\0")


# Reading


def dump_sets(table: str) -> bytes:
    """The request for all sets and maps of a table."""
    return message(nl.NFT_MSG_GETSET, nl.NLM_F_DUMP, _INET, name_attr(nl.NFTA_SET_TABLE, table))


def dump_elements(table: str, name: str) -> bytes:
    """The request for the elements of one set."""
    return message(nl.NFT_MSG_GETSETELEM, nl.NLM_F_DUMP, _INET, name_attr(nl.NFTA_SET_ELEM_LIST_TABLE, table),
                   name_attr(nl.NFTA_SET_ELEM_LIST_SET, name))


def set_state(answer: Message) -> SetState:
    """One set, out of a dump."""
    found = attributes(answer.body, _HEADER_SIZE)
    return SetState(name=text(found.get(nl.NFTA_SET_NAME)), flags=_read(found.get(nl.NFTA_SET_FLAGS)),
                    count=_read(found[nl.NFTA_SET_COUNT]) if nl.NFTA_SET_COUNT in found else None)


def elements_of(answers: Iterable[Message]) -> Iterator[tuple[bytes, Verdict | None]]:
    """The keys of a set, or a map's with their verdicts; None where it is one that flock never writes."""
    for answer in answers:
        listed = attributes(answer.body, _HEADER_SIZE).get(nl.NFTA_SET_ELEM_LIST_ELEMENTS)
        for _, element in each_attribute(listed) if listed is not None else ():
            found = attributes(element)
            key = attributes(found[nl.NFTA_SET_ELEM_KEY]).get(nl.NFTA_DATA_VALUE, memoryview(b""))
            yield bytes(key), _read_verdict(found.get(nl.NFTA_SET_ELEM_DATA))


def _read_verdict(data: memoryview | None) -> Verdict | None:
    verdict = attributes(data).get(nl.NFTA_DATA_VERDICT) if data is not None else None
    found = attributes(verdict) if verdict is not None else {}
    code = found.get(nl.NFTA_VERDICT_CODE)
    number = _S32.unpack(code)[0] if code is not None and len(code) == _S32.size else None
    if number == nl.NF_ACCEPT:
        return Verdict("")
    return Verdict(text(found.get(nl.NFTA_VERDICT_CHAIN))) if number == nl.NFT_GOTO else None


def _read(value: memoryview | None) -> int:
    return int(_U32.unpack(value)[0]) if value is not None and len(value) == _U32.size else 0


# Packing: what is the same for every pod is packed once. Keys are of whole words.


def _elements(kind: int, flags: int, where: tuple[str, str], packed: Iterable[bytes]) -> Iterator[bytes]:
    every = list(packed)
    for start in range(0, len(every), ELEMENTS):
        yield message(kind, flags, _list_head(*where),
                      nested(nl.NFTA_SET_ELEM_LIST_ELEMENTS, *every[start : start + ELEMENTS]))


@lru_cache(maxsize=1024)
def _list_head(table: str, name: str) -> bytes:
    return (_INET + name_attr(nl.NFTA_SET_ELEM_LIST_TABLE, table) + name_attr(nl.NFTA_SET_ELEM_LIST_SET, name))


def _element(key: bytes, data: bytes = b"") -> bytes:
    return _element_head(len(key), len(data)) + key + data


@lru_cache(maxsize=256)
def _element_head(key: int, data: int) -> bytes:
    """The headers of an element, of its key, and of the key's value."""
    return (_ATTR.pack(12 + key + data, nl.NFTA_LIST_ELEM | nl.NLA_F_NESTED)
            + _ATTR.pack(8 + key, nl.NFTA_SET_ELEM_KEY | nl.NLA_F_NESTED)
            + _ATTR.pack(4 + key, nl.NFTA_DATA_VALUE))


@lru_cache(maxsize=1024)
def _verdict(verdict: Verdict) -> bytes:
    code = attr(nl.NFTA_VERDICT_CODE, _S32.pack(nl.NFT_GOTO if verdict.chain else nl.NF_ACCEPT))
    chain = name_attr(nl.NFTA_VERDICT_CHAIN, verdict.chain) if verdict.chain else b""
    return nested(nl.NFTA_SET_ELEM_DATA, nested(nl.NFTA_DATA_VERDICT, code, chain))


def _number(kind: int, value: int) -> bytes:
    return attr(kind, _U32.pack(value))
