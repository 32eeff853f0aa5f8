"""The one thread that touches store and kernel on the CNI path, in the order in which work was posted.

The event loop must never wait for the kernel's RTNL lock, which others hold for tens of milliseconds (a namespace's
teardown); a thread of our own costs one hand-over, and answering from it saves the way back.

If the process dies on any line: jobs under way are what the store's pending files say; queued ones left no trace.
"""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

Job = Callable[[], None]

log = logging.getLogger("flock.worker")


class Worker:
    """A thread with a queue. Unbounded: each job belongs to a connection, and connections are bounded."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, job: Job) -> None:
        """Run ``job`` in the thread, after all that was posted before. From any thread."""
        self._jobs.put(job)

    def stop(self) -> None:
        """Finish what was posted, then end the thread."""
        self._jobs.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                log.exception("a job of the worker failed")
