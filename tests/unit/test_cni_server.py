"""The server on a real socket: who gets which answer, who waits for whom, and that no descriptor is left."""

import asyncio
import json
import os
import resource
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from flock.cni.call import Call
from flock.cni.frames import RawReply, encode_request
from flock.cni.requests import AddRequest, DelRequest, Request, StatusRequest
from flock.cni.server import DEADLINES, CniServer
from flock.errors import InvalidEnvironment, IOFailure, PoolExhausted
from flock.testing.cni import CniClient
from flock.testing.wait import await_until

CONF = b'{"cniVersion":"1.1.0","name":"flock","type":"flock"}'
STATUS = {"CNI_COMMAND": "STATUS"}


def env(command: str, container: str = "abc", ifname: str = "eth0") -> dict[str, str]:
    return {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": container,
        "CNI_IFNAME": ifname,
        "CNI_NETNS": "/proc/self/ns/net",
    }


class Recorder:
    """A handler that keeps what it is given; ``act`` may answer at once."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.requests: list[Request] = []
        self.act: Callable[[Request, Call], object] = lambda _request, _call: None

    def handle(self, request: Request, netns_fd: int | None, call: Call) -> None:
        assert netns_fd == call.netns_fd
        self.requests.append(request)
        self.calls.append(call)
        self.act(request, call)

    async def call(self, number: int) -> Call:
        await await_until(lambda: len(self.calls) > number, what=f"call {number} is handed over")
        return self.calls[number]


class World:
    """A server, its handler, and clients that are closed at the end."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "agent.sock"
        self.handler = Recorder()
        self.server: CniServer
        self._clients: list[CniClient] = []

    async def client(self) -> CniClient:
        client = await CniClient(self.path).connect()
        self._clients.append(client)
        return client

    async def ask(self, request: dict[str, str], stdin: bytes = CONF) -> CniClient:
        """Send a request, with this process's own namespace where it needs one."""
        client = await self.client()
        with own_netns() as descriptor:
            await client.ask(request, stdin, [descriptor] if request.get("CNI_NETNS") else [])
        return client

    async def quiet(self) -> None:
        for client in self._clients:
            client.close()
        await await_until(lambda: self.server.busy == 0, what="every connection is gone")


@contextmanager
def own_netns() -> Iterator[int]:
    descriptor = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@asynccontextmanager
async def serving(
    folder: Path,
    query: Callable[[str, bytes], Awaitable[bytes] | bytes] | None = None,
    deadline: float | None = None,
    read_deadline: float = 5.0,
) -> AsyncIterator[World]:
    """A running server; afterwards it has no connection and the process as many descriptors as before."""
    before = descriptors()
    world = World(folder)
    deadlines = DEADLINES if deadline is None else dict.fromkeys(DEADLINES, deadline)
    loop = asyncio.get_running_loop()
    world.server = CniServer(
        world.path, world.handler, loop, query=query, deadlines=deadlines, read_deadline=read_deadline
    )
    world.server.start()
    try:
        yield world
        await world.quiet()
    finally:
        await world.server.close(grace=0)
    for call in world.handler.calls:
        call.finish()
    assert descriptors() == before


def let_go(call: Call) -> bool:
    """Whether the call has closed its descriptor."""
    return call.netns_fd is None


def code_of(reply: RawReply | None) -> int:
    assert reply is not None
    return int(json.loads(reply.body)["code"]) if reply.code else 0


async def test_a_request_gets_its_reply_and_the_descriptor_goes_with_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        client = await world.ask(env("ADD"))
        call = await world.handler.call(0)
        assert isinstance(world.handler.requests[0], AddRequest)
        assert call.netns_fd is not None
        assert os.fstat(call.netns_fd).st_ino == os.stat("/proc/self/ns/net").st_ino
        assert call.reply(b"result")
        assert let_go(call)
        assert await client.reply() == RawReply(0, b"result")


async def test_any_thread_may_answer(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        world.handler.act = lambda _request, call: threading.Thread(target=call.reply, args=(b"x",)).start()
        for _ in range(20):
            client = await world.ask(env("DEL"))
            assert await client.reply() == RawReply(0, b"x")


async def test_an_error_goes_out_in_the_version_of_the_request(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        world.handler.act = lambda _request, call: call.fail(PoolExhausted("none left", "really"))
        client = await world.ask(env("ADD"))
        reply = await client.reply()
        assert reply is not None
        assert reply.code == 101
        assert json.loads(reply.body) == {"cniVersion": "1.1.0", "code": 101, "msg": "none left", "details": "really"}


@pytest.mark.parametrize(("fault", "code"), [(IOFailure("broken"), 5), (ZeroDivisionError("secret"), 100)])
async def test_a_handler_that_raises_is_an_error_and_no_silence(tmp_path: Path, fault: Exception, code: int) -> None:
    def act(_request: Request, _call: Call) -> None:
        raise fault

    async with serving(tmp_path) as world:
        world.handler.act = act
        reply = await (await world.ask(env("ADD"))).reply()
        assert code_of(reply) == code
        assert b"secret" not in (reply.body if reply else b"")


@pytest.mark.parametrize(
    ("request_", "stdin", "code"),
    [
        (env("ADD", "../x"), CONF, 4),
        (env("ADD"), b"{", 6),
        (env("ADD"), b"{}", 1),
        (env("ADD") | {"CNI_NETNS": ""}, CONF, 4),
        ({"CNI_COMMAND": "NONSENSE"}, CONF, 4),
        ({}, b"", 4),
        ({"FLOCK_QUERY": "status"}, b"", 4),
    ],
)
async def test_a_bad_request_never_reaches_the_handler(
    tmp_path: Path, request_: dict[str, str], stdin: bytes, code: int
) -> None:
    async with serving(tmp_path) as world:
        assert code_of(await (await world.ask(request_, stdin)).reply()) == code
        assert not world.handler.calls


@pytest.mark.parametrize("command", ["ADD", "CHECK"])
async def test_a_netns_without_its_descriptor_is_code_8(tmp_path: Path, command: str) -> None:
    async with serving(tmp_path) as world:
        client = await world.client()
        await client.ask(env(command), CONF[:-1] + b',"prevResult":{}}' if command == "CHECK" else CONF)
        assert code_of(await client.reply()) == 8


async def test_version_is_answered_by_the_server_itself(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        reply = await (await world.ask({"CNI_COMMAND": "VERSION"}, b"")).reply()
        assert reply is not None
        assert json.loads(reply.body)["supportedVersions"][-1] == "1.1.0"


async def test_status_goes_to_the_handler(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        world.handler.act = lambda _request, call: call.reply()
        assert await (await world.ask(STATUS)).reply() == RawReply(0, b"")
        assert isinstance(world.handler.requests[0], StatusRequest)


async def test_a_frame_in_single_bytes_is_the_same_frame(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        client = await world.client()
        frame = encode_request(env("DEL"), CONF)
        with own_netns() as descriptor:
            await client.send(frame[:1], [descriptor])
        for place in range(1, len(frame)):
            await client.send(frame[place : place + 1])
        call = await world.handler.call(0)
        assert isinstance(world.handler.requests[0], DelRequest)
        assert call.netns_fd is not None
        assert call.reply(b"")
        assert await client.reply() == RawReply(0, b"")


async def test_the_largest_frame_arrives(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        world.handler.act = lambda _request, call: call.reply(b"ok")
        stdin = CONF + b" " * (4 * 1024 * 1024 - len(CONF))
        assert await (await world.ask(env("ADD"), stdin)).reply() == RawReply(0, b"ok")


async def test_a_client_that_hangs_up_is_seen_and_its_reply_finds_nobody(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        client = await world.ask(env("ADD"))
        call = await world.handler.call(0)
        told = asyncio.Event()
        call.on_cancel(told.set)
        client.close()
        await asyncio.wait_for(told.wait(), 5)
        assert call.cancelled
        assert call.netns_fd is not None, "a worker may still use it"
        assert not call.reply(b"late")
        call.finish()
        assert let_go(call)


async def test_a_hang_up_that_the_loop_has_not_seen_yet_is_seen_by_the_reply(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        client = await world.ask(env("ADD"))
        call = await world.handler.call(0)
        client.close()
        assert not call.reply(b"late")
        call.finish()


async def test_exactly_one_answer_wins(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        client = await world.ask(env("ADD"))
        call = await world.handler.call(0)
        outcomes = [call.reply(b"one"), call.reply(b"two"), call.fail(IOFailure("three"))]
        assert outcomes == [True, False, False]
        assert await client.reply() == RawReply(0, b"one")


async def test_a_race_of_many_threads_has_one_winner(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        client = await world.ask(env("ADD"))
        call = await world.handler.call(0)
        barrier = threading.Barrier(8)
        won = [False] * 8

        def answer(number: int) -> None:
            barrier.wait(5)
            won[number] = call.reply(b"%d" % number)

        threads = [threading.Thread(target=answer, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(won) == 1
        assert await client.reply() == RawReply(0, b"%d" % won.index(True))


async def test_a_call_that_takes_too_long_is_told_to_try_again_and_then_finds_nobody(tmp_path: Path) -> None:
    async with serving(tmp_path, deadline=0.05) as world:
        client = await world.ask(env("ADD"))
        call = await world.handler.call(0)
        assert code_of(await client.reply()) == 11
        assert not call.reply(b"late")
        call.finish()


async def test_the_same_container_waits_and_another_does_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        clients = [await world.ask(env("ADD")), await world.ask(env("ADD", ifname="eth1")), await world.ask(env("DEL"))]
        other = await world.ask(env("ADD", "other"))
        await world.handler.call(1)
        assert [call.key and call.key.container_id for call in world.handler.calls] == ["abc", "other"]
        world.handler.calls[1].reply(b"other")
        assert await other.reply() == RawReply(0, b"other")
        for number, place in enumerate((0, 2, 3)):
            call = await world.handler.call(place)
            assert len(world.handler.calls) == max(2, place + 1)
            threading.Thread(target=call.reply, args=(b"%d" % number,)).start()
            assert await clients[number].reply() == RawReply(0, b"%d" % number)


async def test_after_a_late_reply_the_next_of_the_container_waits_for_the_undoing(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        first = await world.ask(env("ADD"))
        call = await world.handler.call(0)
        first.close()
        second = await world.ask(env("DEL"))
        await await_until(lambda: call.cancelled, what="the hang-up is seen")
        assert not call.reply(b"late")
        third = await world.ask({"CNI_COMMAND": "VERSION"}, b"")
        assert await third.reply() is not None
        assert len(world.handler.calls) == 1, "the undoing isn't over"
        call.finish()
        (await world.handler.call(1)).reply(b"")
        assert await second.reply() == RawReply(0, b"")


async def test_who_hangs_up_while_waiting_is_never_handed_over(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        await world.ask(env("ADD"))
        call = await world.handler.call(0)
        impatient = await world.ask(env("ADD"))
        last = await world.ask(env("DEL"))
        await await_until(lambda: world.server.busy == 3, what="all are connected")
        impatient.close()
        await await_until(lambda: world.server.busy == 2, what="the hang-up is seen")
        call.reply(b"")
        following = await world.handler.call(1)
        assert following.verb == "DEL"
        following.reply(b"")
        assert await last.reply() == RawReply(0, b"")


async def test_a_waiting_call_has_its_own_deadline(tmp_path: Path) -> None:
    async with serving(tmp_path, deadline=0.2) as world:
        await world.ask(env("ADD"))
        call = await world.handler.call(0)
        waiting = await world.ask(env("DEL"))
        assert code_of(await waiting.reply()) == 11
        call.finish()
        last = await world.ask(env("DEL"))
        (await world.handler.call(1)).reply(b"last")
        assert await last.reply() == RawReply(0, b"last")


async def test_many_of_one_container_all_answered_at_once_come_in_their_order(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        clients = [await world.ask(env("ADD", ifname=f"eth{number}")) for number in range(20)]
        first = await world.handler.call(0)
        world.handler.act = lambda _request, call: call.reply(b"%s" % str(call.key).encode())
        await await_until(lambda: world.server.busy == 20, what="all are connected")
        first.reply(b"abc:eth0")
        bodies = [await client.reply() for client in clients]
        assert bodies == [RawReply(0, b"abc:eth%d" % number) for number in range(20)]
        assert [str(call.key) for call in world.handler.calls] == [f"abc:eth{number}" for number in range(20)]


async def test_on_done_runs_once_when_the_client_is_gone(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        done: list[int] = []

        def act(_request: Request, call: Call) -> None:
            call.on_done(lambda: done.append(1))
            call.reply(b"")

        world.handler.act = act
        client = await world.ask(env("ADD"))
        assert await client.reply() == RawReply(0, b"")
        client.close()
        await await_until(lambda: done, what="the callback runs")
        await world.quiet()
        assert done == [1]


async def test_500_at_once_are_all_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        pool: list[threading.Thread] = []

        def act(_request: Request, call: Call) -> None:
            pool.append(threading.Thread(target=call.reply, args=(str(call.key).encode(),)))
            pool[-1].start()

        world.handler.act = act

        async def one(number: int) -> RawReply | None:
            return await (await world.ask(env("ADD", f"c{number}"))).reply(20)

        replies = await asyncio.gather(*(one(number) for number in range(500)))
        assert replies == [RawReply(0, b"c%d:eth0" % number) for number in range(500)]


@pytest.mark.parametrize("start", [b"", b"F", encode_request(env("ADD"), CONF)[:-1]])
async def test_half_a_frame_is_closed_at_its_deadline(tmp_path: Path, start: bytes) -> None:
    async with serving(tmp_path, read_deadline=0.05) as world:
        client = await world.client()
        with own_netns() as descriptor:
            await client.send(start, [descriptor] if start else [])
        assert code_of(await client.reply()) == 6
        assert await client.reply() is None
        assert not world.handler.calls


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", struct.pack("<4sII", b"FLK1", 2**31, 0), encode_request(STATUS, CONF) + b"more"]
)
async def test_garbage_is_code_6_and_the_end(tmp_path: Path, data: bytes) -> None:
    async with serving(tmp_path) as world:
        client = await world.client()
        await client.send(data)
        assert code_of(await client.reply()) == 6
        assert await client.reply() is None


@pytest.mark.parametrize("count", [2, 3, 10])
async def test_more_than_one_descriptor_is_refused_and_all_are_closed(tmp_path: Path, count: int) -> None:
    async with serving(tmp_path) as world:
        client = await world.client()
        with own_netns() as descriptor:
            await client.ask(env("ADD"), CONF, [descriptor] * count)
        assert code_of(await client.reply()) == 6


async def test_descriptors_in_two_messages_are_refused_and_closed(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        client = await world.client()
        frame = encode_request(env("ADD"), CONF)
        with own_netns() as descriptor:
            await client.send(frame[:10], [descriptor])
            await client.send(frame[10:], [descriptor])
        assert code_of(await client.reply()) == 6


async def test_bytes_after_the_request_end_the_call(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        client = await world.ask(env("ADD"))
        call = await world.handler.call(0)
        with own_netns() as descriptor:
            await client.send(b"x", [descriptor])
        await await_until(lambda: call.cancelled, what="the call is cancelled")
        assert not call.reply(b"late")
        call.finish()


async def test_a_client_that_never_closes_is_closed(tmp_path: Path) -> None:
    async with serving(tmp_path, deadline=0.05) as world:
        world.handler.act = lambda _request, call: call.reply(b"")
        client = await world.ask(env("ADD"))
        assert await client.reply() == RawReply(0, b"")
        await await_until(lambda: world.server.busy == 0, what="the server closes")


async def test_out_of_descriptors_it_pauses_and_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        world.handler.act = lambda _request, call: call.reply(b"ok")
        client = CniClient(world.path)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        try:
            await client.connect()
            await client.ask(STATUS, CONF)
            with pytest.raises(TimeoutError):
                await client.reply(0.15)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert await client.reply() == RawReply(0, b"ok")
        client.close()


async def test_queries_are_answered_whole_however_large(tmp_path: Path) -> None:
    big = os.urandom(1 << 20) * 8

    async def query(name: str, body: bytes) -> bytes:
        await asyncio.sleep(0)
        return name.encode() + body + big

    async with serving(tmp_path, query=query) as world:
        reply = await (await world.ask({"FLOCK_QUERY": "pods"}, b"?")).reply()
        assert reply == RawReply(0, b"pods?" + big)


async def test_a_query_that_finds_nobody_leaves_no_descriptor(tmp_path: Path) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def query(_name: str, _body: bytes) -> bytes:
        asked.set()
        await go_on.wait()
        return b"late"

    async with serving(tmp_path, query=query) as world:
        client = await world.client()
        with own_netns() as descriptor:
            await client.ask({"FLOCK_QUERY": "x"}, b"", [descriptor])
        await asyncio.wait_for(asked.wait(), 5)
        await world.quiet()
        before = descriptors()
        go_on.set()
        await await_until(lambda: descriptors() == before - 1, what="the descriptor that came along is closed")


@pytest.mark.parametrize(("fault", "code"), [(InvalidEnvironment("no such query"), 4), (KeyError("x"), 100)])
async def test_a_query_that_fails_is_an_error(tmp_path: Path, fault: Exception, code: int) -> None:
    def query(_name: str, _body: bytes) -> bytes:
        raise fault

    async with serving(tmp_path, query=query) as world:
        assert code_of(await (await world.ask({"FLOCK_QUERY": "x"}, b"")).reply()) == code


async def test_the_socket_is_for_root_alone_and_replaces_a_stale_one(tmp_path: Path) -> None:
    (tmp_path / "agent.sock").write_text("left over")
    async with serving(tmp_path) as world:
        assert world.path.is_socket()
        assert world.path.stat().st_mode & 0o777 == 0o600
        assert os.listdir(tmp_path) == ["agent.sock"]
    assert os.listdir(tmp_path) == []


async def test_a_successors_socket_is_left_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as old:
        successor = CniServer(old.path, old.handler, asyncio.get_running_loop())
        successor.start()
        old.server.stop_accepting()
        assert old.path.is_socket()
        await successor.close()
        assert not old.path.exists()


async def test_a_folder_that_is_missing_is_an_io_failure(tmp_path: Path) -> None:
    server = CniServer(tmp_path / "none" / "agent.sock", Recorder(), asyncio.get_running_loop())
    with pytest.raises(IOFailure, match="can't listen"):
        server.start()


async def test_stopping_lets_running_calls_finish(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        client = await world.ask(env("ADD"))
        call = await world.handler.call(0)
        closing = asyncio.create_task(world.server.close(grace=5))
        await await_until(lambda: not world.path.exists(), what="it stopped accepting")
        call.reply(b"done")
        assert await client.reply() == RawReply(0, b"done")
        client.close()
        await closing


async def test_stopping_cancels_who_does_not_finish(tmp_path: Path) -> None:
    async def query(_name: str, _body: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with serving(tmp_path, query=query) as world:
        asking = await world.ask({"FLOCK_QUERY": "x"}, b"")
        adding = await world.ask(env("ADD"))
        call = await world.handler.call(0)
        await world.server.close(grace=0.01)
        assert call.cancelled
        assert not call.reply(b"")
        call.finish()
        assert await adding.reply() is None
        assert await asking.reply() is None
