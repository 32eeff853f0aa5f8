"""The start: what the former agent left, joined with what the kernel has, before anything is served.

If the process dies on any line: each step is idempotent and starts from files and marks, so the next start does it all
again.
"""

import asyncio
import contextlib
import logging

from flock.agent.left_behind import all_cidrs, find_left_behind
from flock.agent.logs import ctx
from flock.agent.recovery import Recovery, decide_recovery
from flock.agent.source import LiveSource
from flock.agent.state import NodeState
from flock.cluster.view import View
from flock.errors import FlockError, NodeConfigMissing
from flock.ipam.store import Loaded
from flock.model.attachment import Attachment
from flock.model.family import Address
from flock.model.ids import AttachmentKey, ContainerID, IfName
from flock.model.ownership import PROTO_ANNOUNCED, host_ifname
from flock.pods.observe import ObservedLink, host_differences

NODE_CONFIG_PATIENCE = 60.0
RESTART_PATIENCE = 10.0
"""The same, where an agent has served before: its life sign is good for a minute."""
LIST_PATIENCE = 20.0

log = logging.getLogger("flock.start")


async def await_node_config(view: View, node: str, patience: float | None = None, *, served: bool = False) -> None:
    """Wait for this node's NodeConfig (R2); NodeConfigMissing names it when it doesn't come.

    A node that was ``served`` before isn't kept waiting for what is known not to be there.
    """
    seconds = patience if patience is not None else RESTART_PATIENCE if served else NODE_CONFIG_PATIENCE
    decided = asyncio.Event()
    loop = asyncio.get_running_loop()

    def look() -> None:
        if view.node_config(node) is not None or (served and view.complete):
            loop.call_soon_threadsafe(decided.set)

    unsubscribe = view.subscribe(look)
    look()
    if view.node_config(node) is None:
        log.info("waiting for the NodeConfig", extra=ctx(node=node, seconds=seconds))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await decided.wait()
    unsubscribe()
    if view.node_config(node) is None:
        raise _missing(view, node, seconds)


def _missing(view: View, node: str, patience: float) -> NodeConfigMissing:
    if view.snapshot.refusal:
        return NodeConfigMissing(f"NodeConfig {node} can't be used", view.snapshot.refusal)
    if view.complete:
        return NodeConfigMissing(f"NodeConfig {node} did not appear within {patience:g} s")
    # Who hasn't heard everything yet can't say that it isn't there.
    return NodeConfigMissing(f"NodeConfig {node} did not appear within {patience:g} s",
                             "not everything that comes before it is known yet")


async def await_listed(live: LiveSource, patience: float = LIST_PATIENCE) -> None:
    """Wait until the view is complete, so that what follows is quick; a slow API server doesn't keep pods waiting."""
    try:
        async with asyncio.timeout(patience):
            await live.listed()
    except TimeoutError:
        log.warning("the API server has not listed everything yet", extra=ctx(seconds=patience))


def likely_attachment(state: NodeState) -> Attachment:
    """A pod as most are, to get ready for: the first ADD must not pay for what can be prepared."""
    key = AttachmentKey(ContainerID("0" * 64), IfName("eth0"))
    return Attachment(container_id=key.container_id, ifname=key.ifname, host_ifname=host_ifname(key),
                      ip6="2001:db8::1", ip4="192.0.2.1", mtu=state.facts.mtu)


def recover(state: NodeState, loaded: Loaded) -> Recovery:
    """Make memory, files and kernel agree. Blocking; one failure doesn't keep the rest (R15)."""
    links = state.wiring.scan()
    now = state.clock.uptime()
    recovery = decide_recovery(loaded.committed, loaded.pending, links, now)
    _report_damage(state, loaded)
    for entry in [*recovery.keep, *recovery.rebuild]:
        state.allocator.mark_in_use(*entry.addresses(), owner=entry.owner)
    state.left_behind = _announced_alone(state, recovery, links)
    for entry in loaded.released:
        for address in entry.addresses():
            state.allocator.quarantined(address, entry.released, entry.owner)
    for step in (_tear_down, _rebuild, _release_lost):
        step(state, recovery)
    _remember_links(state, links)
    _mend(state, recovery, links)
    return recovery


def _announced_alone(state: NodeState, recovery: Recovery, links: tuple[ObservedLink, ...]) -> frozenset[Address]:
    """Pods' addresses that lie in none of the node's CIDRs; without a NodeConfig what is announced stays so."""
    spec = state.spec()
    if spec is not None:
        return find_left_behind([*recovery.keep, *recovery.rebuild], all_cidrs(spec))
    return frozenset(route.dst.network_address for link in links for route in link.routes
                     if route.proto == PROTO_ANNOUNCED and route.dst.prefixlen == route.dst.max_prefixlen)


def _report_damage(state: NodeState, loaded: Loaded) -> None:
    if loaded.vanished:
        log.info("no allocations folder: a first start, or it is rebuilt from the kernel's marks")
    for damaged in loaded.damaged:
        state.metrics.damaged.inc()
        log.warning("store file moved aside", extra=ctx(path=damaged.path, reason=damaged.reason))


def _tear_down(state: NodeState, recovery: Recovery) -> None:
    for key in recovery.tear_down:
        try:
            state.wiring.unwire(host_ifname(key))
            state.store.discard(key)
            log.info("unfinished ADD torn down", extra=ctx(key=key))
        except FlockError as error:
            log.warning("unfinished ADD can't be torn down", extra=ctx(key=key, error=error))


def _rebuild(state: NodeState, recovery: Recovery) -> None:
    for entry in recovery.rebuild:
        try:
            state.store.adopt(entry)
            state.metrics.rebuilt.inc()
            log.warning("allocation rebuilt from its interface", extra=ctx(key=entry.key, ip6=entry.ip6, ip4=entry.ip4))
        except FlockError as error:
            log.warning("rebuilt allocation can't be written", extra=ctx(key=entry.key, error=error))


def _release_lost(state: NodeState, recovery: Recovery) -> None:
    now = state.clock.uptime()
    for entry in recovery.lost:
        try:
            state.store.release(entry.key, now)
            state.allocator.release(tuple(entry.addresses()), now, entry.owner)
            log.warning("allocation released: its interface is gone", extra=ctx(pod=entry.owner, key=entry.key))
        except FlockError as error:
            log.warning("lost allocation can't be released", extra=ctx(key=entry.key, error=error))


def _mend(state: NodeState, recovery: Recovery, links: tuple[ObservedLink, ...]) -> None:
    """Complete what a former agent answered for and didn't finish, and put back what was taken meanwhile."""
    by_key = {link.key: link for link in links}
    for entry in recovery.keep:
        plan = state.plan(entry)
        try:
            differences = host_differences(plan, by_key[entry.key])
            if differences:
                state.wiring.repair(plan, differences)
        except FlockError as error:
            log.warning("a pod's link can't be mended", extra=ctx(key=entry.key, error=error))


def _remember_links(state: NodeState, links: tuple[ObservedLink, ...]) -> None:
    for link in links:
        if link.key is not None and state.store.get(link.key) is not None:
            state.links[link.ifindex] = link.key
