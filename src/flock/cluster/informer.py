"""One resource of the API server, followed: listed once in pages, then watched, and listed anew only when it must be.

``items`` is what the server holds, a little late. It changes in the loop's thread alone, and ``on_change`` is told each
time of what differs: an event that is replayed is no change, and a new list tells of its differences, of none, too.
Invariant: ``complete`` turns true
with the first whole list and stays; a list that breaks off in the middle changes nothing; a watch that breaks, or falls
silent, is resumed where it was; after 410, or a line that can't be read, what is gone is found by a new list. It never
gives up: every failure is in ``state``, and the next try comes after a delay that grows to a cap.

If the process dies on any line: nothing is kept; the next start lists anew.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Generic, NoReturn, Protocol, TypeVar

from flock.api.problems import printable
from flock.cluster.errors import (
    ApiForbidden,
    ApiGone,
    ApiRefused,
    ApiThrottled,
    ApiTooLarge,
    ApiUnavailable,
    ApiUnreachable,
)
from flock.cluster.lines import Oversized
from flock.cluster.resources import Resource
from flock.cluster.watch import Change, Damaged, Event, EventKind, Item, Key, Page
from flock.errors import FlockError, FlockFailure
from flock.loops.backoff import Backoff
from flock.system.clock import Clock

V = TypeVar("V")

PAGE = 500
SLICE = 50
"""Objects after which others get their turn in the loop: about half a millisecond."""

STEADY = 10.0
"""Seconds after which a watch counts as one that works: before, the delay goes on growing. So a server that lets every
list succeed and every watch fail isn't listed in circles."""

HASTY = 1.0
"""A watch that ends before is a failure, however politely it ended."""

WATCH_SECONDS = (120.0, 180.0)
"""How long a watch is asked to last; spread, so that a thousand agents don't come back at once. It is also how long a
server that has fallen silent goes unnoticed where its kernel still answers."""

RELIST_AFTER = 3
"""Refusals in a row to go on from where the watch was, after which it is given up for a new list."""

BACKOFF = Backoff(first=0.25, factor=2.0, cap=30.0)


class Api(Protocol):
    """What an informer needs of an API server."""

    async def page(self, path: str, params: Mapping[str, str], limit: int = 500, continue_: str = "") -> bytes: ...

    def watch(
        self, path: str, params: Mapping[str, str], resource_version: str, timeout: float, *,
        opened: Callable[[], None], pace: float,
    ) -> AsyncGenerator[bytes | Oversized, None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerState:
    """What health shows; times are the clock's monotonic seconds. ``failures`` are those in a row."""

    name: str
    complete: bool = False
    items: int = 0
    lists: int = 0
    watches: int = 0
    failures: int = 0
    error: str = ""
    last_heard: float | None = None
    damaged: tuple[Damaged, ...] = ()

    @property
    def healthy(self) -> bool:
        return self.complete and self.failures == 0


OnState = Callable[[InformerState, FlockError | None], None]


class Informer(Generic[V]):
    """Follows one resource. ``on_state`` is told when a row of failures begins, with the first, and when it ends."""

    def __init__(self, client: Api, resource: Resource[V], clock: Clock,
                 on_change: Callable[[Sequence[Change[V]]], None], *,
                 on_state: OnState | None = None, chance: Random | None = None) -> None:
        self._client = client
        self._resource = resource
        self._clock = clock
        self._on_change = on_change
        self._on_state = on_state or (lambda _state, _error: None)
        # Spreads agents over time; nobody gains by guessing it.
        self._random = chance or Random()  # noqa: S311
        self._items: dict[Key, V] = {}
        self._damaged: dict[Key, Damaged] = {}
        self._version = ""
        self._limit = PAGE
        self._refusals = 0
        self._streak = 0
        self._last_heard: float | None = None
        self._woken = asyncio.Event()
        self._throttled = False
        self._state = InformerState(name=resource.name)

    @property
    def items(self) -> Mapping[Key, V]:
        """What is there now; the same mapping until the next list, changed in place."""
        return self._items

    @property
    def complete(self) -> bool:
        return self._state.complete

    @property
    def lists(self) -> int:
        """How many lists were put in place."""
        return self._state.lists

    @property
    def damaged(self) -> tuple[Damaged, ...]:
        """What can't be used as it is now."""
        return tuple(self._damaged.values())

    @property
    def state(self) -> InformerState:
        return replace(self._state, items=len(self._items), damaged=self.damaged, last_heard=self._last_heard)

    async def run(self) -> NoReturn:
        """Follow until cancelled."""
        while True:
            wait = 0.0
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except FlockError as error:
                wait = self._failed(error)
            except Exception as error:  # noqa: BLE001 - what went wrong is shown, and a new list mends what is half done
                fault = FlockFailure(f"a fault of flock: {type(error).__name__}", str(error)[:300])
                fault.__cause__ = error
                self._version = ""
                wait = self._failed(fault)
            if wait:
                await self._pause(wait)

    def wake(self) -> None:
        """Try now, if it waits to try again: somebody else got an answer from the server."""
        self._woken.set()

    async def _pause(self, seconds: float) -> None:
        self._woken.clear()
        ends = [asyncio.ensure_future(self._clock.sleep(seconds))]
        if not self._throttled:
            ends.append(asyncio.ensure_future(_true(self._woken)))
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    # Listing

    async def _list(self) -> None:
        """Read every page, then put the whole in place."""
        found: dict[Key, V] = {}
        damaged: dict[Key, Damaged] = {}
        continue_ = ""
        while True:
            page = await self._page(continue_)
            for count, item in enumerate(page.items, 1):
                self._take(item, found, damaged)
                if count % SLICE == 0:
                    await asyncio.sleep(0)
            continue_ = page.continue_
            if not continue_:
                break
        if not page.resource_version:
            raise ApiUnavailable(f"{self._resource.path}: a list came without a resource version")
        self._replace(found, damaged)
        self._version = page.resource_version
        self._limit = PAGE
        self._heard()

    async def _page(self, continue_: str) -> Page[V]:
        path, params = self._resource.path, self._resource.params
        while True:
            try:
                return self._resource.reader.page(await self._client.page(path, params, self._limit, continue_))
            except ApiTooLarge:
                if self._limit == 1:
                    raise
                self._limit = max(1, self._limit // 4)
            except ApiGone:
                # The server forgot the list between two of its pages: fewer and larger ones are quicker.
                self._limit = min(self._limit * 4, 64 * PAGE)
                raise

    def _take(self, item: Item[V], found: dict[Key, V], damaged: dict[Key, Damaged]) -> None:
        """An object of a list; what is known of it stays where the new is the same, or damaged."""
        value, key = item.value, item.key
        before = self._items.get(key) if key is not None else None
        if isinstance(value, Damaged):
            damaged[key or ("", f"?{len(damaged)}")] = value
            if key is not None and before is not None:
                found[key] = before
        elif key is not None:
            found[key] = before if before is not None and before == value else value

    def _replace(self, found: dict[Key, V], damaged: dict[Key, Damaged]) -> None:
        changes = list(_differences(self._items, found))
        self._items = found
        self._damaged = damaged
        self._state = replace(self._state, complete=True, lists=self._state.lists + 1)
        self._on_change(changes)

    # Watching

    async def _watch(self) -> None:
        """Follow events until the server ends the watch."""
        self._state = replace(self._state, watches=self._state.watches + 1)
        began = self._clock.monotonic()
        seconds = self._random.uniform(*WATCH_SECONDS)
        tasks: list[asyncio.Task[None]] = []

        def opened() -> None:
            tasks.append(asyncio.ensure_future(self._stands()))

        watch = self._client.watch(self._resource.path, self._resource.params, self._version, seconds,
                                   opened=opened, pace=self._resource.pace)
        try:
            # Closed on the spot, not when the collector comes by: the connection would stay.
            async with contextlib.aclosing(watch) as lines:
                async for line in lines:
                    self._obey(self._resource.reader.line(line))
                    if self._heard() - began >= STEADY:
                        self._streak = 0
        finally:
            for task in tasks:
                task.cancel()
        lasted = self._clock.monotonic() - began
        if lasted >= STEADY:
            self._streak = 0
        if lasted < HASTY:
            raise ApiUnreachable(f"watch of {self._resource.path} ended as soon as it had begun")

    async def _stands(self) -> None:
        """A watch that was taken, and doesn't end at once, is well before its first line."""
        await self._clock.sleep(HASTY)
        self._heard()

    def _obey(self, event: Event[V]) -> None:
        match event.kind:
            case EventKind.ADDED | EventKind.MODIFIED | EventKind.DELETED:
                if event.item is not None:
                    self._apply(event.item, gone=event.kind is EventKind.DELETED)
            case EventKind.BOOKMARK:
                pass
            case EventKind.ERROR:
                assert event.status is not None
                said = f"watch of {self._resource.path}: {event.status.reason or event.status.code or 'an error'}"
                error = ApiGone if event.status.gone else ApiRefused
                raise error(said, printable(event.status.message or "", 300))
            case EventKind.LOST:
                # Something happened that only a new list can tell.
                raise ApiGone(f"watch of {self._resource.path}: {event.status and event.status.message}")
        self._version = event.resource_version or self._version

    def _apply(self, item: Item[V], *, gone: bool) -> None:
        key, value = item.key, item.value
        if key is None:
            raise ApiGone(f"watch of {self._resource.path}: an object whose name can't be told")
        before = self._items.get(key)
        healed = self._damaged.pop(key, None)
        if gone:
            self._items.pop(key, None)
            changes = [Change(key, before, None)] if before is not None else []
        elif isinstance(value, Damaged):
            self._damaged[key] = value
            healed = None if healed == value else value
            changes = []
        elif before is not None and before == value:
            changes = []
        else:
            self._items[key] = value
            changes = [Change(key, before, value)]
        if changes or healed is not None:
            self._on_change(changes)

    # Failing

    def _heard(self) -> float:
        """Note that the server speaks; the time."""
        self._refusals = 0
        self._last_heard = now = self._clock.monotonic()
        if self._state.failures:
            self._state = replace(self._state, failures=0, error="")
            self._on_state(self.state, None)
        return now

    def _failed(self, error: FlockError) -> float:
        """Note a failure; the seconds until the next try."""
        if isinstance(error, ApiGone):
            self._version = ""
        elif isinstance(error, ApiRefused) and not isinstance(error, ApiForbidden):
            self._refusals += 1
            if self._refusals >= RELIST_AFTER:
                self._version = ""
        self._streak += 1
        self._state = replace(self._state, failures=self._state.failures + 1, error=str(error))
        if self._state.failures == 1:
            self._on_state(self.state, error)
        wait = BACKOFF.delay(self._streak) * self._random.uniform(0.5, 1.0)
        self._throttled = isinstance(error, ApiThrottled)
        return max(wait, error.retry_after) if isinstance(error, ApiThrottled) else wait


async def _true(event: asyncio.Event) -> None:
    await event.wait()


def _differences(before: Mapping[Key, V], after: Mapping[Key, V]) -> Iterator[Change[V]]:
    for key, value in after.items():
        old = before.get(key)
        if old is not value:
            yield Change(key, old, value)
    for key, value in before.items():
        if key not in after:
            yield Change(key, value, None)

