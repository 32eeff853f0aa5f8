"""The client against a server that behaves and one that doesn't: nothing waits for ever, every failure has its name."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from flock.cluster.access import ClusterAccess
from flock.cluster.client import MERGE_PATCH, ApiClient, Patience
from flock.cluster.errors import (
    ApiForbidden,
    ApiGone,
    ApiNotFound,
    ApiThrottled,
    ApiTooLarge,
    ApiUnavailable,
    ApiUnreachable,
)
from flock.cluster.lines import Oversized
from flock.system.clock import SystemClock
from flock.testing.api_server import ApiServer
from flock.testing.wait import await_until

# One limit short in each: on a busy machine two short ones would race.
NO_ANSWER = Patience(answer=0.1, whole=20.0, page=20.0)
NO_END = Patience(whole=0.2, watch=0.1)
PODS = "/api/v1/pods"


@pytest_asyncio.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        yield server


@contextlib.asynccontextmanager
async def client_of(url: str, patience: Patience | None = None) -> AsyncIterator[ApiClient]:
    client = ApiClient(ClusterAccess(url), SystemClock(), patience)
    try:
        yield client
    finally:
        await client.close()


@pytest_asyncio.fixture
async def client(api: ApiServer) -> AsyncIterator[ApiClient]:
    async with client_of(api.url) as one:
        yield one


@pytest_asyncio.fixture
async def hasty(api: ApiServer) -> AsyncIterator[ApiClient]:
    async with client_of(api.url, NO_ANSWER) as one:
        yield one


def pods(api: ApiServer, count: int) -> None:
    for number in range(count):
        api.put({"kind": "Pod", "metadata": {"name": f"p{number}", "namespace": "default"}})


async def collect(client: ApiClient, limit: int) -> list[bytes]:
    return [page async for page in client.list(PODS, {}, limit)]


async def test_a_list_is_asked_for_in_pages(api: ApiServer, client: ApiClient) -> None:
    pods(api, 5)
    pages = await collect(client, 2)
    assert [page.count(b'"namespace"') for page in pages] == [2, 2, 1]
    assert [seen.query["limit"] for seen in api.seen] == ["2", "2", "2"]


async def test_a_list_that_the_server_forgets_in_the_middle_is_gone(api: ApiServer, client: ApiClient) -> None:
    pods(api, 5)
    pages = client.list(PODS, {}, 2)
    await anext(pages)
    api.compact()
    with pytest.raises(ApiGone):
        await anext(pages)


async def test_requests_share_a_connection(api: ApiServer, client: ApiClient) -> None:
    transports = set()
    for _ in range(3):
        await client.get("/api/v1/namespaces/default")
        transports.add(id(next(iter(api.connections))))
    assert len(transports) == 1


@pytest.mark.parametrize(("code", "error"), [(403, ApiForbidden), (404, ApiNotFound), (410, ApiGone),
                                             (500, ApiUnavailable)])
async def test_refusals_have_their_names(
    api: ApiServer, client: ApiClient, code: int, error: type[Exception]
) -> None:
    api.fail(code)
    with pytest.raises(error, match=f"GET {PODS}: the API server answered {code}"):
        await client.get(PODS)


async def test_429_says_when_to_come_back(api: ApiServer, client: ApiClient) -> None:
    api.fail(429, Retry_After="7")
    with pytest.raises(ApiThrottled) as caught:
        await client.get(PODS)
    assert caught.value.retry_after == 7


async def test_a_redirect_is_not_followed(api: ApiServer, client: ApiClient) -> None:
    api.fail(302, Location="http://192.0.2.1/")
    with pytest.raises(Exception, match="answered 302"):
        await client.get(PODS)


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    async with client_of(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(ApiUnreachable, match="can't be reached"):
            await client.get(PODS)


async def test_a_kernel_that_accepts_and_a_process_that_never_does_are_waited_for_only_so_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        async with client_of(f"http://127.0.0.1:{sock.getsockname()[1]}", NO_ANSWER) as client:
            with pytest.raises(ApiUnreachable, match=r"no answer within 0\.1 s"):
                await client.get(PODS)
            with pytest.raises(ApiUnreachable, match=r"no answer within 0\.1 s"):
                await anext(client.watch(PODS, {}, "1", 60))


async def test_a_server_that_takes_requests_and_never_answers_is_waited_for_only_so_long(
    api: ApiServer, hasty: ApiClient
) -> None:
    api.mute = True
    with pytest.raises(ApiUnreachable, match=r"no answer within 0\.1 s"):
        await hasty.get(PODS)
    with pytest.raises(ApiUnreachable):
        await hasty.patch(f"{PODS}/x", b"{}", MERGE_PATCH)
    with pytest.raises(ApiUnreachable):
        await hasty.create(PODS, b"{}")
    with pytest.raises(ApiUnreachable):
        await hasty.page(PODS, {})
    with pytest.raises(ApiUnreachable):
        await anext(hasty.watch(PODS, {}, "1", 60))


@contextlib.asynccontextmanager
async def saying(*pieces: bytes, then_hang: bool = False) -> AsyncIterator[str]:
    """A server that says these bytes to each request."""
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            if then_hang:
                await done.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        done.set()
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


async def test_an_answer_that_stops_in_the_middle_is_waited_for_only_so_long() -> None:
    async with saying(HEAD + b"Content-Length: 100\r\n\r\n{", then_hang=True) as url, client_of(url, NO_END) as client:
        with pytest.raises(ApiUnreachable, match=r"not answered within 0\.2 s"):
            await client.get(PODS)


async def test_an_answer_that_breaks_off_is_no_answer() -> None:
    async with saying(HEAD + b"Content-Length: 100\r\n\r\n{") as url, client_of(url) as client:
        with pytest.raises(ApiUnreachable, match="broke off"):
            await client.get(PODS)


@pytest.mark.parametrize("nonsense", [b"", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\x16\x03\x01\x02\x00"])
async def test_what_is_no_http_is_unreachable(nonsense: bytes) -> None:
    async with saying(nonsense) as url, client_of(url) as client:
        with pytest.raises(ApiUnreachable):
            await client.get(PODS)


async def test_a_page_longer_than_its_limit_is_not_kept(api: ApiServer, client: ApiClient) -> None:
    pods(api, 100)
    client.page_limit = 1000
    with pytest.raises(ApiTooLarge):
        await client.page(PODS, {}, 100)
    assert await client.page(PODS, {}, 1)


async def test_a_watch_gives_lines_and_ends_when_the_server_ends_it(api: ApiServer, client: ApiClient) -> None:
    lines = client.watch(PODS, {"fieldSelector": "spec.nodeName=n"}, str(api.store.version), 60)
    first = asyncio.ensure_future(anext(lines))
    await await_until(lambda: api.watching("pods"))
    query = api.seen[-1].query
    assert query == {"fieldSelector": "spec.nodeName=n", "watch": "1", "allowWatchBookmarks": "true",
                     "resourceVersion": str(api.store.version), "timeoutSeconds": "60"}
    api.put({"kind": "Pod", "metadata": {"name": "a", "namespace": "default"}, "spec": {"nodeName": "n"}})
    assert b'"ADDED"' in bytes_of(await first)
    api.bookmark()
    assert b'"BOOKMARK"' in bytes_of(await anext(lines))
    api.end_watches()
    with pytest.raises(StopAsyncIteration):
        await anext(lines)


def bytes_of(line: bytes | Oversized) -> bytes:
    assert isinstance(line, bytes)
    return line


async def test_a_silent_watch_is_cut_by_the_clients_own_clock(api: ApiServer) -> None:
    api.withhold = True
    async with client_of(api.url, NO_END) as client:
        first = asyncio.ensure_future(anext(client.watch(PODS, {}, str(api.store.version), 0.4)))
        await await_until(lambda: api.watching("pods"))
        pods(api, 1)
        with pytest.raises(ApiUnreachable, match="lasts longer than it was asked to"):
            await first


async def test_a_paced_watch_gives_the_first_line_at_once_and_lets_the_next_gather(api: ApiServer) -> None:
    async with client_of(api.url) as client:
        lines = client.watch(PODS, {}, str(api.store.version), 60, pace=3600.0)
        first = asyncio.ensure_future(anext(lines))
        await await_until(lambda: api.watching("pods"))
        pods(api, 1)
        assert b'"ADDED"' in bytes_of(await first)
        second = asyncio.ensure_future(anext(lines))
        pods(api, 2)
        for _ in range(3):
            await client.get(PODS)
        assert not second.done()
        second.cancel()


async def test_a_paced_watch_loses_nothing(api: ApiServer) -> None:
    async with client_of(api.url) as client:
        paced = client.watch(PODS, {}, str(api.store.version), 60, pace=0.001)
        async with contextlib.aclosing(paced) as lines:
            first = asyncio.ensure_future(anext(lines))
            await await_until(lambda: api.watching("pods"))
            pods(api, 200)
            found = [await first] + [await anext(lines) for _ in range(199)]
    names = [json.loads(bytes_of(line))["object"]["metadata"]["name"] for line in found]
    assert len(set(names)) == 200


async def test_a_watch_whose_connection_breaks_is_unreachable(api: ApiServer, client: ApiClient) -> None:
    lines = client.watch(PODS, {}, str(api.store.version), 60)
    first = asyncio.ensure_future(anext(lines))
    await await_until(lambda: api.watching("pods"))
    api.cut()
    with pytest.raises(ApiUnreachable, match="broke"):
        await first


async def test_a_watch_that_nobody_reads_any_more_ends_its_connection(api: ApiServer, client: ApiClient) -> None:
    async with contextlib.aclosing(client.watch(PODS, {}, "", 60)) as lines:
        pods(api, 1)
        await anext(lines)
        assert api.watching("pods") == 1
    await await_until(lambda: api.watching("pods") == 0, what="the server sees the end")
