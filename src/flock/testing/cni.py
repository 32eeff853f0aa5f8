"""A CNI client in Python, for tests: it speaks the shim's frames and can do what no shim does.

If the process dies on any line: its connections break.
"""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from flock.cni.frames import RawReply, decode_reply, encode_request


class CniClient:
    """One connection to an agent's socket."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)

    async def connect(self) -> "CniClient":
        await asyncio.get_running_loop().sock_connect(self._sock, str(self._path))
        return self

    async def send(self, data: bytes, descriptors: Sequence[int] = ()) -> None:
        """Bytes as they are; the descriptors ride on the first one."""
        if descriptors:
            sent = socket.send_fds(self._sock, [data], descriptors)
            data = data[sent:]
        await asyncio.get_running_loop().sock_sendall(self._sock, data)

    async def ask(self, env: Mapping[str, str], stdin: bytes = b"", descriptors: Sequence[int] = ()) -> None:
        """A whole request, without waiting for its reply."""
        await self.send(encode_request(env, stdin), descriptors)

    async def reply(self, deadline: float = 5.0) -> RawReply | None:
        """The reply, or None where the connection ends before it is whole."""
        data = b""
        async with asyncio.timeout(deadline):
            while (found := decode_reply(data)) is None:
                try:
                    piece = await asyncio.get_running_loop().sock_recv(self._sock, 1 << 20)
                except ConnectionError:
                    return None
                if not piece:
                    return None
                data += piece
        return found

    def close(self) -> None:
        self._sock.close()
