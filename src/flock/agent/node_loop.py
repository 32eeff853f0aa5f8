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
from flock.api.node_config import NodeConfig
from flock.api.overlaps import find_overlaps, usable
from flock.cluster.view import View
from flock.ipam.allocator import Allocator
from flock.ipam.random import CryptoRandom
from flock.model.family import FAMILIES, Family, Network
from flock.pods.plan import NodeFacts

log = logging.getLogger("flock.node")


def own_cidrs(view: View, config: NodeConfig) -> dict[Family, tuple[Network, ...]]:
    """What this node may hand out: its CIDRs, without what an older NodeConfig has, too."""
    overlaps = find_overlaps(config, view.snapshot.node_configs.values())
    return {family: usable(config.spec.cidrs(family), overlaps) for family in FAMILIES}


def make_allocator(view: View, config: NodeConfig | None, network: NodeNetwork) -> Allocator:
    """The allocator of this node, empty; without a NodeConfig it has nothing to give."""
    if config is None:
        return Allocator(cidrs={}, random=CryptoRandom(), reserved=network.addresses)
    return Allocator(
        cidrs=own_cidrs(view, config),
        random=CryptoRandom(),
        reserved=network.addresses,
        reuse_delay=config.spec.reuse_delay,
    )


class NodeLoop:
    """``run`` is the action of a loop: reconfigure what changed, and only then."""

    def __init__(self, state: NodeState, network: NodeNetwork) -> None:
        self._state = state
        config = state.view.node_config(state.node)
        self._applied = (own_cidrs(state.view, config), network.addresses, config.spec.reuse_delay) if config else None
        self._told: tuple[str, ...] = ()

    async def run(self) -> None:
        state = self._state
        config = state.view.node_config(state.node)
        if config is None:
            return
        spec = config.spec
        network = await asyncio.to_thread(read_node_network)
        facts: NodeFacts = network.facts(spec.mtu)
        if facts != state.facts:
            log.info("node changed", extra=ctx(mtu=facts.mtu))
            state.facts = facts
        wanted = (own_cidrs(state.view, config), network.addresses, spec.reuse_delay)
        if wanted != self._applied:
            cidrs = wanted[0]
            state.allocator.reconfigure(cidrs, network.addresses, spec.reuse_delay)
            self._applied = wanted
            log.info("addresses reconfigured", extra=ctx(
                cidr6=", ".join(map(str, cidrs[Family.IPV6])), cidr4=", ".join(map(str, cidrs[Family.IPV4]))))
        self._tell(tuple(unserved(spec)))
        state.worker.post(partial(self._expire, spec.reuse_delay))

    def _tell(self, sentences: tuple[str, ...]) -> None:
        for sentence in sentences:
            if sentence not in self._told:
                log.warning("configured without effect", extra=ctx(reason=sentence))
        self._told = sentences

    def _expire(self, reuse_delay: float) -> None:
        """In the worker: remove quarantine files whose time is over; the allocator judges by time itself."""
        left = self._state.store.expire(self._state.clock.uptime(), reuse_delay)
        self._state.metrics.quarantined.set(left)
