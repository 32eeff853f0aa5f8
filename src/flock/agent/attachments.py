"""The CNI verbs as the agent serves them: one handler, called in the loop's thread, that never waits.

If the process dies on any line: see the module of each verb.
"""

import logging
import time

from flock.agent.adding import Adding
from flock.agent.checking import Checking
from flock.agent.deleting import Deleting
from flock.agent.logs import ctx
from flock.agent.source import Source
from flock.agent.state import NodeState
from flock.cni.call import Call
from flock.cni.queue import DeleteQueue
from flock.cni.requests import (
    AddRequest,
    CheckRequest,
    DelRequest,
    GcRequest,
    QueryRequest,
    Request,
    StatusRequest,
    VersionRequest,
)
from flock.cni.results import render_version
from flock.errors import FlockError, FlockFailure

log = logging.getLogger("flock.cni")


class Attachments:
    """Implements the CNI server's Handler."""

    def __init__(self, state: NodeState, deleting: Deleting, queue: DeleteQueue, source: Source) -> None:
        self._state = state
        self._source = source
        self._adding = Adding(state)
        self._deleting = deleting
        self._checking = Checking(state)
        self._queue = queue

    def handle(self, request: Request, netns_fd: int | None, call: Call) -> None:
        """Serve one request; every outcome ends the call. An ADD that is quicker than the view waits for it."""
        began = time.monotonic()
        call.on_done(lambda: self._measure(call, began))

        def then(error: FlockError | None) -> None:
            if call.cancelled:
                call.finish()
            elif error is not None:
                self._refuse(request, call, error)
            else:
                self._serve(request, netns_fd, call)

        if not (isinstance(request, AddRequest) and self._source.waits(request.args, call.deadline, then)):
            self._serve(request, netns_fd, call)

    def _serve(self, request: Request, netns_fd: int | None, call: Call) -> None:
        try:
            self._dispatch(request, netns_fd, call)
        except FlockError as error:
            self._refuse(request, call, error)
        except Exception:
            log.exception("request failed by a fault of flock", extra=ctx(verb=call.verb, key=call.key))
            call.fail(FlockFailure("flock failed", "the agent's log has the reason"))

    def _refuse(self, request: Request, call: Call, error: FlockError) -> None:
        log.warning("request refused", extra=ctx(verb=call.verb, key=call.key, code=error.code, error=error))
        call.fail(error)
        if isinstance(request, AddRequest):
            self._state.refused(request.args, error)

    def _dispatch(self, request: Request, netns_fd: int | None, call: Call) -> None:
        match request:
            case AddRequest():
                self._add(request, netns_fd, call)
            case DelRequest():
                self._deleting.begin(request, call)
            case CheckRequest():
                self._checking.begin(request, netns_fd, call)
            case GcRequest():
                self._deleting.collect(request, call)
            case StatusRequest():
                # The agent's own health alone: it answers, so it serves (ARCHITECTURE.md, "STATUS").
                call.reply()
            case VersionRequest():
                call.reply(render_version())
            case QueryRequest():
                raise FlockFailure("a query reached the CNI handler")

    def _add(self, request: AddRequest, netns_fd: int | None, call: Call) -> None:
        """A queued DEL of this container is older than its ADD: an old life that is left ends first."""
        if not (self._queue.forget(request.key) and self._state.store.known(request.key)):
            self._adding.begin(request, netns_fd, call)
            return

        def then(error: FlockError | None) -> None:
            if error is not None:
                call.fail(error)
            else:
                call.soon(lambda: self._resume(request, netns_fd, call))

        self._deleting.remove(request.key, "queued DEL", then)

    def _resume(self, request: AddRequest, netns_fd: int | None, call: Call) -> None:
        try:
            self._adding.begin(request, netns_fd, call)
        except FlockError as error:
            self._refuse(request, call, error)

    def _measure(self, call: Call, began: float) -> None:
        self._state.metrics.observe(call.verb, call.code, time.monotonic() - began)
