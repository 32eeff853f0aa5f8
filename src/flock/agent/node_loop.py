"""What follows from a change of the NodeConfig or of the node itself: the allocator and the facts of new pods (R14).

If the process dies on any line: the next start reads both anew.
"""

import asyncio
import logging
from functools import partial

from flock.agent.facts import NodeNetwork, read_node_network
from flock.agent.logs import ctx
from flock.agent.state import NodeState
from flock.agent.unserved import unserved
from flock.api.node_config import NodeConfigSpec
from flock.ipam.allocator import Allocator
from flock.ipam.random import CryptoRandom
from flock.model.family import FAMILIES
from flock.pods.plan import NodeFacts

log = logging.getLogger("flock.node")


def make_allocator(spec: NodeConfigSpec, network: NodeNetwork) -> Allocator:
    """The allocator of this node, empty."""
    return Allocator(
        cidrs={family: spec.cidrs(family) for family in FAMILIES},
        random=CryptoRandom(),
        reserved=network.addresses,
        reuse_delay=spec.reuse_delay,
    )


class NodeLoop:
    """``run`` is the action of a loop: reconfigure what changed, and only then."""

    def __init__(self, state: NodeState, spec: NodeConfigSpec, network: NodeNetwork) -> None:
        self._state = state
        self._applied = (spec, network.addresses)
        self._told: tuple[str, ...] = ()

    async def run(self) -> None:
        state = self._state
        spec = state.spec()
        if spec is None:
            return
        network = await asyncio.to_thread(read_node_network)
        facts: NodeFacts = network.facts(spec.mtu)
        if facts != state.facts:
            log.info("node changed", extra=ctx(mtu=facts.mtu))
            state.facts = facts
        if (spec, network.addresses) != self._applied:
            state.allocator.reconfigure(
                {family: spec.cidrs(family) for family in FAMILIES}, network.addresses, spec.reuse_delay
            )
            self._applied = (spec, network.addresses)
            log.info("addresses reconfigured", extra=ctx(
                cidr6=", ".join(map(str, spec.cidr6)), cidr4=", ".join(map(str, spec.cidr4))))
        self._tell(tuple(unserved(spec)))
        state.worker.post(partial(self._expire, spec.reuse_delay))

    def _tell(self, sentences: tuple[str, ...]) -> None:
        for sentence in sentences:
            if sentence not in self._told:
                log.warning("configured without effect", extra=ctx(reason=sentence))
        self._told = sentences

    def _expire(self, reuse_delay: float) -> None:
        """In the worker: remove quarantine files whose time is over; the allocator judges by time itself."""
        left = self._state.store.expire(self._state.clock.wall(), reuse_delay)
        self._state.metrics.quarantined.set(left)
