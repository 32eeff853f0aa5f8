"""DEL and GC: the link first, then the entry into quarantine, then the reply.

The address is free to be given again only when the link is gone, so it can never be on two pods. DEL needs neither the
API server, nor the netns, nor prevResult: the link's name is a function of container ID and interface.

If the process dies on any line: the link may be gone and the entry still there (the sweep sees it), or both are done
and the runtime, whose connection broke, sends DEL again, which finds nothing and succeeds.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial

from flock.agent.logs import ctx
from flock.agent.state import NodeState
from flock.cni.call import Call
from flock.cni.requests import DelRequest, GcRequest
from flock.errors import FlockError, FlockFailure
from flock.model.ids import AttachmentKey
from flock.model.ownership import host_ifname

Done = Callable[[FlockError | None], None]

log = logging.getLogger("flock.del")


class Deleting:
    """Serves DEL and GC, and removes attachments for the sweep and the queue."""

    def __init__(self, state: NodeState) -> None:
        self._state = state

    def begin(self, request: DelRequest, call: Call) -> None:
        """DEL: idempotent, succeeds for what was never added."""
        def done(error: FlockError | None) -> None:
            if error is not None:
                call.fail(error)
            elif not call.reply():
                call.finish()

        self.remove(request.key, "DEL", done)

    def collect(self, request: GcRequest, call: Call) -> None:
        """GC: remove what this network has and the runtime doesn't list; go on at errors and report them all (R15)."""
        doomed = self._unlisted(request)
        failures: list[str] = []
        lock, left = threading.Lock(), len(doomed)

        def done(error: FlockError | None) -> None:
            nonlocal left
            with lock:
                left -= 1
                if error is not None:
                    failures.append(str(error))
                last = left <= 0
            if last:
                answer()

        def answer() -> None:
            if failures:
                call.fail(FlockFailure(f"{len(failures)} of {len(doomed)} could not be removed", "; ".join(failures)))
            elif not call.reply():
                call.finish()

        if not doomed:
            answer()
        for key in doomed:
            self.remove(key, "GC", done)

    def _unlisted(self, request: GcRequest) -> list[AttachmentKey]:
        if request.valid is None:
            return []
        return [
            entry.key for entry in self._state.store.committed()
            if entry.network in ("", request.network) and entry.key not in request.valid
        ]

    def remove(self, key: AttachmentKey, why: str, done: Done) -> None:
        """Remove an attachment and call ``done``, once, from any thread. Callable from any thread."""
        self._state.leaving.add(key)
        self._state.worker.post(partial(self._unwire, key, why, done))

    async def removed(self, key: AttachmentKey, why: str) -> FlockError | None:
        """Remove an attachment and wait until it is gone; what went wrong, if anything did. In the loop's thread."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[FlockError | None] = loop.create_future()

        def done(error: FlockError | None) -> None:
            loop.call_soon_threadsafe(result.set_result, error)

        self.remove(key, why, done)
        return await result

    def _unwire(self, key: AttachmentKey, why: str, done: Done) -> None:
        finish = partial(self._finish, key, why, done)
        try:
            if not self._state.wiring.unwire_async(host_ifname(key), finish):
                finish(None)
        except FlockError as error:
            finish(error)

    def _finish(self, key: AttachmentKey, why: str, done: Done, error: FlockError | None) -> None:
        if error is None:
            try:
                self._release(key, why)
            except FlockError as failure:
                error = failure
            except Exception:
                log.exception("%s failed by a fault of flock", why, extra=ctx(key=key))
                error = FlockFailure("flock failed to remove the pod", "the agent's log has the reason")
        self._state.leaving.discard(key)
        done(error)
        if error is not None:
            log.warning("pod not removed", extra=ctx(key=key, why=why, error=error))

    def _release(self, key: AttachmentKey, why: str) -> None:
        now = self._state.clock.uptime()
        released = self._state.store.release(key, now)
        if released is None:
            return
        self._state.leaves(released)
        self._state.allocator.release(tuple(released.addresses()), now, released.owner)
        self._state.worker.later(lambda: log.info("pod removed", extra=ctx(pod=released.owner, key=key, why=why)))
