"""What flockctl asks the agent over its socket: JSON answers, read-only.

If the process dies on any line: a question stays unanswered.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec

from flock import __version__
from flock.agent.bird_loop import BirdLoop
from flock.agent.masquerade_loop import MasqueradeLoop
from flock.agent.policing import Policing
from flock.agent.policy_answers import answers, parse_question, selected
from flock.agent.readiness import Readiness
from flock.agent.state import NodeState
from flock.agent.unserved import unserved
from flock.errors import FlockError, InvalidEnvironment
from flock.loops.runner import Runner
from flock.model.attachment import Attachment
from flock.model.family import Address
from flock.model.text import shown
from flock.policy.world import World
from flock.routing.summary import plan_summary

_ENCODE = msgspec.json.Encoder(enc_hook=str).encode


class Admin:
    """Answers queries; ``answer`` is the CNI server's ``query``."""

    def __init__(
        self, state: NodeState, bird: BirdLoop, masquerade: MasqueradeLoop, readiness: Readiness,
        runners: Mapping[str, Runner], *, policing: Policing, addresses: Iterable[Address],
    ) -> None:
        """``addresses`` are the node's own."""
        self._state = state
        self._bird = bird
        self._masquerade = masquerade
        self._policing = policing
        self._addresses = frozenset(address.packed for address in addresses)
        self._readiness = readiness
        self._runners = runners
        self._queries: dict[str, Callable[[bytes], Awaitable[object]]] = {
            "status": self._status, "pods": self._pods, "check": self._check, "render": self._render,
            "policy-show": self._policy_show, "policy-explain": self._policy_explain,
        }

    async def answer(self, name: str, body: bytes) -> bytes:
        """One query's answer as JSON; InvalidEnvironment for an unknown name."""
        query = self._queries.get(name)
        if query is None:
            raise InvalidEnvironment(f"FLOCK_QUERY {shown(name)} is not one of {', '.join(self._queries)}")
        return _ENCODE(await query(body))

    async def _status(self, _body: bytes) -> object:
        state = self._state
        # A BIRD that doesn't answer is told by its loop; the last known sessions are shown.
        with contextlib.suppress(FlockError):
            await self._bird.read_sessions()
        serving, _ = self._readiness.ready()
        healthy, health = self._readiness.health()
        spec = state.spec()
        return {
            "node": state.node,
            "version": __version__,
            "serving": serving,
            "healthy": healthy,
            "loops": health["loops"],
            "api": health["api"],
            "attachments": len(state.store),
            "cidr6": [str(cidr) for cidr in spec.cidr6] if spec else [],
            "cidr4": [str(cidr) for cidr in spec.cidr4] if spec else [],
            "mtu": state.facts.mtu,
            "source": {family.label: address for family, address in state.facts.source.items()},
            "router_id": self._bird.router_id(),
            "sessions": [msgspec.to_builtins(session, enc_hook=str) for session in self._bird.sessions],
            "peers_refused": self._bird.refused,
            "masquerade4": self._masquerade.described(),
            "problems": [str(problem) for problem in state.view.problems],
            "unserved": list(unserved(spec)) if spec else [],
        }

    async def _pods(self, _body: bytes) -> object:
        return [msgspec.to_builtins(entry) for entry in self._state.store.committed()]

    async def _check(self, _body: bytes) -> object:
        """Every attachment's differences of the host's side, and the node's own; empty lists where all is well."""
        def look() -> dict[str, list[str]]:
            return {str(entry.key): self._differences(entry) for entry in self._state.store.committed()}

        node = [*await asyncio.to_thread(self._masquerade.differences), *await asyncio.to_thread(self._policing.check)]
        return {"pods": await asyncio.to_thread(look), "node": node}

    async def _world(self) -> World:
        world = await asyncio.to_thread(self._policing.world)
        return msgspec.structs.replace(world, node=self._addresses)

    async def _policy_show(self, _body: bytes) -> object:
        return selected(await self._world())

    async def _policy_explain(self, body: bytes) -> object:
        return answers(await self._world(), parse_question(body))

    def _differences(self, entry: Attachment) -> list[str]:
        try:
            return [str(one) for one in self._state.wiring.check(self._state.plan(entry), None)]
        except FlockError as error:
            return [str(error)]

    async def _render(self, _body: bytes) -> object:
        """What would be written: BIRD's configuration, the summary routes, nft's table; nothing is done."""
        spec = self._state.spec()
        config = self._bird.render()
        return {
            "bird.conf": config.text if config is not None else "",
            "summaries": [f"blackhole {route.dst} proto {route.proto} metric {route.metric}"
                          for route in (plan_summary(spec) if spec is not None else ())],
            "nft": self._masquerade.rendered(),
        }
