"""Programs of others, run with a deadline and a bound on what they print.

There is no blocking twin: whoever needs a program is a coroutine. A program that is still running at its deadline, or
when its caller is cancelled, is killed with its process group and waited for.

If the process dies on any line: a child may live on; every program that flock runs ends by itself and holds no state.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flock.errors import IOFailure

OUTPUT_LIMIT = 1 << 20
_KILL_DEADLINE = 2.0


class ProgramMissing(IOFailure):
    """The program isn't installed or may not be run."""


class ProgramTimeout(IOFailure):
    """The program didn't end in time and was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """How a program ended; ``code`` is negative for the signal that ended it."""

    argv: tuple[str, ...]
    code: int
    stdout: bytes
    stderr: bytes

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def text(self) -> str:
        """What it said, errors first, as text whatever the bytes are."""
        return (self.stderr + self.stdout).decode(errors="replace").strip()

    @property
    def ended(self) -> str:
        """``exit 1`` or ``SIGSEGV``."""
        if self.code >= 0:
            return f"exit {self.code}"
        with contextlib.suppress(ValueError):
            return signal.Signals(-self.code).name
        return f"signal {-self.code}"


async def run(argv: Sequence[str], timeout: float, input: bytes | None = None,  # noqa: ASYNC109 - the kill
              env: Mapping[str, str] | None = None) -> Completed:
    """Run one program to its end. Any exit code is an answer; only a missing program and a late one are errors.

    ``env`` is its whole environment, where it shall not have the agent's.
    """
    if not argv or any("\0" in word for word in argv):
        raise ProgramMissing("a program can't be run", "an argument is empty or holds a NUL")
    stdin = asyncio.subprocess.DEVNULL if input is None else asyncio.subprocess.PIPE
    starting = asyncio.ensure_future(_start(argv, stdin, env))
    try:
        transport, conversation = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # asyncio itself would kill the program alone and wait for its children, which hold the pipes.
        transport, conversation = await starting
        await _end(transport, conversation)
        raise
    try:
        _feed(transport, input)
        async with asyncio.timeout(timeout):
            await asyncio.shield(conversation.over)
    except TimeoutError as error:
        raise ProgramTimeout(f"{argv[0]} didn't end within {timeout:g} s") from error
    finally:
        await _end(transport, conversation)
    code = transport.get_returncode()
    return Completed(argv=tuple(argv), code=-signal.SIGKILL if code is None else code,
                     stdout=bytes(conversation.output[1]), stderr=bytes(conversation.output[2]))


async def _start(
    argv: Sequence[str], stdin: int, env: Mapping[str, str] | None
) -> "tuple[asyncio.SubprocessTransport, _Conversation]":
    loop = asyncio.get_running_loop()
    try:
        return await loop.subprocess_exec(
            lambda: _Conversation(loop.create_future(), loop.create_future()), *argv, stdin=stdin, env=env,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True)
    except OSError as error:
        raise ProgramMissing(f"{argv[0]} can't be run", error.strerror or str(error)) from error


class _Conversation(asyncio.SubprocessProtocol):
    """Keeps the first ``OUTPUT_LIMIT`` bytes of each pipe; the rest is read and dropped, so that nobody blocks."""

    def __init__(self, ended: "asyncio.Future[None]", over: "asyncio.Future[None]") -> None:
        self.ended = ended
        self.over = over
        self.output = {1: bytearray(), 2: bytearray()}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        kept = self.output[fd]
        kept += data[: OUTPUT_LIMIT - len(kept)]

    def process_exited(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """The program has ended and all its pipes are closed."""
        if not self.over.done():
            self.over.set_result(None)


def _feed(transport: asyncio.SubprocessTransport, data: bytes | None) -> None:
    pipe = transport.get_pipe_transport(0)
    if data is not None and isinstance(pipe, asyncio.WriteTransport):
        pipe.write(data)
        pipe.write_eof()


async def _end(transport: asyncio.SubprocessTransport, conversation: _Conversation) -> None:
    """Kill what still runs, children too (they hold the pipes even where the program has ended), and wait for it.

    The transport may only be closed after that: it would reap the child under asyncio's own watcher.
    """
    if not conversation.over.done():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(transport.get_pid(), signal.SIGKILL)
        with contextlib.suppress(TimeoutError):  # a process that the kernel itself holds can't be waited for
            async with asyncio.timeout(_KILL_DEADLINE):
                await asyncio.shield(conversation.ended)
    transport.close()
