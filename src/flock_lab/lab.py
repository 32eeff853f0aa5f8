"""A lab: some nodes, a router between them, everything real, on one machine.

``with Lab.up("name", nodes=2) as lab:`` makes it and takes it down. Invariant: two labs share nothing, not even a
network, so several can run side by side.

If the process dies on any line, ``Lab.down(name)`` (``flockctl lab down NAME``) ends what is left and removes it.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from flock.model.family import Network
from flock.testing.wait import wait_until
from flock_lab import holder, state
from flock_lab.node import Node
from flock_lab.plan import NodePlan, link_commands, plan_node
from flock_lab.router import NAME as ROUTER
from flock_lab.router import Router
from flock_lab.state import LabError, LabRecord, ProcessMark

LEARN_DEADLINE = 30.0
_REBOOT = 30.0


class Lab:
    """A lab that is up."""

    def __init__(self, record: LabRecord, router: Router, nodes: Sequence[Node],
                 holders: Sequence[holder.Popen]) -> None:
        self.record = record
        self.router = router
        self.nodes = tuple(nodes)
        self._holders = list(holders)

    @classmethod
    def up(cls, name: str, nodes: int = 2, *, extra: Sequence[Network] = (), stay: bool = False) -> "Lab":
        """Make the hosts, cables, addresses and manifests; no daemon runs yet (``start``).

        ``extra`` are prefixes that the router takes beside the nodes' CIDRs; a lab that is to ``stay`` outlives this
        process.
        """
        plans = [plan_node(number) for number in range(1, nodes + 1)]
        record = state.create(name, nodes, None if stay else ProcessMark.of(os.getpid()))
        holders: dict[str, holder.Popen] = {}
        with contextlib.ExitStack() as undo:
            undo.callback(_collect, holders.values())
            undo.callback(state.take_down, name)
            for host in (ROUTER, *(plan.name for plan in plans)):
                holders[host] = holder.start(record, host)
            marks = {host: holder.await_ready(record, host, process) for host, process in holders.items()}
            _lay_cables(record, marks, plans)
            router = Router(record, marks[ROUTER], plans, extra)
            undo.callback(router.leave)
            router.set_up()
            members = []
            for plan in plans:
                members.append(Node(record, plan, marks[plan.name]))
                undo.callback(members[-1].leave)
                members[-1].set_up()
            undo.pop_all()
        return cls(record, router, members, tuple(holders.values()))

    @staticmethod
    def down(name: str) -> bool:
        """Take a lab down by its name, whoever made it; False where there is none. One in use is its owner's."""
        record = state.load(name)
        owner = record.owner if record else None
        if owner is not None and owner.alive and owner.pid != os.getpid():
            raise LabError(f"the lab {name} is in use by the process {owner.pid}", "end that first")
        return state.take_down(name)

    def start(self) -> None:
        """Start every daemon; when this returns the router has learned the nodes' prefixes."""
        self.router.start_bird()
        for node in self.nodes:
            node.start_agent()
        for node in self.nodes:
            node.wait_ready()
            node.start_bird()
        self.router.await_learned(*(cidr for node in self.nodes for cidr in node.plan.cidrs.values()),
                                  deadline=LEARN_DEADLINE)

    def reboot(self, number: int) -> Node:
        """End a node as a power cut does, and make it anew: its name, cable and addresses, and nothing else of it."""
        old = self.node(number)
        old.leave()
        old.mark.kill()
        # A PID namespace ends once all that was started in it is reaped.
        old.collect_ended()
        _collect([self._holders[number]])
        wait_until(lambda: not self.router.has_port(old.plan), _REBOOT, f"the end of the cable to {old.name}")
        self._holders[number] = process = holder.start(self.record, old.name)
        mark = holder.await_ready(self.record, old.name, process)
        _lay_cables(self.record, {ROUTER: self.router.mark, old.name: mark}, [old.plan])
        self.router.reconnect(old.plan)
        node = Node(self.record, old.plan, mark)
        node.set_up()
        self.nodes = tuple(node if one is old else one for one in self.nodes)
        return node

    def node(self, number: int) -> Node:
        """The node of that number; the first is 1."""
        return self.nodes[number - 1]

    def leave(self) -> None:
        """Let go of a lab that is to stay."""
        for host in (self.router, *self.nodes):
            host.leave()

    def close(self) -> None:
        """Take it down."""
        self.leave()
        state.take_down(self.record.name, reap=self._reap)
        for host in (self.router, *self.nodes):
            host.collect_ended()
        _collect(self._holders)

    def _reap(self) -> None:
        for host in (self.router, *self.nodes):
            host.reap()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def _collect(holders: Iterable[holder.Popen]) -> None:
    for process in holders:
        process.wait(10.0)


def _lay_cables(record: LabRecord, marks: dict[str, ProcessMark], plans: Sequence[NodePlan]) -> None:
    """From outside, where both ends' namespaces have a path."""
    lines = [line for plan in plans for line in link_commands(plan, f"/proc/{marks[plan.name].pid}/ns/net")]
    argv = ["nsenter", f"--net=/proc/{marks[ROUTER].pid}/ns/net", "--", "ip", "-batch", "-"]
    done = subprocess.run(argv, input="\n".join(lines) + "\n", text=True, capture_output=True, timeout=30, check=False,
                          env={**os.environ, **record.environment()})
    if done.returncode:
        raise LabError("the nodes can't be cabled", done.stderr.strip())

