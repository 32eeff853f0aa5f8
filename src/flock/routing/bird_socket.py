"""BIRD's control socket: one connection for each command, with one deadline for all of it.

A BIRD that is stopped or busy accepts a connection and says nothing; after eight such connections the kernel refuses
more at once (EAGAIN). Both are `BirdHung`. Its output is read to the end of the reply or the connection is closed, so
no reply is ever taken for another command's.

If the process dies on any line: BIRD sees a closed connection; a ``configure`` that it took goes on.
"""

import asyncio
import socket
from pathlib import Path

from flock.errors import IOFailure
from flock.model.text import shown
from flock.routing.bird_protocol import GREETING, Reply, ReplyReader

DEADLINE = 5.0
"""Seconds for a whole command: BIRD is silent for up to 2.6 while it takes 200,000 routes in."""

_RETRY = 0.05
_COMMAND_LIMIT = 1000
"""BIRD resets a connection on a longer line."""


class BirdAbsent(IOFailure):
    """Nobody listens: BIRD isn't running."""


class BirdHung(IOFailure):
    """BIRD is there and doesn't answer."""


class BirdRefused(IOFailure):
    """BIRD answered no; ``details`` has its words."""


async def ask(path: Path, command: str, deadline: float = DEADLINE) -> Reply:
    """Send one command and return its reply, whatever its code."""
    if len(command.encode()) > _COMMAND_LIMIT or not command.isprintable():
        raise IOFailure(f"{shown(command)} is no command for BIRD")
    try:
        async with asyncio.timeout(deadline):
            connection = await _connect(path)
            with connection:
                return await _converse(connection, command)
    except TimeoutError as error:
        raise BirdHung("BIRD doesn't answer", f"nothing on {path} within {deadline:g} s") from error
    except ConnectionError as error:
        raise BirdAbsent("BIRD is gone", f"{path}: {error.strerror or error}") from error
    except OSError as error:
        raise IOFailure("BIRD can't be asked", f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise IOFailure("BIRD's answer can't be read", str(error)) from error


async def _connect(path: Path) -> socket.socket:
    """A connection; asyncio's own would take EAGAIN for a connection that is on its way."""
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            connection.connect(str(path))
        except BlockingIOError:
            connection.close()
            await asyncio.sleep(_RETRY)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            connection.close()
            raise BirdAbsent("BIRD isn't running", f"nobody listens on {path}") from error
        except BaseException:
            connection.close()
            raise
        else:
            return connection


async def _converse(connection: socket.socket, command: str) -> Reply:
    loop = asyncio.get_running_loop()
    # The greeting needn't be waited for: commands are answered in their order.
    await loop.sock_sendall(connection, command.encode() + b"\n")
    reader = ReplyReader()
    greeted = False
    while data := await loop.sock_recv(connection, 1 << 16):
        for reply in reader.feed(data):
            if greeted:
                return reply
            if reply.code != GREETING:
                raise ValueError(f"{reply.text[:80]!r} is no greeting of BIRD's")
            greeted = True
    raise BirdAbsent("BIRD closed the connection", f"it may have died of {command!r}")
