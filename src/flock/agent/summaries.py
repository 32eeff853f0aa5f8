"""What BIRD announces: the one owner of flock's blackhole routes and of which routes carry protocol 71 (R7, R9, R10).

Runs on events (ADD, DEL, a NodeConfig, a kernel notice) and every 2 s as the safety net. It reads what the kernel has
and writes the difference, in place, so a route that is right is never touched.

If the process dies on any line: some routes are right already; the next start's first run does the rest.
"""

import asyncio
import logging

from flock.agent.logs import ctx
from flock.agent.state import NodeState
from flock.errors import FlockError
from flock.netlink.routes import Route, RouteKind, delete_route, dump_routes, replace_route
from flock.netlink.socket import NetlinkSocket
from flock.routing.summary import plan_summary

log = logging.getLogger("flock.summaries")


class Summaries:
    """``run`` is the action of a loop."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._first = True

    async def run(self) -> None:
        """Make the node's summary routes what its NodeConfig says; without one they stay as they are."""
        spec = self._state.spec()
        if spec is None:
            return
        changed = await asyncio.to_thread(ensure_summaries, frozenset(plan_summary(spec)))
        if changed and not self._first:
            self._state.metrics.healed.labels("summary").inc(len(changed))
            log.warning("summary routes put right", extra=ctx(routes=", ".join(changed)))
        self._first = False


def ensure_summaries(wanted: frozenset[Route]) -> tuple[str, ...]:
    """Add, change and remove blackholes of flock's protocols; what was done, in words. Blocking.

    One refused route doesn't keep the others (R15); the error names all.
    """
    done: list[str] = []
    failures: list[str] = []
    with NetlinkSocket() as sock:
        observed = {route for route in dump_routes(sock) if route.kind is RouteKind.BLACKHOLE}
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
