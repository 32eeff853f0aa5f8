"""An ADD that is quicker than the watch waits here until the view has its pod, and the pod's namespace.

Annotations that come late would come too late for the pod's whole life. Invariant: what is waited for is this very
pod, by its UID, and the wait ends at its deadline, whatever the API server does.

If the process dies on any line: the runtime asks again.
"""

import asyncio
from collections.abc import Awaitable, Callable

from flock.api.objects import PodView
from flock.cluster.view import View
from flock.errors import TryAgain
from flock.system.clock import Clock

FIRST_LOOK = 1.0
"""Seconds that the watch has before the pod is read live."""

LONGEST_PAUSE = 8.0

Look = Callable[[str, str], Awaitable[str]]
"""Reads a pod and its namespace live into the view; it gives the reason why it couldn't, "" else."""


def knows(view: View, namespace: str, name: str, uid: str) -> bool:
    """Whether the view has this very pod and its namespace; an empty ``uid`` is any."""
    pod = view.pod(namespace, name)
    return (pod is not None and (not uid or uid in {pod.uid, pod.mirror_hash})
            and view.namespace(namespace) is not None)


class PodWait:
    """One wait. ``uid`` is the runtime's: a static pod's is its mirror pod's hash."""

    def __init__(self, view: View, clock: Clock, look: Look, *, namespace: str, name: str, uid: str) -> None:
        self._view = view
        self._clock = clock
        self._look = look
        self._namespace = namespace
        self._name = name
        self._uid = uid
        self._reason = ""
        self._changed = asyncio.Event()

    async def until(self, deadline: float) -> PodView:
        """The pod, once the view has it; at ``deadline`` (the clock's monotonic time) TryAgain says what is known."""
        unsubscribe = self._view.subscribe(self._changed.set)
        looking = asyncio.ensure_future(self._keep_looking())
        late = asyncio.ensure_future(self._clock.sleep(deadline - self._clock.monotonic()))
        try:
            while not self._known():
                if late.done():
                    raise self._unknown()
                await self._news(late)
        finally:
            unsubscribe()
            late.cancel()
            looking.cancel()
        pod = self._view.pod(self._namespace, self._name)
        assert pod is not None  # known
        return pod

    def _known(self) -> bool:
        return knows(self._view, self._namespace, self._name, self._uid)

    async def _news(self, late: "asyncio.Future[None]") -> None:
        """Wait for a change of the view or for the end of time."""
        self._changed.clear()
        news = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((news, late), return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()

    async def _keep_looking(self) -> None:
        pause = FIRST_LOOK
        while True:
            await self._clock.sleep(pause)
            self._reason = await self._look(self._namespace, self._name)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _unknown(self) -> TryAgain:
        what = f"pod {self._namespace}/{self._name}"
        pod = self._view.pod(self._namespace, self._name)
        if pod is not None and self._uid and self._uid not in {pod.uid, pod.mirror_hash}:
            return TryAgain(f"{what} is known with another UID", f"{pod.uid}, not {self._uid}")
        missing = what if pod is None else f"namespace {self._namespace}"
        return TryAgain(f"{missing} is not known yet", self._reason or "the API server has not told of it")
