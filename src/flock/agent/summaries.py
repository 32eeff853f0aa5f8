"""What BIRD announces for the node as a whole: the one owner of flock's blackhole routes (R7, R9, R10).

A pod's own route carries its protocol number from its ADD on, so pods change nothing here. Runs on events (a
NodeConfig, a kernel notice); every 2 s a thread of its own looks whether all is well, as the safety net, and wakes
nobody if so. What is right is never touched.

If the process dies on any line: some routes are right already; the next start's first run does the rest.
"""

import asyncio
import logging
import threading
from collections.abc import Callable

from flock.agent.left_behind import LeftBehind
from flock.agent.logs import ctx
from flock.agent.state import NodeState
from flock.errors import FlockError
from flock.model.ownership import PROTO_ANNOUNCED
from flock.netlink.routes import Route, RouteKind, blackhole, delete_route, dump_routes, replace_route
from flock.netlink.socket import NetlinkSocket
from flock.routing.summary import plan_summary

SAFETY_TICK = 2.0

log = logging.getLogger("flock.summaries")


class Summaries:
    """``run`` is the action of a loop; ``watch`` pokes it where the kernel differs."""

    def __init__(self, state: NodeState, left: LeftBehind) -> None:
        self._state = state
        self._left = left
        self._wanted: frozenset[Route] | None = None
        self._closed = threading.Event()

    async def run(self) -> None:
        """Make the node's summary routes what its NodeConfig says; without one they stay as they are."""
        spec = self._state.spec()
        if spec is None:
            return
        await self._left.announce()
        former = (blackhole(cidr, PROTO_ANNOUNCED) for cidr in self._left.former)
        wanted = frozenset((*plan_summary(spec), *former))
        changed = await asyncio.to_thread(ensure_summaries, wanted)
        if changed and wanted == self._wanted:
            self._state.metrics.healed.labels("summary").inc(len(changed))
            log.warning("summary routes put right", extra=ctx(routes=", ".join(changed)))
        self._wanted = wanted

    def watch(self, poke: Callable[[str], None]) -> None:
        """Look every 2 s, and when former summaries may go; ``close`` ends it."""
        self._left.settled = poke
        threading.Thread(target=self._watch, args=(poke,), name="summaries", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def _watch(self, poke: Callable[[str], None]) -> None:
        while not self._closed.wait(SAFETY_TICK):
            try:
                with NetlinkSocket() as sock:
                    observed = _observed(sock)
            except FlockError as error:
                log.warning("summary routes can't be read", extra=ctx(error=error))
                continue
            if self._wanted is not None and observed != self._wanted:
                poke("safety tick")


def ensure_summaries(wanted: frozenset[Route]) -> tuple[str, ...]:
    """Add, change and remove blackholes of flock's protocols; what was done, in words. Blocking.

    One refused route doesn't keep the others (R15); the error names all.
    """
    done: list[str] = []
    failures: list[str] = []
    with NetlinkSocket() as sock:
        observed = _observed(sock)
        kept = {(route.dst, route.metric, route.table) for route in wanted}
        stale = [route for route in observed if (route.dst, route.metric, route.table) not in kept]
        for message, route, verb in [
            *((replace_route(route), route, "set") for route in sorted(wanted - observed, key=str)),
            *((delete_route(route), route, "removed") for route in stale),
        ]:
            try:
                sock.run([message], f"blackhole {route.dst}")
                done.append(f"{route.dst} {verb}")
            except FlockError as error:
                failures.append(str(error))
    if failures:
        raise FlockError("summary routes could not be set", "; ".join(failures))
    return tuple(done)


def _observed(sock: NetlinkSocket) -> frozenset[Route]:
    return frozenset(dump_routes(sock, kind=RouteKind.BLACKHOLE))
