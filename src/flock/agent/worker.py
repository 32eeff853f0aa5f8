"""The one thread that touches store and kernel on the CNI path, in the order in which work was posted.

The event loop must never wait for the kernel's RTNL lock, which others hold for tens of milliseconds (a namespace's
teardown); a thread of our own costs one hand-over, and answering from it saves the way back. What nobody waits for (a
log line) comes when nothing else is left, so that a hundred pods that start at once don't wait for each other's.

If the process dies on any line: jobs under way are what the store's pending files say; queued ones left no trace.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

from flock.model.ownership import WORKER_THREAD
from flock.system.threads import name_this_thread

Job = Callable[[], None]

LATER_LIMIT = 1000
"""Jobs that may wait for a quiet moment; beyond it they are done in turn."""

log = logging.getLogger("flock.worker")


class _Posted(NamedTuple):
    job: Job
    urgent: bool


class Worker:
    """A thread with a queue. Unbounded: each job belongs to a connection, and connections are bounded."""

    def __init__(self, name: str) -> None:
        self._posted: SimpleQueue[_Posted | None] = SimpleQueue()
        self._later: deque[Job] = deque()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, job: Job) -> None:
        """Run ``job`` in the thread, after all that was posted before. From any thread."""
        self._posted.put(_Posted(job, urgent=True))

    def later(self, job: Job) -> None:
        """Run ``job`` in the thread once it has nothing else to do. From any thread."""
        self._posted.put(_Posted(job, urgent=False))

    def stop(self) -> None:
        """Finish what was posted, then end the thread."""
        self._posted.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        name_this_thread(WORKER_THREAD)
        while True:
            if self._later and (self._posted.empty() or len(self._later) > LATER_LIMIT):
                _do(self._later.popleft())
                continue
            posted = self._posted.get()
            if posted is None:
                break
            if posted.urgent:
                _do(posted.job)
            else:
                self._later.append(posted.job)
        for job in self._later:
            _do(job)


def _do(job: Job) -> None:
    try:
        job()
    except Exception:
        log.exception("a job of the worker failed")
