"""Requests of one container one after the other, those of different containers side by side.

go-cni attaches a container's networks at the same time, and a runtime that lost patience sends DEL while the ADD is
still at work: neither may see the other half done. Runs in the loop's thread.

Invariant: at most one call of a container is with the handler; calls start in the order of their arrival, without those
whose client has gone or was answered at the deadline while they waited.
"""

from collections import deque
from collections.abc import Callable

from flock.cni.call import Call
from flock.cni.requests import Request
from flock.model.ids import ContainerID


class Lanes:
    """``run`` hands a request to the handler."""

    def __init__(self, run: Callable[[Request, Call], None]) -> None:
        self._run = run
        self._running: dict[ContainerID, Call] = {}
        self._waiting: dict[ContainerID, deque[tuple[Request, Call]]] = {}

    def enter(self, container: ContainerID, request: Request, call: Call) -> None:
        """Run now, or when the container's former calls are through."""
        former = self._running.get(container)
        # A call that has ended is still "running" until its connection closes: it asks no one to hop to the loop.
        if former is not None and (container in self._waiting or former.hold()):
            self._waiting.setdefault(container, deque()).append((request, call))
            return
        self._running[container] = call
        self._run(request, call)

    def leave(self, container: ContainerID, call: Call) -> None:
        """A call is through; more than once is harmless."""
        if self._running.get(container) is not call:
            return
        del self._running[container]
        waiting = self._waiting.get(container)
        while waiting:
            request, following = waiting.popleft()
            if following.answered or following.cancelled:
                following.finish()
                continue
            self._running[container] = following
            self._run(request, following)
            if not waiting or following.hold():
                break
        if not waiting:
            self._waiting.pop(container, None)

    def __len__(self) -> int:
        """How many containers have a call that isn't forgotten yet."""
        return len(self._running)
