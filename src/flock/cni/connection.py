"""One client's connection: bytes and descriptors in, one frame out, and the end of file that says that nobody waits.

Watching a descriptor costs the loop two system calls and a turn, a third of what a request costs in all. So a
connection is watched only once its call has taken longer than ``RIPE_AFTER``; before that the reply itself finds out
who hung up.

Runs in the loop's thread but for ``send``, which any thread may call; ``send`` and closing share a lock, so that a
descriptor number is never written to after it was closed and given to something else.

If the process dies on any line: the kernel closes it all.
"""

import array
import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from threading import Lock
from typing import Protocol

from flock.cni.call import Call
from flock.cni.frames import RawRequest, RequestDecoder, encode_reply
from flock.cni.netconf import DEFAULT_VERSION
from flock.cni.results import render_error
from flock.errors import DecodeFailure

READ_DEADLINE = 10.0
"""Seconds from accept until the request frame must be whole."""

RIPE_AFTER = 0.05
"""Seconds that a call may take before its connection is watched; also how long an answered one stays open."""

LINGER = 5.0
"""Seconds that an answered client has to close its side."""

_PIECE = 64 * 1024
_DESCRIPTORS = 2
"""Room for one descriptor more than a request may bring; the kernel closes what has no room and says so."""


class Owner(Protocol):
    """The server."""

    def received(self, connection: "Connection", raw: RawRequest, netns_fd: int | None) -> None: ...
    def closed(self, connection: "Connection", call: Call | None) -> None: ...


class Connection:
    """Reads one request, hands it to its owner, sends one reply."""

    __slots__ = (
        "_call",
        "_decoder",
        "_descriptors",
        "_loop",
        "_owner",
        "_registered",
        "_rest",
        "_sock",
        "_timer",
        "lock",
    )

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop, owner: Owner) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = loop
        self._owner = owner
        self.lock = Lock()
        self._decoder = RequestDecoder()
        self._descriptors: list[int] = []
        self._call: Call | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._registered = False
        self._rest = b""

    def start(self, read_deadline: float = READ_DEADLINE) -> None:
        """Read what is there already; usually that is all."""
        self._readable()
        if self._call is None and self._sock.fileno() >= 0:
            self._register()
            self._timer = self._loop.call_later(read_deadline, self._too_slow)

    def watch(self, call: Call) -> None:
        """The request is whole. Most are answered within milliseconds, so nothing is set up before ``ripen``."""
        self._call = call
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def ripen(self) -> None:
        """Some time has passed: an answered call is closed; else readable means hung up, and its deadline counts."""
        call = self._call
        if call is None or self._timer is not None or self._sock.fileno() < 0:
            return
        if call.answered and not self._rest:
            self.close()
            return
        self._register()
        self._timer = self._loop.call_at(call.deadline, self._deadline)

    def soon(self, action: Callable[[], None]) -> None:
        # A worker that finishes after the loop was closed has nobody to tell.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(action)

    def send(self, frame: bytes) -> bool:
        """Called with the lock held. What doesn't fit in the socket's buffer is left to the loop."""
        try:
            sent = self._sock.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError:
            return False
        if sent < len(frame):
            self._rest = frame[sent:]
            self.soon(self._send_rest)
        return True

    def close(self) -> None:
        """Close everything that is this connection's; a call that runs goes on and finds nobody."""
        with self.lock:
            if self._sock.fileno() < 0:
                return
            if self._registered:
                self._loop.remove_reader(self._sock.fileno())
                self._loop.remove_writer(self._sock.fileno())
            self._sock.close()
        if self._timer is not None:
            self._timer.cancel()
        self._close_descriptors()
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        self._owner.closed(self, call)

    def _register(self) -> None:
        if not self._registered:
            self._registered = True
            self._loop.add_reader(self._sock.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            while data := self._receive():
                if self._call is not None:
                    break
                raw = self._decoder.feed(data)
                if raw is not None:
                    self._complete(raw)
                    return
        except BlockingIOError:
            return
        except DecodeFailure as error:
            self._refuse(error)
        except OSError:
            pass
        self.close()

    def _receive(self) -> bytes:
        data, ancillary, flags, _ = self._sock.recvmsg(
            _PIECE, socket.CMSG_SPACE(4 * _DESCRIPTORS), socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
                self._descriptors += numbers
        if flags & socket.MSG_CTRUNC or len(self._descriptors) > 1:
            raise DecodeFailure("request came with more than one descriptor")
        return data

    def _complete(self, raw: RawRequest) -> None:
        netns_fd = self._descriptors.pop() if self._descriptors else None
        self._owner.received(self, raw, netns_fd)

    def _send_rest(self) -> None:
        with self.lock:
            if self._sock.fileno() < 0:
                return
            try:
                sent = self._sock.send(self._rest)
            except BlockingIOError:
                sent = 0
            except OSError:
                return
            self._rest = self._rest[sent:]
            if self._rest:
                self._loop.add_writer(self._sock.fileno(), self._send_rest)
            else:
                self._loop.remove_writer(self._sock.fileno())

    def _too_slow(self) -> None:
        self._refuse(DecodeFailure("request frame didn't arrive in time"))
        self.close()

    def _refuse(self, error: DecodeFailure) -> None:
        """The bytes were no request. Once a request was whole, its call has the only answer."""
        if self._call is None:
            with self.lock:
                self.send(encode_reply(error.code, render_error(DEFAULT_VERSION, error)))

    def _deadline(self) -> None:
        call = self._call
        if call is not None and not call.answered:
            call.expire()
            self._timer = self._loop.call_later(LINGER, self.close)
        else:
            self.close()

    def _close_descriptors(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())
