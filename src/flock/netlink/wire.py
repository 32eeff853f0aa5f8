"""How netlink bytes are laid out: headers, attributes, acknowledgements. Pure.

Invariant: nothing here reads past the buffer it was given; a length that lies ends the walk instead. What the kernel
sends is trusted in meaning, not in length, since a datagram may have been cut.

Source: include/uapi/linux/netlink.h; everything is in host byte order and aligned to 4 bytes.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from flock.netlink import constants as nl

HEADER = struct.Struct("=IHHII")
"""nlmsghdr: length, type, flags, sequence number, port."""

_ATTR = struct.Struct("=HH")
_U32 = struct.Struct("=I")
_ERRNO = struct.Struct("=i")
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")


class Message(NamedTuple):
    """One message of a datagram; ``body`` is what follows the netlink header."""

    kind: int
    flags: int
    seq: int
    body: memoryview


class Reply(NamedTuple):
    """An acknowledgement: errno 0 for success, and what the kernel says of the failure (extended ACK)."""

    seq: int
    errno: int
    text: str


def attr(kind: int, payload: bytes) -> bytes:
    """One attribute, padded."""
    size = len(payload)
    return _ATTR.pack(size + 4, kind) + payload + _PADDING[size & 3]


def attr_u32(kind: int, value: int) -> bytes:
    """One attribute that holds a number of 32 bits."""
    return _ATTR.pack(8, kind) + _U32.pack(value)


def nested(kind: int, *inside: bytes) -> bytes:
    """One attribute that holds attributes."""
    return attr(kind | nl.NLA_F_NESTED, b"".join(inside))


def message(kind: int, flags: int, *parts: bytes) -> bytes:
    """One request; its sequence number is filled in when it is sent."""
    body = b"".join(parts)
    return HEADER.pack(16 + len(body), kind, flags | nl.NLM_F_REQUEST, 0, 0) + body


def number_messages(batch: bytearray) -> int:
    """Give the messages of a batch the sequence numbers 1, 2, … and ask for an ACK on the last; how many they are.

    Only the last is acknowledged when all goes well; a failure is answered for any, so the number names the culprit.
    """
    offset = count = last = 0
    while offset < len(batch):
        count += 1
        last = offset
        _U32.pack_into(batch, offset + 8, count)
        offset += _U32.unpack_from(batch, offset)[0]
    if count:
        flags = int.from_bytes(batch[last + 6 : last + 8], "little" if _LITTLE else "big")
        struct.pack_into("=H", batch, last + 6, flags | nl.NLM_F_ACK)
    return count


_LITTLE = struct.pack("=H", 1) == b"\1\0"


def messages(datagram: bytes | bytearray | memoryview) -> Iterator[Message]:
    """The messages of one datagram, in order."""
    view = memoryview(datagram)
    offset, end = 0, len(view)
    while offset + 16 <= end:
        length, kind, flags, seq, _ = HEADER.unpack_from(view, offset)
        if length < 16 or offset + length > end:
            return
        yield Message(kind, flags, seq, view[offset + 16 : offset + length])
        offset += (length + 3) & ~3


def attributes(view: memoryview, offset: int = 0) -> dict[int, memoryview]:
    """The attributes that start at an offset, by type without its flag bits; of a repeated one the last."""
    return dict(each_attribute(view, offset))


def each_attribute(view: memoryview, offset: int = 0) -> Iterator[tuple[int, memoryview]]:
    """The attributes that start at an offset, one by one."""
    end = len(view)
    while offset + 4 <= end:
        length, kind = _ATTR.unpack_from(view, offset)
        if length < 4 or offset + length > end:
            return
        yield kind & nl.NLA_TYPE_MASK, view[offset + 4 : offset + length]
        offset += (length + 3) & ~3


def parse_reply(reply: Message) -> Reply:
    """Read an NLMSG_ERROR message: error 0 is an ACK."""
    if len(reply.body) < 20:
        return Reply(reply.seq, 0, "")
    errno = -_ERRNO.unpack_from(reply.body)[0]
    text = ""
    if errno and reply.flags & nl.NLM_F_ACK_TLVS:
        echoed = 0 if reply.flags & nl.NLM_F_CAPPED else max(0, _U32.unpack_from(reply.body, 4)[0] - 16)
        said = attributes(reply.body, 20 + ((echoed + 3) & ~3)).get(nl.NLMSGERR_ATTR_MSG)
        text = bytes(said).rstrip(b"\0").decode(errors="replace") if said is not None else ""
    return Reply(reply.seq, errno, text)


def u32(view: memoryview) -> int:
    """A number of 32 bits; 0 where the attribute is too short to hold one."""
    return int(_U32.unpack_from(view)[0]) if len(view) >= 4 else 0


def text(view: memoryview | None) -> str:
    """A NUL-terminated string; bytes that aren't UTF-8 are replaced."""
    return "" if view is None else bytes(view).rstrip(b"\0").decode(errors="replace")
