"""The agent is killed at any moment, and nothing is lost, given twice or left behind.

FLOCK_KILLS says how often (100 in ``make test``, 10,000 in ``make soak``), FLOCK_SEED repeats a run's choices.
"""

import os
import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from tests.crash.client import Silence, Turnstile, code_of
from tests.crash.kills import HOWS, AtCall, Kill, Timed, choose_kill
from tests.crash.ledger import Ledger
from tests.crash.load import CLIENTS, TRY_AGAIN, Runtime, Sandbox, State
from tests.crash.node import CrashNode
from tests.crash.probe import Pinger, interfaces, left_behind, missing_inside, unreadable

from flock.testing.wait import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(0)]

KILLS = int(os.environ.get("FLOCK_KILLS", "100"))
SEED = os.environ.get("FLOCK_SEED") or secrets.token_hex(4)
WALK_LIMIT = 400
GC_EVERY = 5
ENOUGH = 20
"""Violations after which a run ends early: they are one fault's."""


class Campaign:
    """One run: a node, its runtimes, and what they saw."""

    def __init__(self, node: CrashNode, seed: str, clients: int = CLIENTS) -> None:
        self.node = node
        self.ledger = Ledger()
        self.rng = random.Random(seed)
        self.turnstile = Turnstile()
        self.runtimes = [Runtime(node, self.ledger, self.turnstile, f"{seed}/{number}") for number in range(clients)]
        self._pinger = Pinger(node.node)

    @property
    def sandboxes(self) -> list[Sandbox]:
        return [sandbox for runtime in self.runtimes for sandbox in runtime.sandboxes]

    def kill_once(self, kill: Kill) -> None:
        """One life of an agent under load, to its end."""
        self.node.start(kill if isinstance(kill, AtCall) else None)
        if isinstance(kill, Timed) and kill.serving:
            self.node.await_serving()
        if isinstance(kill, Timed):
            self.node.await_death(kill.seconds)
        if isinstance(kill, AtCall):
            self.node.await_death(1.0)
        self.node.kill()
        by_itself = self.node.note.exists()
        if by_itself:
            self.ledger.calls[self.node.note.read_text()] += 1
        self.ledger.kills[kill.label if by_itself or isinstance(kill, Timed) else "after a second under load"] += 1

    def verify(self) -> None:
        """While no agent lives and no runtime acts: the store is readable and every pod that was added works."""
        self.turnstile.close()
        try:
            self._verify_standing()
        finally:
            self.turnstile.open()

    def _verify_standing(self) -> None:
        for name in unreadable(self.node.node):
            self.ledger.violation(f"{name} is not readable")
        present = [sandbox for sandbox in self.sandboxes if sandbox.state is State.PRESENT]
        for sandbox in present:
            for address in missing_inside(sandbox.pod, sandbox.addresses):
                self.ledger.violation(f"{address} of {sandbox.container} isn't in its pod")
        for address in self._pinger.silent(address for sandbox in present for address in sandbox.addresses):
            self.ledger.violation(f"{address} doesn't answer")
        self.ledger.done["pods looked at"] += len(present)

    def collect(self) -> None:
        """GC with all that the runtimes have, also what they doubt; if no agent answers, it is asked again later."""
        self.turnstile.close()
        try:
            known = [sandbox.container for sandbox in self.sandboxes if sandbox.state is not State.ABSENT]
            reply = self.node.client.collect(known)
        finally:
            self.turnstile.open()
        code = code_of(reply)
        self.ledger.count(f"GC: {reply.value if isinstance(reply, Silence) else code or 'ok'}")
        if code not in (0, TRY_AGAIN, None):
            self.ledger.violation(f"GC: {reply}")

    def finish(self) -> None:
        """DEL of everything, one GC: nothing may be left."""
        self.node.start()
        assert self.node.await_serving(), self.node.log_end()
        for runtime in self.runtimes:
            runtime.stop()
        for runtime in self.runtimes:
            runtime.join()
        self.verify()
        for runtime in self.runtimes:
            for sandbox in runtime.sandboxes:
                wait_until(partial(runtime.delete, sandbox), 10, "a DEL")
        reply = self.node.client.collect([])
        if code_of(reply) != 0:
            self.ledger.violation(f"the last GC: {reply}")
        for thing in left_behind(self.node.node):
            self.ledger.violation(f"left behind: {thing}")
        for sandbox in self.sandboxes:
            if names := interfaces(sandbox.pod):
                self.ledger.violation(f"left in a pod: {sorted(names)}")
        if self.node.stop() != 0:
            self.ledger.violation(f"the agent's graceful end: {self.node.agent.returncode}")

    def check_log(self) -> None:
        """What an agent must never say, whatever happened to its predecessor."""
        log = self.node.take_log()
        if "Traceback" in log:
            start = log.index("Traceback")
            self.ledger.violation(f"the agent's log has a traceback: {log[start - 300:start + 1500]}")

    def close(self) -> None:
        for runtime in self.runtimes:
            runtime.stop()
        for runtime in self.runtimes:
            runtime.join()
            runtime.close()
        self._pinger.close()


@contextmanager
def campaign(seed: str, clients: int = CLIENTS) -> Iterator[Campaign]:
    with CrashNode.up() as node:
        run = Campaign(node, seed, clients)
        try:
            yield run
        finally:
            run.close()


def test_killed_under_load_nothing_is_lost_doubled_or_left(capsys: pytest.CaptureFixture[str]) -> None:
    with campaign(SEED) as run:
        for runtime in run.runtimes:
            runtime.start()
        for number in range(KILLS):
            run.kill_once(choose_kill(run.rng))
            run.verify()
            run.check_log()
            if number % GC_EVERY == 0 and len(run.ledger.violations) < ENOUGH:
                run.node.start()
                run.node.await_serving()
                run.collect()
                run.node.kill()
                run.ledger.kills["after a GC"] += 1
            if len(run.ledger.violations) >= ENOUGH:
                break
        run.finish()
        run.check_log()
        report(run, capsys)


def test_killed_at_each_call_that_writes(capsys: pytest.CaptureFixture[str]) -> None:
    """One story (a start, ADD, DEL, ADD, GC), told again and again, each time ended one call later."""
    survived = False
    with campaign(SEED, clients=1) as run:
        for number in range(1, WALK_LIMIT):
            how = run.rng.choice(HOWS)
            run.node.start(AtCall(number=number, how=how))
            tell_story(run)
            survived = not run.node.note.exists()
            run.node.kill()
            if not survived:
                run.ledger.kills[f"{how} a call"] += 1
                run.ledger.calls[run.node.note.read_text()] += 1
            run.verify()
            run.check_log()
            if survived or len(run.ledger.violations) >= ENOUGH:
                break
        assert survived, f"the story has more than {WALK_LIMIT} calls that write"
        run.finish()
        run.check_log()
        report(run, capsys)


def tell_story(run: Campaign) -> None:
    """Goes on as far as the agent lives."""
    runtime = run.runtimes[0]
    if not run.node.await_serving():
        return
    for sandbox in runtime.sandboxes:
        if sandbox.state is not State.ABSENT:
            runtime.delete(sandbox)
    first, second, *_ = runtime.sandboxes
    runtime.add(first)
    runtime.add(second)
    runtime.delete(first)
    if first.state is State.ABSENT and second.state is State.PRESENT:
        run.collect()
        runtime.add(first)


def report(run: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nseed {SEED}: {run.ledger.table()}")
    assert not run.ledger.violations, "\n".join([f"FLOCK_SEED={SEED}", *run.ledger.violations[:ENOUGH]])
