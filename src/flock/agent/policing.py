"""Decides policy and makes the table ``inet flock`` follow: ``post`` it what changed, or ``prepare`` what must wait.

Whoever holds the lock does all that was posted before, in order, as one change of the table: a thread of its own where
nobody else comes by, or the worker with the ADD that can't be answered before. So an ADD costs no hand-over between
threads, and a hundred at once cost few transactions. Nothing is written before ``begin``: what is known until then is
not the whole, and the table of a former agent stands. After a failure the table is observed and written anew in place.

Invariant: whoever posted with ``done`` hears, once, that the table has what he posted, or why it hasn't. The event loop
never waits for a decision: it only posts.

If the process dies on any line: the table stays as the last transaction left it, and goes on filtering.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from flock.agent.logs import ctx
from flock.errors import FlockError, FlockFailure, IOFailure, TryAgain
from flock.loops.backoff import Backoff
from flock.model.ownership import WORKER_THREAD
from flock.policy.changes import Change, Known, rewriting
from flock.policy.differences import differences
from flock.policy.explain import Direction
from flock.policy.plan import FRAME, Steps, plan_change, plan_frame, plan_ground
from flock.policy.select import Rulings
from flock.policy.world import World
from flock.system.threads import name_this_thread

Note = Callable[[Rulings], None]
Done = Callable[[FlockError | None], None]

REST = 0.05
"""Seconds. A pod that leaves changes nothing for those that stay; a thread that wakes up for each would delay the next
ADD by more than the change costs."""

PROGRAM_PATIENCE = 60.0
"""Seconds; a program has a deadline of its own, this one is for a loop that runs no more."""

RETRY = Backoff(first=0.1, factor=2.0, cap=10.0)

log = logging.getLogger("flock.policy")


class Table(Protocol):
    """The table in the kernel; see ``flock.policy.kernel``. What is no coroutine blocks."""

    def observe(self, whole: bool) -> Known: ...

    def commit(self, requests: tuple[bytes, ...]) -> None: ...

    def load(self, text: str) -> Coroutine[None, None, None]: ...

    def make(self) -> Coroutine[None, None, None]: ...

    def close(self) -> None: ...


class _Posted(NamedTuple):
    note: Note
    done: Done | None


class Policing:
    """``error`` is why the table isn't what it should be, "" where it is. Programs run in ``loop``, which must go on
    until ``stop`` has returned.
    """

    def __init__(self, table: Table, loop: asyncio.AbstractEventLoop) -> None:
        self._table = table
        self._loop = loop
        self._rulings = Rulings()
        self._posted: deque[_Posted] = deque()
        self._wake = threading.Event()
        self._urgent = threading.Event()
        self._resting = False
        self._lock = threading.Lock()
        self._ending = False
        self._begun = False
        self._sure = False
        self._looks: set[bool] = set()
        self._failures = 0
        self._thread = threading.Thread(target=self._work, name="policy", daemon=True)
        self.error = ""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write what was posted, then end the thread. The table stays."""
        self._ending = True
        self._urgent.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self._table.close()

    def post(self, note: Note, done: Done | None = None, *, urgent: bool = True) -> None:
        """Let ``note`` change the rulings, and the table follow, soon. From any thread.

        What isn't ``urgent`` waits for others: within ``REST`` seconds, or with the next ADD.
        """
        self._posted.append(_Posted(note, done))
        if urgent:
            self._urgent.set()
        if urgent or not self._resting:
            self._wake.set()

    def prepare(self, note: Note) -> Callable[[], None]:
        """Post ``note``, and have what is returned see to it, now: FlockError says why the table doesn't have it.

        ``prepare`` is for any thread, what it returns for any but the loop's. Where many are prepared, the first to see
        to his sees to all.
        """
        told: list[FlockError | None] = []
        self._posted.append(_Posted(note, told.append))
        return partial(self._see_to, told)

    def _see_to(self, told: list[FlockError | None]) -> None:
        with self._lock:
            if not told:
                self._handle()
        if told[0] is not None:
            raise told[0]

    def begin(self) -> None:
        """What was posted until now is all there is to know: write."""
        self.post(self._begin)

    def look(self, done: Done | None = None, *, whole: bool = True) -> None:
        """Compare the table with what it must be, and write it anew where it differs; not ``whole``: but for the
        elements of sets of other pods' addresses, which may be hundreds of thousands.
        """
        self.post(partial(self._look, whole), done)

    def world(self, timeout: float = 5.0) -> World:
        """What policy is judged by now; TryAgain where that can't be told for so long."""
        found: SimpleQueue[World] = SimpleQueue()
        self.post(lambda rulings: found.put(rulings.world()))
        try:
            return found.get(timeout=timeout)
        except Empty:
            raise TryAgain("policy is being written", f"for more than {timeout:g} s") from None

    def check(self, timeout: float = 10.0) -> list[str]:
        """What is wrong with the table now, in words."""
        found: SimpleQueue[list[str]] = SimpleQueue()
        self.post(lambda _: None, lambda error: found.put(
            self._differences(whole=True) if error is None else [str(error)]))
        try:
            return found.get(timeout=timeout)
        except Empty:
            return [f"policy has been being written for more than {timeout:g} s"]

    def _begin(self, _rulings: Rulings) -> None:
        self._begun = True

    def _look(self, whole: bool, _rulings: Rulings) -> None:
        self._looks.add(whole)

    def _work(self) -> None:
        name_this_thread(WORKER_THREAD)
        while not self._ending:
            self._wake.wait(RETRY.delay(self._failures) if self._failures else None)
            self._resting = True
            self._urgent.wait(REST)
            self._resting = False
            self._wake.clear()
            self._urgent.clear()
            with self._lock:
                if self._posted or self._failures:
                    self._handle()
        with self._lock:
            if self._posted:
                self._handle()

    # With the lock

    def _handle(self) -> None:
        batch = [self._posted.popleft() for _ in range(len(self._posted))]
        faults = [self._note(posted.note) for posted in batch]
        error = self._settle()
        for posted, fault in zip(batch, faults, strict=True):
            if posted.done is not None:
                posted.done(fault or error)

    def _note(self, note: Note) -> FlockError | None:
        """One that fails takes no other along."""
        try:
            note(self._rulings)
        except Exception as failure:
            log.exception("policy failed by a fault of flock")
            return FlockFailure("flock failed to decide policy", str(failure)[:200])
        return None

    def _settle(self) -> FlockError | None:
        """Let the table follow; why it doesn't."""
        if not self._begun:
            return TryAgain("policies are not known yet", "the API server hasn't listed everything")
        error: FlockError | None = None
        try:
            self._write()
        except FlockError as failure:
            error = failure
        except Exception as failure:
            log.exception("policy failed by a fault of flock")
            error = FlockFailure("flock failed to write policy", str(failure)[:200])
        self._tell(error)
        return error

    def _tell(self, error: FlockError | None) -> None:
        self._failures = 0 if error is None else self._failures + 1
        if self._failures == 1:
            # The thread may be waiting for a post.
            self._urgent.set()
            self._wake.set()
        said = "" if error is None else str(error)
        if said == self.error:
            return
        self.error = said
        if said:
            log.warning("policy can't be written, what stands stays", extra=ctx(error=said))
        else:
            log.info("policy is written again")

    def _write(self) -> None:
        """Follow the rulings; where the table can't, or isn't what it was, write all of it."""
        change = self._rulings.drain()
        if self._sure:
            # Until it is done, nobody can say what the table has.
            self._sure = False
            self._sure = self._follows(change)
        if not self._sure:
            self._write_all()
            self._sure = True

    def _follows(self, change: Change) -> bool:
        looks, self._looks = self._looks, set()
        try:
            self._apply(plan_change(change))
            what = self._differences(whole=True in looks) if looks else []
        except FlockError as error:
            what = [str(error)]
        if what:
            log.warning("policy is written anew", extra=ctx(because="; ".join(what)[:1000]))
        return not what

    def _differences(self, *, whole: bool) -> list[str]:
        try:
            return differences(self._rulings.ruleset(whole=whole), self._table.observe(whole))
        except FlockError as error:
            return [str(error)]

    def _write_all(self) -> None:
        self._await(self._table.make())
        self._apply(plan_ground())
        wanted = self._rulings.ruleset()
        self._apply(plan_change(rewriting(wanted, self._table.observe(True), FRAME)))
        self._apply(plan_frame())
        log.info("policy written", extra=ctx(
            pods=len(wanted.entries[Direction.INGRESS]), chains=len(wanted.fragments), sets=len(wanted.sets)))

    def _apply(self, steps: Steps) -> None:
        self._table.commit(steps.before)
        if steps.text:
            self._await(self._table.load(steps.text))
        self._table.commit(steps.after)

    def _await(self, program: Coroutine[None, None, None]) -> None:
        try:
            asyncio.run_coroutine_threadsafe(program, self._loop).result(PROGRAM_PATIENCE)
        except TimeoutError as error:
            raise IOFailure("nft can't be run", "the event loop is busy or has ended") from error
