"""One request on its way: who waits for it, until when, and the one answer that it gets.

The handler, in any thread, ends a call in one of three ways:

- ``reply(body)`` gave True: the client has its answer, the call is through;
- ``reply(body)`` gave False: nobody waits any more (hung up, or told "try again" at the deadline). The handler undoes
  what it did and then calls ``finish()``; the container's next request starts only after that;
- ``fail(error)``: the handler has undone everything before; the call is through, whether or not it could be told.

Invariant: exactly one answer is sent, and the netns descriptor is closed exactly once, by ``finish``.

If the process dies on any line: the connection breaks, and the client knows that it got no answer.
"""

import os
from collections.abc import Callable
from threading import Lock
from typing import Protocol

from flock.cni.frames import encode_reply
from flock.cni.netconf import DEFAULT_VERSION, version_of
from flock.cni.results import render_error
from flock.errors import FlockError, TryAgain
from flock.model.ids import AttachmentKey


class Channel(Protocol):
    """The connection as a call sees it. Its lock guards the call's state too."""

    def send(self, frame: bytes) -> bool:
        """Send, with the lock held; False where the client is gone."""

    @property
    def lock(self) -> Lock:
        """What sending, closing and the call's state are guarded by."""

    def soon(self, action: Callable[[], None]) -> None:
        """Run ``action`` in the loop's thread."""


class Call:
    """``deadline`` is in the loop's time; ``cancelled`` turns True, in the loop's thread, when the client is gone."""

    __slots__ = (
        "_channel",
        "_finished",
        "_held",
        "_on_cancel",
        "_on_done",
        "_stdin",
        "_through",
        "answered",
        "cancelled",
        "code",
        "deadline",
        "key",
        "netns_fd",
        "verb",
    )

    def __init__(
        self,
        channel: Channel,
        *,
        verb: str,
        deadline: float,
        through: Callable[["Call"], None],
        stdin: bytes = b"",
        netns_fd: int | None = None,
    ) -> None:
        self.key: AttachmentKey | None = None
        self.verb = verb
        self.deadline = deadline
        self.netns_fd = netns_fd
        self.answered = False
        self.cancelled = False
        self.code = 0
        self._channel = channel
        self._through = through
        self._stdin = stdin
        self._finished = False
        self._held = False
        self._on_done: list[Callable[[], None]] = []
        self._on_cancel: list[Callable[[], None]] = []

    def reply(self, body: bytes = b"") -> bool:
        """Answer with success. False: nobody took it; undo, then ``finish()``."""
        sent = self._answer(0, body)
        # Where no container is meant there is nothing to undo, and no next request that waits.
        if sent or self.key is None:
            self.finish()
        return sent

    def fail(self, error: FlockError) -> bool:
        """Answer with an error and end the call. False: nobody took it."""
        sent = self._answer(error.code, self._rendered(error))
        self.finish()
        return sent

    def finish(self) -> None:
        """The handler is through with this call and its descriptor; more than once is harmless."""
        with self._channel.lock:
            if self._finished:
                return
            self._finished = True
            held = self._held
            netns_fd, self.netns_fd = self.netns_fd, None
        if netns_fd is not None:
            os.close(netns_fd)
        if held:
            self._channel.soon(lambda: self._through(self))

    def expire(self) -> None:
        """The deadline is over. The handler learns it when its reply finds nobody."""
        self._answer(TryAgain.code, self._rendered(TryAgain(f"{self.verb or 'the request'} wasn't done in time")))

    def cancel(self) -> None:
        """The client hung up (loop's thread)."""
        with self._channel.lock:
            if self.cancelled:
                return
            self.cancelled = True
            waiting = not self.answered
        if waiting:
            for callback in self._on_cancel:
                callback()

    def hold(self) -> bool:
        """Ask that the end of this call is told to the loop; False where it has ended already."""
        with self._channel.lock:
            self._held = True
            return not self._finished

    def soon(self, action: Callable[[], None]) -> None:
        """Run ``action`` in the loop's thread. From any thread."""
        self._channel.soon(action)

    def on_done(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` in the loop's thread, some time after the call is through. Only from the loop's thread."""
        self._on_done.append(callback)

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` in the loop's thread if the client hangs up first. Only from the loop's thread."""
        self._on_cancel.append(callback)

    def run_done(self) -> None:
        """Run the callbacks of ``on_done``, once."""
        callbacks, self._on_done = self._on_done, []
        for callback in callbacks:
            callback()

    def _answer(self, code: int, body: bytes) -> bool:
        with self._channel.lock:
            if self.answered or self.cancelled:
                return False
            self.answered = True
            self.code = code
            return self._channel.send(encode_reply(code, body))

    def _rendered(self, error: FlockError) -> bytes:
        version = version_of(self._stdin) if self._stdin else DEFAULT_VERSION
        return render_error(version, error, deleting=self.verb == "DEL")
