"""The control socket: one deadline, typed errors, nothing left open."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flock.errors import IOFailure
from flock.routing.bird_socket import BirdAbsent, BirdHung, ask

SOON = 0.3


@contextlib.asynccontextmanager
async def server(path: Path, *pieces: bytes, stay: bool = False) -> AsyncIterator[None]:
    """Sends these pieces to whoever connects and asks, then closes, or keeps silent."""
    over = asyncio.Event()
    serving: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        await reader.readline()
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if stay:
            await over.wait()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    made = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        over.set()
        made.close()
        await made.wait_closed()
        await asyncio.gather(*filter(None, serving))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bird.ctl"


async def test_greeting_and_reply_in_pieces(path: Path) -> None:
    async with server(path, b"0001 BIRD", b" ready.\n10", b"00-BIRD\n more", b"\n0013 up\n", stay=True):
        reply = await ask(path, "show status")
    assert (reply.code, [line for _, line in reply.lines]) == (13, ["BIRD", "more", "up"])


async def test_nobody_there(path: Path) -> None:
    with pytest.raises(BirdAbsent, match="BIRD isn't running"):
        await ask(path, "show status")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(path))
    with pytest.raises(BirdAbsent, match="nobody listens"):
        await ask(path, "show status")


@pytest.mark.parametrize("pieces", [(), (b"0001 BIRD ready.\n",), (b"0001 BIRD ready.\n", b"1000-half\n")])
async def test_silence_is_a_hung_bird_and_an_end_is_a_dead_one(path: Path, pieces: tuple[bytes, ...]) -> None:
    async with server(path, *pieces, stay=True):
        with pytest.raises(BirdHung, match="BIRD doesn't answer"):
            await ask(path, "show status", SOON)
    async with server(path, *pieces):
        with pytest.raises(BirdAbsent, match="closed the connection"):
            await ask(path, "show status")


async def test_a_full_backlog_is_a_hung_bird(path: Path) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(socket.socket(socket.AF_UNIX)))
        listener.bind(str(path))
        listener.listen(0)
        for _ in range(2):
            waiting = stack.enter_context(contextlib.closing(socket.socket(socket.AF_UNIX)))
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(str(path))
        with pytest.raises(BirdHung):
            await ask(path, "show status", SOON)


@pytest.mark.parametrize("reply", [b"hello\n", b"0013 not a greeting\n", b"0001 BIRD ready.\nxx\n"])
async def test_somebody_else_on_the_socket(path: Path, reply: bytes) -> None:
    async with server(path, reply, stay=True):
        with pytest.raises(IOFailure, match="BIRD's answer can't be read"):
            await ask(path, "show status")


@pytest.mark.parametrize("command", ["show\nconfigure", "a" * 1001, "a\0b"])
async def test_a_command_is_one_line(path: Path, command: str) -> None:
    async with server(path, stay=True):
        with pytest.raises(IOFailure, match="is no command for BIRD"):
            await ask(path, command)
