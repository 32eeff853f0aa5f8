"""The Kubernetes API as bytes: pages, watches, and the few writes that an agent makes.

Invariant: nothing waits for ever: the whole of an answer and the length of a watch have a limit of the client's own,
as has what comes before them (``transport``), and no answer takes more memory than its limit. Every failure is one of
``flock.cluster.errors``. Objects are not decoded here.

If the process dies on any line: see ``transport``.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass

import aiohttp
import msgspec

from flock.cluster.access import ClusterAccess
from flock.cluster.errors import ApiTooLarge, ApiUnavailable, ApiUnreachable
from flock.cluster.lines import LineSplitter, Oversized
from flock.cluster.transport import Request, Transport, explain, rest
from flock.system.clock import Clock

Params = Mapping[str, str]

PAGE_LIMIT = 64 * 1024 * 1024
BODY_LIMIT = 8 * 1024 * 1024
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


def _nobody() -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds: until an answer begins, for the whole of one, for a page, and what a watch may take longer than it
    was asked to.
    """

    answer: float = 15.0
    whole: float = 20.0
    page: float = 60.0
    watch: float = 10.0


class ApiClient:
    """One agent's API server. Use in one event loop; ``close`` at the end."""

    def __init__(self, access: ClusterAccess, clock: Clock, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._transport = Transport(access, clock, self._patience.answer)
        self.page_limit = PAGE_LIMIT

    async def close(self) -> None:
        """End every connection."""
        await self._transport.close()

    async def get(self, path: str, params: Params | None = None) -> bytes:
        """One object, or whatever else a path holds."""
        return await self._exchange(Request(path=path, params=params or {}))

    async def page(self, path: str, params: Params, limit: int = 500, continue_: str = "") -> bytes:
        """One page of a list; ``continue_`` is what the former page said. ApiTooLarge: ask for less."""
        asked = {**params, "limit": str(limit)}
        if continue_:
            asked["continue"] = continue_
        request = Request(path=path, params=asked)
        return await self._exchange(request, self.page_limit, self._patience.page)

    async def list(self, path: str, params: Params, limit: int = 500) -> AsyncIterator[bytes]:
        """Every page of a list. ApiGone in the middle: what was handed out is void, begin again."""
        continue_ = ""
        while True:
            page = await self.page(path, params, limit, continue_)
            yield page
            try:
                continue_ = _HEAD.decode(page).metadata.continue_ or ""
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ApiUnavailable(f"GET {path}: a page can't be read", str(error)[:200]) from error
            if not continue_:
                return

    async def watch(
        self, path: str, params: Params, resource_version: str, timeout: float,  # noqa: ASYNC109 - the server's too
        *, opened: Callable[[], None] = _nobody, pace: float = 0.0,
    ) -> AsyncGenerator[bytes | Oversized, None]:
        """The lines of a watch, until the server ends it; it is asked to after ``timeout`` seconds.

        After each piece, what follows within ``pace`` seconds comes together: a line that comes alone comes at once.
        ``opened`` is called when the server has taken it: the first line may be a minute away.
        ApiUnreachable: it broke, or it lasts longer than it may: the server has gone silent.
        """
        request = Request(path=path, params={
            **params, "watch": "1", "allowWatchBookmarks": "true", "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, round(timeout))),
        })
        splitter = LineSplitter()
        try:
            # One timer for all of it: one for each chunk would cost as much as reading the chunk.
            async with self._transport.open(request, timeout + self._patience.watch) as answer:
                opened()
                while chunk := await answer.content.readany():
                    for line in splitter.feed(chunk):
                        yield line
                    if pace:
                        await rest(answer, pace)
        except TimeoutError as error:
            said = f"watch of {path} lasts longer than it was asked to"
            raise ApiUnreachable(said, "the server is silent") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ApiUnreachable(f"watch of {path} broke", explain(error)) from error

    async def patch(self, path: str, body: bytes, content_type: str, params: Params | None = None) -> bytes:
        """Change an object; ``content_type`` is one of the four kinds of patch."""
        return await self._exchange(
            Request(method="PATCH", path=path, params=params or {}, content_type=content_type, body=body))

    async def create(self, path: str, body: bytes, params: Params | None = None) -> bytes:
        """Make an object."""
        return await self._exchange(
            Request(method="POST", path=path, params=params or {}, content_type="application/json", body=body))

    async def _exchange(self, request: Request, limit: int = BODY_LIMIT, patience: float | None = None) -> bytes:
        seconds = self._patience.whole if patience is None else patience
        try:
            async with asyncio.timeout(seconds), self._transport.open(request) as answer:
                return await _read(answer, limit, request)
        except TimeoutError as error:
            raise ApiUnreachable(f"{request} was not answered within {seconds:g} s") from error


class _HeadMetadata(msgspec.Struct):
    continue_: str | None = msgspec.field(default=None, name="continue")


class _Head(msgspec.Struct):
    metadata: _HeadMetadata = msgspec.field(default_factory=_HeadMetadata)


_HEAD = msgspec.json.Decoder(_Head)


async def _read(answer: aiohttp.ClientResponse, limit: int, request: Request) -> bytes:
    pieces: list[bytes] = []
    size = 0
    try:
        while piece := await answer.content.readany():
            size += len(piece)
            if size > limit:
                raise ApiTooLarge(f"{request}: the answer is longer than {limit} bytes")
            pieces.append(piece)
    except (aiohttp.ClientError, OSError) as error:
        if isinstance(error, TimeoutError):
            raise
        raise ApiUnreachable(f"{request}: the answer broke off", explain(error)) from error
    return b"".join(pieces)

