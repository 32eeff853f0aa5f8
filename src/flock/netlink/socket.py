"""A socket that speaks rtnetlink: batches of requests, dumps, one answer. For worker threads; no two may share one.

Invariant: after each call no answer of it is left unread, so answers never belong to another call. The kernel works
inside ``send`` and has queued every answer when that returns, so nothing here ever waits: an answer that isn't there is
an error, not something to wait for. What ``send`` may wait for is RTNL, which no time-out can cut short.

If the process dies on any line: a batch is handed over in one system call, so it is sent whole or not at all; the
kernel isn't atomic over it, later messages are applied where an earlier one failed.

Source: net/netlink/af_netlink.c (netlink_rcv_skb, netlink_ack, netlink_dump).
"""

import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from flock.errors import IOFailure
from flock.netlink import constants as nl
from flock.netlink.wire import Message, messages, number_messages, parse_reply

BATCH = 128
"""Messages in one send: so many refusals still fit into a receive buffer of default size."""

_ACK_BUFFER = 1 << 13
"""An answer holds at most the refused message and a sentence. One of 128 KiB would be mapped anew for each call."""

_DUMP_BUFFER = 1 << 15
"""The most that the kernel puts into one datagram of a dump."""

_SEND_BUFFER = 1 << 16
"""Surely less than any default, the kernel's own bookkeeping of a message included."""

_DUMP_TRIES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One message of a batch that the kernel refused: its place, the error number, what the kernel says of it."""

    index: int
    errno: int
    text: str

    def after(self, count: int) -> "Refusal":
        """The same refusal, its place counted without the first messages."""
        return Refusal(index=self.index - count, errno=self.errno, text=self.text)


class NetlinkError(IOFailure):
    """The kernel refused something. ``refusals`` has all of a batch; ``errno`` and ``index`` are those of the first."""

    def __init__(self, what: str, refusals: Sequence[Refusal]) -> None:
        first = refusals[0]
        said = f" ({first.text})" if first.text else ""
        super().__init__(f"the kernel refused {what}", f"{os.strerror(first.errno)}{said}, message {first.index}")
        self.refusals = tuple(refusals)
        self.errno = first.errno
        self.index = first.index


class NetlinkSocket:
    """Speaks to the network namespace that the calling thread was in when it was made, from then on for ever."""

    __slots__ = ("_sock",)

    def __init__(self, protocol: int = socket.NETLINK_ROUTE) -> None:
        self._sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._sock.setsockopt(nl.SOL_NETLINK, nl.NETLINK_EXT_ACK, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def close(self) -> None:
        self._sock.close()

    def fileno(self) -> int:
        return self._sock.fileno()

    def allow(self, size: int) -> None:
        """Let one ``send`` be this large: a transaction can't be cut, and the default of 208 KiB refuses it."""
        if size > _SEND_BUFFER:
            self._sock.setsockopt(socket.SOL_SOCKET, nl.SO_SNDBUFFORCE, 2 * size)

    def run(self, batch: Sequence[bytes], what: str) -> None:
        """Send requests in one go; NetlinkError tells which failed. The others were applied all the same."""
        refusals: list[Refusal] = []
        for start in range(0, len(batch), BATCH):
            data = bytearray(b"".join(batch[start : start + BATCH]))
            refusals.extend(each.after(-start) for each in self.send(data, number_messages(data), what))
        if refusals:
            raise NetlinkError(what, refusals)

    def send(self, data: bytes | bytearray, count: int, what: str) -> list[Refusal]:
        """Send requests that are numbered from 1 to ``count``, the last with the ACK flag; what was refused."""
        refusals: list[Refusal] = []
        try:
            self._sock.send(data)
            while True:
                for answer in messages(self._sock.recv(_ACK_BUFFER, socket.MSG_DONTWAIT)):
                    if answer.kind != nl.NLMSG_ERROR:
                        continue
                    reply = parse_reply(answer)
                    if reply.errno:
                        refusals.append(Refusal(index=reply.seq - 1, errno=reply.errno, text=reply.text))
                    if reply.seq == count:
                        return refusals
        except OSError as error:
            raise self._broken(what, error) from error

    def dump(self, request: bytes, what: str) -> Iterator[Message]:
        """The answers to a dump request, read whole; again if the kernel says that it changed meanwhile."""
        # The kernel then filters by table and by link.
        self._sock.setsockopt(nl.SOL_NETLINK, nl.NETLINK_GET_STRICT_CHK, 1)
        found, interrupted = self._dump(request, what)
        for _ in range(_DUMP_TRIES):
            if not interrupted:
                break
            found, interrupted = self._dump(request, what)
        return iter(found)

    def _dump(self, request: bytes, what: str) -> tuple[list[Message], bool]:
        found: list[Message] = []
        interrupted = False
        try:
            self._sock.send(request)
            while True:
                for answer in messages(self._sock.recv(_DUMP_BUFFER, socket.MSG_DONTWAIT)):
                    interrupted = interrupted or bool(answer.flags & nl.NLM_F_DUMP_INTR)
                    if answer.kind == nl.NLMSG_DONE:
                        return found, interrupted
                    if answer.kind == nl.NLMSG_ERROR:
                        reply = parse_reply(answer)
                        raise NetlinkError(what, [Refusal(index=0, errno=reply.errno, text=reply.text)])
                    found.append(answer)
        except OSError as error:
            raise self._broken(what, error) from error

    def get(self, request: bytes, what: str) -> Message | None:
        """The one answer to a request, or None where there is no such thing (ENODEV, ENOENT)."""
        try:
            self._sock.send(request)
            for answer in messages(self._sock.recv(_DUMP_BUFFER, socket.MSG_DONTWAIT)):
                if answer.kind != nl.NLMSG_ERROR:
                    return answer
                reply = parse_reply(answer)
                if reply.errno not in (errno.ENODEV, errno.ENOENT):
                    raise NetlinkError(what, [Refusal(index=0, errno=reply.errno, text=reply.text)])
        except OSError as error:
            raise self._broken(what, error) from error
        return None

    def _broken(self, what: str, error: OSError) -> IOFailure:
        """A socket with answers that nobody will read is of no more use."""
        self._sock.close()
        return IOFailure(f"no answer from the kernel on {what}", str(error))


def interface_name(sock: NetlinkSocket, ifindex: int) -> str | None:
    """The name of the link with an index, or None; without RTNL (dev_ifname in net/core/dev_ioctl.c)."""
    try:
        answer = fcntl.ioctl(sock.fileno(), nl.SIOCGIFNAME, struct.pack("=16sI20x", b"", ifindex))
    except OSError:
        return None
    return answer[:16].rstrip(b"\0").decode(errors="replace")
