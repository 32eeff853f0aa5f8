"""DELs that the shim wrote down while no agent answered: carried out before the agent serves, and while it runs.

An entry holds the netns inode that the runtime meant. Runtimes without Kubernetes use a container ID again, so an entry
whose inode isn't the attachment's is of an older life and is dropped.

If the process dies on any line: an entry is removed after its DEL is done, so it is done once more, which is harmless.
"""

import logging

from flock.agent.deleting import Deleting
from flock.agent.logs import ctx
from flock.cni.queue import DeleteQueue, QueuedDelete
from flock.ipam.store import Store

log = logging.getLogger("flock.queue")


class Drain:
    """Empties the queue."""

    def __init__(self, queue: DeleteQueue, store: Store, deleting: Deleting) -> None:
        self._queue = queue
        self._store = store
        self._deleting = deleting

    async def run(self) -> int:
        """Carry out what is queued; how many. One that fails stays for the next time (R15)."""
        if not self._queue.changed():
            return 0
        entries = self._queue.read()
        for entry in entries:
            if self._of_older_life(entry):
                log.info("queued DEL is of an older life", extra=ctx(key=entry.request.key))
                self._queue.remove(entry)
            elif await self._carry_out(entry):
                self._queue.remove(entry)
        return len(entries)

    def _of_older_life(self, entry: QueuedDelete) -> bool:
        known = self._store.get(entry.request.key)
        inode = entry.request.netns_inode
        return known is not None and 0 not in (inode, known.netns_inode) and inode != known.netns_inode

    async def _carry_out(self, entry: QueuedDelete) -> bool:
        error = await self._deleting.removed(entry.request.key, "queued DEL")
        if error is None:
            log.info("queued DEL done", extra=ctx(key=entry.request.key))
        return error is None
