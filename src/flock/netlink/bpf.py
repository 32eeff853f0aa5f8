"""Classic BPF programs that pick notices before they wake anybody.

Invariant: a filter never hides a loss of flock's; what it can't tell apart (neighbours and addresses of other links) it
lets through, and the reader looks at the index.

If the process dies on any line: a filter dies with its socket.

Source: Documentation/networking/filter.rst. Loads are in network byte order while netlink's own fields are in the
host's, so constants are swapped where the host is little-endian.
"""

import ctypes
import socket
import struct
import sys
from collections.abc import Sequence
from typing import NamedTuple

from flock.model.ownership import HOST_PREFIX, MAC_PREFIX, PROTO_ANNOUNCED, PROTO_HOME
from flock.netlink import constants as nl

LOAD_HALF, LOAD_BYTE, LOAD_WORD, LOAD_HALF_AT_X, LOAD_BYTE_AT_X = 0x28, 0x30, 0x20, 0x48, 0x50
LOAD_NUMBER, LOAD_X_NUMBER, COPY_TO_X, IF_EQUAL, IF_BITS, RETURN = 0x00, 0x01, 0x07, 0x15, 0x45, 0x06

_FIND_ATTRIBUTE = 0xFFFFF000 + 12
_SO_ATTACH_FILTER = 26
_TYPE = 4
_RTM_PROTOCOL = 16 + 5
_NFGEN_ATTRIBUTES = 16 + 4
_IFI_FLAGS = 24 if sys.byteorder == "little" else 27
_NDM_STATE = 24 if sys.byteorder == "little" else 25
"""The lower byte of ndm_state; NUD_NOARP is what the kernel's own multicast entries are, which come and go."""
_IFI_CHANGE = 31 if sys.byteorder == "little" else 28
"""The highest byte of ifi_change: all ones in the notice of a link that was just made (rtnl_configure_link)."""


class Line(NamedTuple):
    """One instruction; a jump names the labels to go to, an empty one is the next line."""

    code: int
    number: int
    yes: str = ""
    no: str = ""
    label: str = ""


def gone_links_filter() -> bytes:
    """RTM_DELLINK of a link named like flock's."""
    return assemble(
        [
            Line(LOAD_HALF, _TYPE),
            Line(IF_EQUAL, _swapped(nl.RTM_DELLINK), no="drop"),
            *_named_like_ours(),
            *_ENDS,
        ]
    )


def losses_filter() -> bytes:
    """DELADDR, DELNEIGH of unicast; DELROUTE of flock's protocols; NEWLINK of flock's if down or with a foreign MAC."""
    return assemble(
        [
            Line(LOAD_HALF, _TYPE),
            Line(IF_EQUAL, _swapped(nl.RTM_DELADDR), yes="accept"),
            Line(IF_EQUAL, _swapped(nl.RTM_DELNEIGH), yes="neighbour"),
            Line(IF_EQUAL, _swapped(nl.RTM_DELROUTE), yes="route"),
            Line(IF_EQUAL, _swapped(nl.RTM_NEWLINK), yes="link", no="drop"),
            Line(LOAD_BYTE, _NDM_STATE, label="neighbour"),
            Line(IF_BITS, nl.NUD_NOARP, yes="drop", no="accept"),
            Line(LOAD_BYTE, _RTM_PROTOCOL, label="route"),
            Line(IF_EQUAL, PROTO_HOME, yes="accept"),
            Line(IF_EQUAL, PROTO_ANNOUNCED, yes="accept", no="drop"),
            *_named_like_ours(label="link"),
            Line(LOAD_BYTE, _IFI_FLAGS),
            Line(IF_BITS, nl.IFF_UP, no="down"),
            *_attribute(nl.IFLA_ADDRESS),
            Line(IF_EQUAL, 0, yes="accept"),
            Line(COPY_TO_X, 0),
            Line(LOAD_HALF_AT_X, 4),
            Line(IF_EQUAL, int.from_bytes(MAC_PREFIX, "big"), yes="drop", no="accept"),
            Line(LOAD_BYTE, _IFI_CHANGE, label="down"),
            Line(IF_EQUAL, 0xFF, yes="drop"),
            *_ENDS,
        ]
    )


def generations_filter(ignoring: str = "") -> bytes:
    """NEWGEN: one for each transaction of nftables, and always a datagram of its own (nf_tables_gen_notify).

    Not of the thread whose name begins with ``ignoring``, of an even length.
    """
    halves = [ignoring.encode()[start : start + 2] for start in range(0, len(ignoring), 2)]
    name = [
        *_attribute(nl.NFTA_GEN_PROC_NAME, first=_NFGEN_ATTRIBUTES),
        Line(IF_EQUAL, 0, yes="accept"),
        Line(COPY_TO_X, 0),
        *(line for number, half in enumerate(halves) for line in (
            Line(LOAD_HALF_AT_X, 4 + 2 * number),
            Line(IF_EQUAL, int.from_bytes(half, "big"), no="accept", yes="drop" if number == len(halves) - 1 else ""))),
    ]
    return assemble(
        [
            Line(LOAD_HALF, _TYPE),
            Line(IF_EQUAL, _swapped(nl.NFT_MSG_NEWGEN), yes="" if halves else "accept", no="drop"),
            *(name if halves else ()),
            *_ENDS,
        ]
    )


_ENDS = (Line(RETURN, 0xFFFFFFFF, label="accept"), Line(RETURN, 0, label="drop"))


def _named_like_ours(label: str = "") -> list[Line]:
    prefix = HOST_PREFIX.encode()
    return [
        *_attribute(nl.IFLA_IFNAME, label),
        Line(IF_EQUAL, 0, yes="drop"),
        Line(COPY_TO_X, 0),
        Line(LOAD_HALF_AT_X, 4),
        Line(IF_EQUAL, int.from_bytes(prefix[:2], "big"), no="drop"),
        Line(LOAD_BYTE_AT_X, 6),
        Line(IF_EQUAL, prefix[2], no="drop"),
    ]


def _attribute(kind: int, label: str = "", first: int = 16 + 16) -> list[Line]:
    """Load the offset of an attribute's header, 0 where it isn't there; ``first`` is where those of a message begin."""
    return [
        Line(LOAD_NUMBER, first, label=label),
        Line(LOAD_X_NUMBER, kind),
        Line(LOAD_WORD, _FIND_ATTRIBUTE),
    ]


def _swapped(number: int) -> int:
    return int.from_bytes(struct.pack("=H", number), "big")


def assemble(lines: Sequence[Line]) -> bytes:
    """Turn lines into an array of sock_filter, labels into distances."""
    places = {line.label: place for place, line in enumerate(lines) if line.label}

    def distance(label: str, place: int) -> int:
        return places[label] - place - 1 if label else 0

    return b"".join(
        struct.pack("=HBBI", line.code, distance(line.yes, place), distance(line.no, place), line.number)
        for place, line in enumerate(lines)
    )


def attach(sock: socket.socket, program: bytes) -> None:
    """Have the kernel ask a program about each datagram before it is queued."""
    code = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, fprog)
