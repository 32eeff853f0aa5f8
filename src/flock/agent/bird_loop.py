"""BIRD as the NodeConfig wants it: rendered, tried, handed over, and read back (R7, R8, R9).

Runs when a NodeConfig changes and every 10 s, to read the sessions back; equal bytes mean no reload.
Pods never cause a rendering: BIRD announces what the kernel holds. Failures are shown in health and tried again, and
stop nothing else.

If the process dies on any line: BIRD runs on with the last file that it took.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from ipaddress import IPv4Address

from flock.agent.facts import NodeNetwork
from flock.agent.left_behind import LeftBehind
from flock.agent.logs import ctx
from flock.agent.state import NodeState
from flock.errors import FlockError
from flock.routing.bird import ApplyReport, Bird, BirdState
from flock.routing.bird_config import BirdConfig, bird_inputs, render_bird
from flock.routing.bird_protocol import SessionState
from flock.routing.router_id import choose_router_id

log = logging.getLogger("flock.bird")


class BirdLoop:
    """``run`` is the action of a loop; ``sessions`` and ``refused`` are what was read last, ``trouble`` says why BIRD
    doesn't run with what it should (None before the first look); ``changed`` is called when any differs from before.
    """

    def __init__(self, state: NodeState, bird: Bird, network: NodeNetwork, left: LeftBehind) -> None:
        self._state = state
        self._left = left
        self._bird = bird
        self._network = network
        self._router_id: IPv4Address | None = None
        self.refused: Mapping[str, str] = {}
        self.sessions: tuple[SessionState, ...] = ()
        self.trouble: str | None = None
        self.changed: Callable[[str], object] = str

    def router_id(self) -> IPv4Address:
        """Fixed for the life of the process (R8): a change would restart every session."""
        if self._router_id is None:
            spec = self._state.spec()
            configured = spec.bgp.router_id if spec is not None and spec.bgp is not None else None
            chosen = choose_router_id(configured, self._network.addresses, self._state.node)
            if spec is None:
                return chosen
            self._router_id = chosen
        return self._router_id

    def render(self) -> BirdConfig | None:
        """What BIRD is to run with; None without a NodeConfig, so the last file stays."""
        config = self._state.view.node_config(self._state.node)
        if config is None:
            return None
        inputs = bird_inputs(config, self.router_id())
        inputs = replace(
            inputs, cidrs=(*inputs.cidrs, *self._left.former, *self._left.hosts),
            own_addresses=frozenset(self._network.addresses),
            sources={family: source for family, source in self._network.source.items() if source is not None},
        )
        return render_bird(inputs)

    async def run(self) -> None:
        """Hand over what changed, then read the sessions back."""
        before = self.refused, self.sessions, self.trouble
        try:
            await self._hand_over()
            await self.read_sessions()
        except FlockError as error:
            self.trouble = str(error)
            raise
        else:
            self.trouble = "" if self._bird.state is BirdState.RUNNING else "BIRD isn't running: nothing is announced"
        finally:
            if (self.refused, self.sessions, self.trouble) != before:
                self.changed("BGP sessions changed")

    async def _hand_over(self) -> None:
        """The configuration; where BIRD can't have it the sessions are read all the same."""
        await self._left.announce()
        config, hosts = self.render(), self._left.hosts
        if config is None:
            return
        try:
            self._report(await self._bird.apply(config))
            self._left.exported(hosts)
        except FlockError:
            with contextlib.suppress(FlockError):
                await self.read_sessions()
            raise

    async def read_sessions(self) -> None:
        """Look at the sessions now."""
        try:
            self.sessions = await self._bird.sessions()
        except FlockError:
            # What it said before it fell silent isn't known to be true.
            self.sessions = ()
            raise
        self._state.metrics.show_sessions(self.sessions, self._bird.state is BirdState.RUNNING)

    def _report(self, report: ApplyReport) -> None:
        if report.reloaded:
            self._state.metrics.bird_reloads.inc()
            log.info("BIRD took a configuration", extra=ctx(refused=len(report.refused)))
        for name, reason in report.refused.items():
            if self.refused.get(name) != reason:
                log.warning("peer left out", extra=ctx(peer=name, reason=reason))
        self.refused = report.refused
        self._state.metrics.peers_refused.set(len(report.refused))
