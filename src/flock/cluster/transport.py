"""Requests to one API server over kept connections, with its refusals and every failure as errors of flock.

Invariant: connecting and the first byte of an answer have a limit of the client's own, since a server can accept and
never speak. No request is repeated, but for one new try with fresh credentials after a 401. The server is not asked to
compress: on a node's own network that costs both sides more than it saves.

If the process dies on any line: connections break; a write may or may not have been made, and every write of flock's
can be made again.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from flock import __version__
from flock.cluster.access import ClusterAccess
from flock.cluster.answers import refusal
from flock.cluster.errors import ApiUnreachable
from flock.system.clock import Clock

ERROR_LIMIT = 64 * 1024

GATHERED = 1 << 17
"""Bytes that wake a reader who rests (SO_RCVLOWAT: tcp_poll reports nothing below, but for the connection's end)."""

_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""A peer that is gone without a word (a cut cable, a dropped route) is found out within half a minute by the kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; ``path`` is quoted already."""

    path: str
    method: str = "GET"
    params: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    body: bytes | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Transport:
    """The connections. Use in one event loop; ``close`` at the end."""

    def __init__(self, access: ClusterAccess, clock: Clock, patience: float) -> None:
        self._access = access
        self._clock = clock
        self._patience = patience
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @contextlib.asynccontextmanager
    async def open(self, request: Request, whole: float | None = None) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer with a status below 300; the connection is closed if it isn't read to its end.

        After ``whole`` seconds, where given, waiting for more of the answer raises TimeoutError.
        """
        answer = await self._ask(request, aiohttp.ClientTimeout(total=whole))
        try:
            if answer.status >= 300:
                text = await self._read_refusal(answer)
                raise refusal(str(request), answer.status, answer.headers, text, self._clock.wall())
            yield answer
        finally:
            _finish(answer)

    async def _read_refusal(self, answer: aiohttp.ClientResponse) -> bytes:
        text = b""
        with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(self._patience):
                while len(text) < ERROR_LIMIT and (piece := await answer.content.readany()):
                    text += piece
        return text

    async def _ask(self, request: Request, whole: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        authorization = await self._access.authorization()
        answer = await self._send(request, authorization, whole)
        if answer.status != 401:
            return answer
        self._access.refused()
        if (fresh := await self._access.authorization()) == authorization:
            return answer
        _finish(answer)
        return await self._send(request, fresh, whole)

    async def _send(
        self, request: Request, authorization: str | None, whole: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        query = f"?{urlencode(request.params)}" if request.params else ""
        headers = {"Content-Type": request.content_type} if request.content_type else {}
        if authorization is not None:
            headers["Authorization"] = authorization
        tls = self._access.tls
        try:
            async with asyncio.timeout(self._patience):
                return await self._connections().request(
                    request.method, URL(f"{self._access.server}{request.path}{query}", encoded=True),
                    headers=headers, data=request.body, allow_redirects=False, timeout=whole,
                    ssl=tls.context() if tls is not None else True,
                    server_hostname=tls.settings.server_name if tls is not None else None,
                )
        except TimeoutError as error:
            raise ApiUnreachable(f"{request}: no answer within {self._patience:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ApiUnreachable(f"{request}: the API server {self._access.server} can't be reached",
                                 explain(error)) from error

    def _connections(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # No limit: a request never waits for a watch to end.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0, socket_factory=_make_socket),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                headers={"Accept": "application/json", "Accept-Encoding": "identity",
                         "User-Agent": f"flock/{__version__}"},
                read_bufsize=1 << 18,
            )
        return self._session


def _finish(answer: aiohttp.ClientResponse) -> None:
    """Give the connection back where the answer was read to its end, else end it."""
    if answer.content.at_eof():
        answer.release()
        return
    # Without a farewell: a TLS one waits for the other side, which may be what has fallen silent.
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()
    answer.close()


async def rest(answer: aiohttp.ClientResponse, seconds: float) -> None:
    """Let what comes meanwhile gather in the kernel, up to a bound, so that it wakes the process once."""
    transport = answer.connection.transport if answer.connection is not None else None
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, GATHERED)
    try:
        await asyncio.sleep(seconds)
    finally:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def explain(error: Exception) -> str:
    """What a connection's failure is, in words for whoever reads the log."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate isn't believed: {error.certificate_error}"[:300]
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"[:300]
    return (str(error) or type(error).__name__)[:300]


def _make_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
