"""A BIRD for tests that answers on a control socket, as strict as the real one.

It reads its file as the real one does (``refuses`` says which texts are bad), remembers when it read it last, restarts
sessions for a while after a ``configure``, and dies of a second one meanwhile, as BIRD 3.4.0 does (conf/conf.c).
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

_HEADER = "2002-Name       Proto      Table      State  Since         Info\n"


class FakeBird:
    """``async with FakeBird(socket, config).running():`` starts it; ``commands`` is what it was asked."""

    def __init__(self, socket: Path, config: Path) -> None:
        self.socket = socket
        self.config = config
        self.commands: list[str] = []
        self.refuses: Callable[[str], str] = lambda _: ""
        self.protocols = ""
        self.settles_after = 0
        self.crashed = False
        self.text = ""
        self._serving: set[asyncio.Task[None]] = set()
        self._left = 0
        self._read_at = 0.0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["FakeBird"]:
        """Listen for the length of a block; it reads its file at start if there is one."""
        if self.config.exists():
            self._read(self.config)
        server = await asyncio.start_unix_server(self._serve, self.socket)
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()
            await asyncio.gather(*self._serving)
            self.socket.unlink(missing_ok=True)

    def count(self, command: str) -> int:
        """How often it was asked exactly this."""
        return self.commands.count(command)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            self._serving.add(task)
        writer.write(b"0001 BIRD 9.9.9 ready.\n")
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                if not (answer := self._answer(line.decode().strip())):
                    break
                writer.write(answer.encode(errors="surrogateescape"))
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    def _answer(self, command: str) -> str:
        """The reply, or nothing from a daemon that is dead."""
        self.commands.append(command)
        if self.crashed:
            return ""
        match command.split(" ", 2):
            case ["configure", "check", path]:
                error = self.refuses(Path(path.strip('"')).read_text())
                return f"0002-Reading configuration from {path}\n" + (f"8002 {path}:9:9 {error}\n" if error else
                                                                       "0020 Configuration OK\n")
            case ["configure", "status"]:
                return self._status()
            case ["configure"]:
                return self._configure()
            case ["show", "status"]:
                read_at = datetime.fromtimestamp(self._read_at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f+0000")
                return (f"1000-BIRD 9.9.9\n1011-Router ID is 192.0.2.1\n Last reboot on {read_at}\n"
                        f" Last reconfiguration on {read_at}\n0013 Daemon is up and running\n")
            case ["show", "protocols", "all"]:
                return _HEADER + self.protocols + "0000 \n"
            case _:
                return "9001 syntax error, unexpected CF_SYM_UNDEFINED\n"

    def _status(self) -> str:
        self._left = max(0, self._left - 1)
        return "0004-Reconfiguration in progress\n0000 \n" if self._left else "0003-Daemon is up and running\n0000 \n"

    def _configure(self) -> str:
        if self._left:
            self.crashed = True
            return ""
        if error := self._read(self.config):
            return f"0002-Reading configuration from {self.config}\n8002 {self.config}:9:9 {error}\n"
        self._left = self.settles_after
        head = f"0002-Reading configuration from {self.config}\n"
        return head + ("0004 Reconfiguration in progress\n" if self._left else "0003 Reconfigured\n")

    def _read(self, path: Path) -> str:
        text = path.read_text()
        if not (error := self.refuses(text)):
            self.text, self._read_at = text, time.time()
        return error
