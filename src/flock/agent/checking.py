"""CHECK: is what ADD made still there? Reports, never mends (the sweep does).

If the process dies on any line: nothing was changed.
"""

import logging
from functools import partial

from flock.agent.logs import ctx
from flock.agent.state import NodeState
from flock.cni.call import Call
from flock.cni.requests import CheckRequest, PrevResult
from flock.errors import CheckFailed, FlockError, FlockFailure, UnknownContainer
from flock.model.attachment import Attachment
from flock.model.family import parse_address

log = logging.getLogger("flock.check")


class Checking:
    """Serves CHECK; the kernel is read in the worker's thread."""

    def __init__(self, state: NodeState) -> None:
        self._state = state

    def begin(self, request: CheckRequest, netns_fd: int | None, call: Call) -> None:
        entry = self._state.store.get(request.key)
        if entry is None:
            raise UnknownContainer(f"container {request.key.container_id} has no {request.key.ifname} of flock's")
        compare_result(entry, request.prev_result)
        self._state.worker.post(partial(self._finish, entry, netns_fd, call))

    def _finish(self, entry: Attachment, netns_fd: int | None, call: Call) -> None:
        self._state.complete(entry.key)
        try:
            differences = [one for one in self._state.wiring.check(self._state.plan(entry), netns_fd) if not one.minor]
            if differences:
                raise CheckFailed(f"{entry.owner} is not as it was added", "; ".join(map(str, differences)))
        except FlockError as error:
            call.fail(error)
        except Exception:
            log.exception("CHECK failed by a fault of flock", extra=ctx(key=entry.key))
            call.fail(FlockFailure("flock failed to check the pod", "the agent's log has the reason"))
        else:
            if not call.reply():
                call.finish()


def compare_result(entry: Attachment, result: PrevResult) -> None:
    """CheckFailed where the runtime's result isn't what the store has; later plugins may have added to it."""
    index = next((i for i, link in enumerate(result.interfaces) if link.name == entry.ifname and link.sandbox), None)
    if index is None:
        raise CheckFailed(f"prevResult has no interface {entry.ifname} with a sandbox")
    listed = set()
    for ip in result.ips:
        if ip.interface in (None, index):
            try:
                listed.add(parse_address(ip.address.partition("/")[0]))
            except ValueError as error:
                raise CheckFailed(f"prevResult has a wrong address: {error}") from error
    missing = [str(address) for address in entry.addresses() if address not in listed]
    if missing:
        raise CheckFailed(f"prevResult lacks {', '.join(missing)}, which {entry.owner} was given")
