"""The informer, on a clock of its own: pages, events, resumption, and every way in which a server can fail it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from random import Random

import pytest

from flock.api.objects import NamespaceView
from flock.cluster import resources
from flock.cluster.errors import ApiForbidden, ApiGone, ApiRefused, ApiThrottled, ApiTooLarge, ApiUnreachable
from flock.cluster.informer import BACKOFF, HASTY, PAGE, Informer, InformerState
from flock.cluster.lines import Oversized
from flock.cluster.watch import Change
from flock.errors import FlockError
from flock.testing.clock import ManualClock

END = object()
"""The server ends the watch."""

Answer = bytes | Exception
Line = bytes | Oversized | Exception | object


class ScriptedApi:
    """Answers lists with ``pages``, one after the other, and gives each watch what ``say`` says."""

    def __init__(self) -> None:
        self.pages: list[Answer] = []
        self.asked: list[tuple[int, str]] = []
        self.watched: list[str] = []
        self.paces: list[float] = []
        self.refuse_watches: list[Exception] = []
        self.gate: asyncio.Event | None = None
        self._lines: asyncio.Queue[Line] = asyncio.Queue()

    async def page(self, path: str, params: Mapping[str, str], limit: int = 500, continue_: str = "") -> bytes:
        self.asked.append((limit, continue_))
        if self.gate is not None:
            await self.gate.wait()
        answer = self.pages.pop(0) if self.pages else ApiUnreachable("nothing more is scripted")
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def watch(
        self, path: str, params: Mapping[str, str], resource_version: str, timeout: float,  # noqa: ASYNC109
        *, opened: Callable[[], None], pace: float,
    ) -> AsyncGenerator[bytes | Oversized, None]:
        self.watched.append(resource_version)
        self.paces.append(pace)
        if self.refuse_watches:
            raise self.refuse_watches.pop(0)
        opened()
        while (line := await self._lines.get()) is not END:
            if isinstance(line, Exception):
                raise line
            assert isinstance(line, (bytes, Oversized))
            yield line

    def say(self, *lines: Line) -> None:
        for line in lines:
            self._lines.put_nowait(line)


def thing(name: str, version: int = 1, **labels: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": labels, "resourceVersion": str(version)}}


def listed(*things: object, version: int = 10, continue_: str = "") -> bytes:
    metadata = {"resourceVersion": str(version), "continue": continue_}
    return json.dumps({"metadata": metadata, "items": things}).encode()


def event(kind: str, what: object) -> bytes:
    return json.dumps({"type": kind, "object": what}).encode()


def error(code: int, reason: str = "") -> bytes:
    return event("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": "m"})


class World:
    """An informer under test, and what it has told."""

    def __init__(self) -> None:
        self.api = ScriptedApi()
        self.clock = ManualClock()
        self.told: list[list[tuple[str, str]]] = []
        self.states: list[tuple[InformerState, FlockError | None]] = []
        self.informer = Informer(self.api, resources.namespaces(), self.clock, self._changed,
                                 on_state=lambda state, error: self.states.append((state, error)), chance=Random(1))
        self.disturb: Callable[[], None] | None = None

    def _changed(self, changes: Sequence[Change[NamespaceView]]) -> None:
        if self.disturb is not None:
            self.disturb()
        self.told.append([(_word(change), change.key[1]) for change in changes])

    @property
    def names(self) -> set[str]:
        return {name for _, name in self.informer.items}

    def is_complete(self) -> bool:
        return self.informer.complete

    def is_healthy(self) -> bool:
        return self.informer.state.healthy

    async def settle(self) -> None:
        await self.clock.settle()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.informer.run())
        await self.settle()
        try:
            yield
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


def _word(change: Change[NamespaceView]) -> str:
    if change.before is None:
        return "+"
    return "-" if change.after is None else "~"


@pytest.fixture
def world() -> World:
    return World()


async def test_it_is_complete_after_the_last_page_and_not_before(world: World) -> None:
    world.api.pages = [listed(thing("a"), continue_="t1"), listed(thing("b"), continue_="t2"), listed(thing("c"))]
    world.api.gate = asyncio.Event()
    async with world.running():
        assert not world.is_complete()
        assert world.told == []
        world.api.gate.set()
        await world.settle()
        assert world.is_complete()
        assert world.told == [[("+", "a"), ("+", "b"), ("+", "c")]]
        assert world.api.asked == [(PAGE, ""), (PAGE, "t1"), (PAGE, "t2")]
        assert (world.api.watched, world.api.paces) == (["10"], [0.0])


async def test_an_empty_list_is_complete_too(world: World) -> None:
    world.api.pages = [listed()]
    async with world.running():
        assert world.informer.complete
        assert world.told == [[]]


async def test_events_are_told_one_by_one(world: World) -> None:
    world.api.pages = [listed(thing("a"))]
    async with world.running():
        world.api.say(event("ADDED", thing("b")), event("MODIFIED", thing("a", x="y")), event("DELETED", thing("b")))
        await world.settle()
        assert world.told[1:] == [[("+", "b")], [("~", "a")], [("-", "b")]]
        assert world.names == {"a"}


async def test_the_same_again_is_no_change(world: World) -> None:
    world.api.pages = [listed(thing("a"))]
    async with world.running():
        world.api.say(event("ADDED", thing("a", 11)), event("MODIFIED", thing("a", 12)))
        world.api.say(event("DELETED", thing("z", 13)))
        await world.settle()
        assert world.told == [[("+", "a")]]


async def test_a_watch_that_ends_is_resumed_at_its_last_event_without_a_list(world: World) -> None:
    world.api.pages = [listed(thing("a"))]
    async with world.running():
        world.api.say(event("ADDED", thing("b", 17)))
        await world.clock.advance(120)
        world.api.say(END)
        await world.settle()
        assert world.api.watched == ["10", "17"]
        assert world.informer.state.failures == 0
        assert len(world.api.asked) == 1


async def test_a_bookmark_moves_the_point_of_resumption(world: World) -> None:
    world.api.pages = [listed(thing("a"))]
    async with world.running():
        world.api.say(event("BOOKMARK", {"metadata": {"resourceVersion": "99", "creationTimestamp": None}}))
        await world.clock.advance(120)
        world.api.say(END)
        await world.settle()
        assert world.api.watched == ["10", "99"]
        assert world.told == [[("+", "a")]]


async def test_an_unreachable_server_is_asked_again_with_growing_delays_and_the_watch_resumed(world: World) -> None:
    world.api.pages = [listed(thing("a"))]
    async with world.running():
        world.api.refuse_watches = [ApiUnreachable("down")] * 20
        world.api.say(ApiUnreachable("broke"))
        await world.settle()
        assert world.informer.state.failures == 1
        assert not world.is_healthy()
        assert world.informer.complete
        await world.clock.advance(60)
        assert 5 <= len(world.api.watched) <= 12
        assert set(world.api.watched) == {"10"}
        await world.clock.advance(600)
        world.api.say(event("ADDED", thing("b", 20)))
        await world.settle()
        assert world.names == {"a", "b"}
        assert world.is_healthy()
        assert len(world.api.asked) == 1


async def test_trouble_is_told_when_it_begins_and_when_it_is_over(world: World) -> None:
    world.api.pages = [listed(thing("a"))]
    async with world.running():
        world.api.refuse_watches = [ApiUnreachable("down")] * 3
        world.api.say(ApiUnreachable("broke"))
        await world.clock.advance(60)
        world.api.say(event("ADDED", thing("b", 20)))
        await world.settle()
        (began, why), (ended, nothing) = world.states
        assert (began.failures, str(why), began.error) == (1, "broke", "broke")
        assert (ended.failures, nothing, ended.error) == (0, None, "")


async def test_a_resumed_watch_is_well_before_its_first_event_unless_it_ends_at_once(world: World) -> None:
    """A quiet resource's next line may be a bookmark, a minute away."""
    world.api.pages = [listed()]
    async with world.running():
        for _ in range(2):
            world.api.say(ApiUnreachable("broken"))
            await world.clock.advance(HASTY / 2)
        assert not world.is_healthy()
        await world.clock.advance(5)
        assert world.is_healthy()
    assert [error is None for _, error in world.states] == [False, True]


@pytest.mark.parametrize("how", ["refused", "in the stream"])
async def test_410_leads_to_a_new_list_and_its_differences_alone_are_told(world: World, how: str) -> None:
    world.api.pages = [listed(thing("a"), thing("b"), thing("c")),
                       listed(thing("a"), thing("c", x="y"), thing("d"), version=50)]
    async with world.running():
        if how == "refused":
            world.api.refuse_watches = [ApiGone("old")]
            world.api.say(END)
            await world.clock.advance(5)
        else:
            world.api.say(error(410, "Expired"))
        await world.clock.advance(5)
        assert world.told[1:] == [[("~", "c"), ("+", "d"), ("-", "b")]]
        assert world.api.watched[-1] == "50"
        assert world.informer.lists == 2


async def test_what_is_there_stays_while_a_new_list_is_read(world: World) -> None:
    world.api.pages = [listed(thing("a")), listed(thing("b"), continue_="t"), listed(thing("c"), version=50)]
    async with world.running():
        world.api.gate = asyncio.Event()
        world.api.say(error(410))
        await world.clock.advance(5)
        assert world.names == {"a"}
        assert world.informer.complete
        world.api.gate.set()
        await world.settle()
        assert world.names == {"b", "c"}


async def test_410_between_two_pages_begins_the_list_anew_with_larger_ones(world: World) -> None:
    world.api.pages = [listed(thing("a"), continue_="t"), ApiGone("expired"), listed(thing("a"), thing("b"))]
    async with world.running():
        assert not world.informer.complete
        assert world.told == []
        await world.clock.advance(1)
        assert world.names == {"a", "b"}
        assert world.api.asked == [(PAGE, ""), (PAGE, "t"), (4 * PAGE, "")]


async def test_a_page_that_is_too_large_is_asked_for_in_smaller_ones(world: World) -> None:
    world.api.pages = [ApiTooLarge("x"), ApiTooLarge("x"), listed(thing("a"), continue_="t"), listed(thing("b"))]
    async with world.running():
        assert world.names == {"a", "b"}
        assert world.api.asked == [(PAGE, ""), (PAGE // 4, ""), (PAGE // 16, ""), (PAGE // 16, "t")]


async def test_a_single_object_that_is_too_large_is_told_and_tried_again(world: World) -> None:
    world.api.pages = [ApiTooLarge("too long")] * 20
    async with world.running():
        assert world.informer.state.error == "too long"
        assert world.api.asked[-1] == (1, "")


async def test_a_list_that_breaks_off_changes_nothing_and_is_begun_anew(world: World) -> None:
    world.api.pages = [listed(thing("a"), continue_="t"), ApiUnreachable("broke"), listed(thing("b"))]
    async with world.running():
        assert world.told == []
        await world.clock.advance(1)
        assert world.told == [[("+", "b")]]


async def test_Retry_After_is_obeyed(world: World) -> None:
    world.api.pages = [ApiThrottled("busy", retry_after=30), listed(thing("a"))]
    async with world.running():
        await world.clock.advance(29)
        assert len(world.api.asked) == 1
        await world.clock.advance(2)
        assert world.informer.complete


async def test_one_that_is_woken_tries_at_once_but_not_before_Retry_After(world: World) -> None:
    world.api.pages = [*[ApiUnreachable("down")] * 12, ApiThrottled("busy", retry_after=60.0), listed(thing("a"))]
    async with world.running():
        await world.clock.advance(120)
        asked = world.informer.state.failures
        world.informer.wake()
        await world.settle()
        assert world.informer.state.failures == asked + 1
        while len(world.api.pages) > 1:
            world.informer.wake()
            await world.settle()
        world.informer.wake()
        await world.clock.advance(59)
        assert not world.is_complete()
        await world.clock.advance(2)
        assert world.is_complete()


async def test_it_never_gives_up(world: World) -> None:
    world.api.pages = [*[ApiForbidden("no", status=403)] * 100, listed(thing("a"))]
    async with world.running():
        await world.clock.advance(101 * BACKOFF.cap)
        assert world.informer.complete


async def test_a_server_that_refuses_to_go_on_for_good_is_listed_anew(world: World) -> None:
    world.api.pages = [listed(thing("a")), listed(thing("a"), version=5)]
    async with world.running():
        world.api.refuse_watches = [ApiRefused("no such version", status=400)] * 3
        world.api.say(END)
        await world.clock.advance(10)
        assert world.api.watched == ["10", "10", "10", "10", "5"]


async def test_a_server_that_lists_well_and_never_watches_is_not_listed_in_circles(world: World) -> None:
    world.api.pages = [listed(thing("a"))] * 1000
    world.api.refuse_watches = [ApiGone("old")] * 1000
    async with world.running():
        await world.clock.advance(600)
        assert len(world.api.asked) < 40


async def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_circles(world: World) -> None:
    world.api.pages = [listed(thing("a"))]
    world.api.say(*[END] * 1000)
    async with world.running():
        await world.clock.advance(600)
        assert len(world.api.watched) < 40
        assert "as soon as it had begun" in world.informer.state.error


@pytest.mark.parametrize("line", [b"nonsense", event("MOVED", thing("a")), event("ADDED", {"metadata": {}}),
                                  Oversized(b'{"type":"ADDED","object":{"x":"')])
async def test_a_line_that_tells_nothing_leads_to_a_new_list(world: World, line: bytes | Oversized) -> None:
    world.api.pages = [listed(thing("a")), listed(thing("a"), thing("b"), version=50)]
    async with world.running():
        world.api.say(line)
        await world.clock.advance(5)
        assert world.names == {"a", "b"}


async def test_a_damaged_object_keeps_its_last_good_state_and_is_told(world: World) -> None:
    world.api.pages = [listed(thing("a", x="1"), thing("b"))]
    bad = {"metadata": {"name": "a", "labels": 3, "resourceVersion": "11"}}
    async with world.running():
        good = world.informer.items["", "a"]
        world.api.say(event("MODIFIED", bad))
        await world.settle()
        assert world.informer.items["", "a"] is good
        (damaged,) = world.informer.damaged
        assert damaged.name == "Namespace a"
        assert world.told[1:] == [[]]
        world.api.say(event("MODIFIED", bad))
        await world.settle()
        assert world.told[1:] == [[]]
        world.api.say(event("MODIFIED", thing("a", x="2")), event("DELETED", thing("b")))
        await world.settle()
        assert world.informer.damaged == ()
        assert world.told[2:] == [[("~", "a")], [("-", "b")]]
        assert world.informer.state.failures == 0


async def test_a_damaged_object_that_is_deleted_is_gone(world: World) -> None:
    world.api.pages = [listed(thing("a"), {"metadata": {"name": "bad", "labels": 3}})]
    async with world.running():
        assert [one.name for one in world.informer.damaged] == ["Namespace bad"]
        world.api.say(event("DELETED", {"metadata": {"name": "bad", "labels": 3}}))
        await world.settle()
        assert world.informer.damaged == ()


async def test_an_object_that_is_damaged_in_a_new_list_keeps_its_last_good_state(world: World) -> None:
    world.api.pages = [listed(thing("a", x="1")), listed({"metadata": {"name": "a", "labels": 3}}, version=50)]
    async with world.running():
        world.api.say(error(410))
        await world.clock.advance(5)
        assert world.informer.items["", "a"].labels["x"] == "1"
        assert len(world.informer.damaged) == 1


async def test_a_fault_in_what_hears_of_changes_ends_nothing(world: World) -> None:
    world.api.pages = [listed(thing("a")), listed(thing("a"), thing("b"), version=50)]
    async with world.running():
        def fail() -> None:
            world.disturb = None
            raise RuntimeError("a fault")

        world.disturb = fail
        world.api.say(event("ADDED", thing("b", 11)))
        await world.clock.advance(5)
        assert "a fault of flock: RuntimeError" in world.states[0][0].error
        assert world.names == {"a", "b"}
        assert world.informer.state.healthy


async def test_a_long_list_lets_others_work(world: World) -> None:
    world.api.pages = [listed(*(thing(f"n{number}") for number in range(500)))]
    turns = 0

    async def other() -> None:
        nonlocal turns
        while not world.informer.complete:
            turns += 1
            await asyncio.sleep(0)

    job = asyncio.create_task(other())
    async with world.running():
        await job
    assert turns >= 10


async def test_a_clock_that_jumps_ends_nothing(world: World) -> None:
    world.api.pages = [listed(thing("a"))]
    async with world.running():
        await world.clock.advance(10_000_000)
        world.api.say(event("ADDED", thing("b")))
        await world.settle()
        assert world.names == {"a", "b"}
