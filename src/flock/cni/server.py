"""The agent's socket: accepts, reads a frame and a descriptor, hands requests over, sees who hangs up.

Everything but a Call's answer runs in the event loop's thread. asyncio's streams know no SCM_RIGHTS, so
the listening socket and the connections are plain non-blocking ones behind ``add_reader``. A frame is usually there at
accept: then one callback does it all, without a task.

Invariants: every descriptor that arrives is closed; each call is answered exactly once, by its deadline at the latest;
calls of one container run one after the other, those of different containers side by side.

If the process dies on any line: the kernel closes the connections, the shim says "try again" (ADD) or queues (DEL). The
socket's file stays and refuses connections until the next agent renames its own over it.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from flock.cni.call import Call
from flock.cni.connection import READ_DEADLINE, RIPE_AFTER, Connection
from flock.cni.frames import RawRequest
from flock.cni.lanes import Lanes
from flock.cni.wire import (
    AddRequest,
    CheckRequest,
    DelRequest,
    QueryRequest,
    Request,
    VersionRequest,
    parse_request,
    render_version,
)
from flock.errors import FlockError, FlockFailure, InvalidEnvironment, InvalidNetns, IOFailure, TryAgain

__all__ = ["Call", "CniServer", "Handler", "Query"]

log = logging.getLogger(__name__)

BACKLOG = 4096
"""The kernel cuts it to net.core.somaxconn; a connect that finds it full waits for the shim's deadline."""

ACCEPT_BATCH = 64
"""Connections taken in one turn of the loop, so that a burst doesn't starve the answers."""

RIPEN_BATCH = 16
"""Answered connections closed in one turn of the loop: about half a millisecond."""

ACCEPT_PAUSE = 0.1
"""Seconds without accepting after the process ran out of descriptors; the event would come back at once."""

DEADLINES = {"ADD": 50.0, "DEL": 8.0, "CHECK": 50.0, "GC": 50.0, "STATUS": 4.0}
"""Seconds for each verb: each is under the shim's own, so that the client gets a reason and not a silence."""

QUERY_DEADLINE = 30.0

Query = Callable[[str, bytes], Awaitable[bytes] | bytes]


class Handler(Protocol):
    """What the agent does with a request. Called in the loop's thread, so it hands the work on and returns."""

    def handle(self, request: Request, netns_fd: int | None, call: Call) -> None: ...


class CniServer:
    """One listening socket. ``query`` answers flockctl."""

    def __init__(
        self,
        path: Path,
        handler: Handler,
        loop: asyncio.AbstractEventLoop,
        *,
        query: Query | None = None,
        deadlines: Mapping[str, float] = DEADLINES,
        read_deadline: float = READ_DEADLINE,
    ) -> None:
        self._path = path
        self._handler = handler
        self._loop = loop
        self._query = query
        self._deadlines = deadlines
        self._read_deadline = read_deadline
        self._listener: socket.socket | None = None
        self._inode = 0
        self._connections: set[Connection] = set()
        self._idle = asyncio.Event()
        self._lanes = Lanes(self._hand_over)
        self._tasks: set[asyncio.Task[None]] = set()
        self._young: deque[tuple[float, Connection]] = deque()
        self._ripening: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Listen. The socket gets its name by rename once it listens: no client meets one that refuses."""
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            # On Linux a socket's file takes its mode from the socket, less the umask: it is never open to others.
            os.fchmod(listener.fileno(), 0o600)
            listener.bind(str(temporary))
            listener.listen(BACKLOG)
            self._inode = temporary.stat().st_ino
            temporary.rename(self._path)
        except OSError as error:
            listener.close()
            raise IOFailure(f"can't listen on {self._path}", error.strerror or str(error)) from error
        self._listener = listener
        self._loop.add_reader(listener.fileno(), self._accept)

    def stop_accepting(self) -> None:
        """No new connections; those that are there go on."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        self._loop.remove_reader(listener.fileno())
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        listener.close()

    async def close(self, grace: float = 5.0) -> None:
        """Stop, let the calls that run finish for ``grace`` seconds, then drop every connection."""
        self.stop_accepting()
        for connection in list(self._connections):
            connection.ripen()
        if self._connections:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace)
        for connection in list(self._connections):
            connection.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def busy(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    def _accept(self) -> None:
        for _ in range(ACCEPT_BATCH):
            listener = self._listener
            if listener is None:
                return
            try:
                sock, _address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    self._pause_accepting(listener, error)
                return
            connection = Connection(sock, self._loop, self)
            self._connections.add(connection)
            connection.start(self._read_deadline)

    def _pause_accepting(self, listener: socket.socket, error: OSError) -> None:
        log.error("cni-accept-failed", extra={"reason": error.strerror})
        self._loop.remove_reader(listener.fileno())

        def resume() -> None:
            if self._listener is listener:
                self._loop.add_reader(listener.fileno(), self._accept)

        self._loop.call_later(ACCEPT_PAUSE, resume)

    def received(self, connection: Connection, raw: RawRequest, netns_fd: int | None) -> None:
        """A connection's request is whole."""
        verb = "" if "FLOCK_QUERY" in raw.env else raw.env.get("CNI_COMMAND", "")
        deadline = self._loop.time() + self._deadlines.get(verb, QUERY_DEADLINE)
        call = Call(connection, verb=verb, deadline=deadline, through=self._through, stdin=raw.stdin, netns_fd=netns_fd)
        connection.watch(call)
        self._young.append((self._loop.time() + RIPE_AFTER, connection))
        if self._ripening is None:
            self._ripening = self._loop.call_later(RIPE_AFTER, self._ripen)
        try:
            request = parse_request(raw)
        except FlockError as error:
            call.fail(error)
            return
        if netns_fd is None and isinstance(request, AddRequest | CheckRequest):
            call.fail(InvalidNetns("CNI_NETNS: no descriptor of the network namespace came with the request"))
            return
        self._dispatch(request, call)

    def _ripen(self) -> None:
        """Close what was answered, watch what wasn't; a few at a time, since others wait for the loop."""
        now = self._loop.time()
        for _ in range(RIPEN_BATCH):
            if not self._young or self._young[0][0] > now:
                break
            self._young.popleft()[1].ripen()
        self._ripening = self._loop.call_at(self._young[0][0], self._ripen) if self._young else None

    def closed(self, connection: Connection, call: Call | None) -> None:
        """A connection is gone. Its call may still be at work: then it tells when it is through."""
        self._connections.discard(connection)
        if not self._connections:
            self._idle.set()
        if call is not None and not call.hold():
            self._through(call)

    def _dispatch(self, request: Request, call: Call) -> None:
        match request:
            case VersionRequest():
                call.reply(render_version())
            case QueryRequest():
                self._start_query(request, call)
            case AddRequest() | DelRequest() | CheckRequest():
                call.key = request.key
                self._lanes.enter(request.key.container_id, request, call)
            case _:
                self._hand_over(request, call)

    def _through(self, call: Call) -> None:
        call.run_done()
        if call.key is not None:
            self._lanes.leave(call.key.container_id, call)

    def _hand_over(self, request: Request, call: Call) -> None:
        try:
            self._handler.handle(request, call.netns_fd, call)
        except FlockError as error:
            call.fail(error)
        except Exception as error:
            log.exception("cni-handler-failed", extra={"verb": call.verb})
            call.fail(FlockFailure("flock failed; the agent's log has the details", type(error).__name__))

    def _start_query(self, request: QueryRequest, call: Call) -> None:
        if self._query is None:
            call.fail(InvalidEnvironment("FLOCK_QUERY: this agent answers no queries"))
            return
        task = self._loop.create_task(self._answer(self._query, request, call), name=f"query {request.name[:40]!r}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, query: Query, request: QueryRequest, call: Call) -> None:
        try:
            answer = query(request.name, request.body)
            call.reply(answer if isinstance(answer, bytes) else await answer)
        except FlockError as error:
            call.fail(error)
        except asyncio.CancelledError:
            call.fail(TryAgain("the agent is stopping"))
            raise
        except Exception as error:
            log.exception("query-failed", extra={"query": request.name[:40]})
            call.fail(FlockFailure("flock failed; the agent's log has the details", type(error).__name__))
