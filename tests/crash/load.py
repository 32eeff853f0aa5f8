"""Twenty runtimes at once, each with a few sandboxes of its own: random verbs, and a judgement of each answer.

A runtime knows three states of a sandbox: absent, present (ADD succeeded), and doubtful (an ADD or a DEL without an
answer, or refused). The doubtful one gets DEL until one succeeds, as every runtime does it.
"""

import json
import random
import threading
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_interface
from typing import Any

from tests.crash.client import Answer, Silence, Turnstile, code_of, configuration, environment
from tests.crash.ledger import Ledger
from tests.crash.node import CrashNode
from tests.crash.probe import missing_inside

from flock.cni.frames import RawReply
from flock_lab.bare import BarePod

CLIENTS = 20
SANDBOXES = 4
TRY_AGAIN = 11
UNKNOWN = 3
TWICE = 103
PAUSE = 0.03


class State(Enum):
    """What a runtime believes of a sandbox."""

    ABSENT = "absent"
    PRESENT = "present"
    DOUBTFUL = "doubtful"


@dataclass(slots=True)
class Sandbox:
    """One sandbox of a runtime: its namespace, its container ID, and what the runtime knows."""

    pod: BarePod
    container: str
    state: State = State.ABSENT
    result: Any = None
    addresses: list[str] = field(default_factory=list)


class Runtime:
    """One client. What it does follows from its seed; what the agent makes of it doesn't."""

    def __init__(self, node: CrashNode, ledger: Ledger, turnstile: Turnstile, seed: str) -> None:
        self.name = f"runtime {seed}"
        self._node = node
        self._ledger = ledger
        self._turnstile = turnstile
        self._rng = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self.sandboxes = [self._fresh() for _ in range(SANDBOXES)]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        """Wait for its end; a runtime that never began has none."""
        if self._thread.ident is not None:
            self._thread.join(120)
            assert not self._thread.is_alive(), f"{self.name} hangs"

    def _run(self) -> None:
        while not self._stop.is_set():
            self._turnstile.enter()
            try:
                answered = self._step(self._rng.choice(self.sandboxes))
            except Exception as error:  # noqa: BLE001 - a thread's end must be seen as a violation
                self._ledger.violation(f"{self.name}: {type(error).__name__}: {error}")
                return
            finally:
                self._turnstile.leave()
            if not answered:
                self._stop.wait(PAUSE)

    def close(self) -> None:
        for sandbox in self.sandboxes:
            sandbox.pod.close()

    def _fresh(self) -> Sandbox:
        return Sandbox(BarePod.make(), self._fresh_id())

    def _fresh_id(self) -> str:
        return f"{self._rng.getrandbits(256):064x}"

    def _step(self, sandbox: Sandbox) -> bool:
        """One request; False where no agent answered."""
        chance = self._rng.random()
        match sandbox.state:
            case State.DOUBTFUL:
                return self.delete(sandbox)
            case State.ABSENT if chance < 0.05:
                return self._judge("DEL of nothing", self._node.client.delete(sandbox.container), {0})
            case State.ABSENT if chance < 0.08:
                return self._check(sandbox, {UNKNOWN})
            case State.ABSENT:
                return self.add(sandbox)
            case State.PRESENT if chance < 0.40:
                return self._check(sandbox, {0})
            case State.PRESENT if chance < 0.50:
                return self._add_twice(sandbox)
            case State.PRESENT if chance < 0.55:
                return self._delete_by_shim(sandbox)
            case State.PRESENT:
                return self.delete(sandbox)

    def add(self, sandbox: Sandbox) -> bool:
        sandbox.state = State.DOUBTFUL
        reply = self._node.client.add(sandbox.container, sandbox.pod.netns, sandbox.pod.fd)
        answered = self._judge("ADD", reply, {0})
        if not isinstance(reply, RawReply) or reply.code != 0:
            return answered
        sandbox.result = json.loads(reply.body)
        sandbox.addresses = [str(ip_interface(ip["address"]).ip) for ip in sandbox.result["ips"]]
        if len(sandbox.addresses) != 2:
            self._ledger.violation(f"ADD gave {sandbox.addresses}, not one address of each family")
        self._ledger.claim(sandbox.container, sandbox.addresses)
        if missing := missing_inside(sandbox.pod, sandbox.addresses):
            self._ledger.violation(f"ADD of {sandbox.container} succeeded and {sorted(missing)} isn't in the pod")
        sandbox.state = State.PRESENT
        return True

    def _add_twice(self, sandbox: Sandbox) -> bool:
        reply = self._node.client.add(sandbox.container, sandbox.pod.netns, sandbox.pod.fd)
        return self._judge("ADD twice", reply, {TWICE})

    def _check(self, sandbox: Sandbox, expected: set[int]) -> bool:
        result = sandbox.result or {"cniVersion": "1.1.0"}
        reply = self._node.client.check(sandbox.container, sandbox.pod.netns, sandbox.pod.fd, result)
        return self._judge("CHECK" if 0 in expected else "CHECK of nothing", reply, expected)

    def delete(self, sandbox: Sandbox) -> bool:
        """DEL, sometimes with the namespace gone before; afterwards the sandbox is another one."""
        sandbox.state = State.DOUBTFUL
        self._ledger.leave(sandbox.container)
        gone = self._rng.random() < 0.15
        if gone:
            sandbox.pod.close()
            sandbox.pod = BarePod.make()
        reply = self._node.client.delete(sandbox.container, "" if gone else sandbox.pod.netns)
        answered = self._judge("DEL", reply, {0})
        if code_of(reply) == 0:
            self._renew(sandbox, keep=self._rng.random() < 0.8)
        return answered

    def _delete_by_shim(self, sandbox: Sandbox) -> bool:
        """The real shim: its DEL succeeds without an agent too. The runtime then removes the namespace."""
        sandbox.state = State.DOUBTFUL
        self._ledger.leave(sandbox.container)
        code, body = self._node.shim(environment("DEL", sandbox.container, sandbox.pod.netns), configuration())
        self._judge("DEL by the shim", RawReply(code, body), {0})
        if code == 0:
            self._renew(sandbox, keep=False)
        return True

    def _renew(self, sandbox: Sandbox, *, keep: bool) -> None:
        if not keep:
            sandbox.pod.close()
            sandbox.pod = BarePod.make()
        # One in ten IDs comes again: runtimes without Kubernetes name their containers.
        if self._rng.random() < 0.9:
            sandbox.container = self._fresh_id()
        sandbox.state, sandbox.result, sandbox.addresses = State.ABSENT, None, []

    def _judge(self, what: str, reply: Answer, expected: set[int]) -> bool:
        """Count an answer; one that is neither expected nor "try again" is a violation."""
        if isinstance(reply, Silence):
            self._ledger.count(f"{what}: {reply.value}")
            return False
        self._ledger.count(f"{what}: ok" if reply.code in expected else f"{what}: code {reply.code}")
        if reply.code not in expected | {TRY_AGAIN}:
            self._ledger.violation(f"{what}: code {reply.code}, not {sorted(expected)}: {reply.body[:300]!r}")
        return reply.code != TRY_AGAIN
