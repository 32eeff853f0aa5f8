"""The agent as a writer to the Kubernetes API: its Node's condition (R6), its NodeConfig's status, Events.

Three loops, so that none waits for another: each reads what is, writes what differs, and tries again for ever. Nothing
of it is in the way of a pod: a refusal is noted after its answer and told later. Imported only where there is an API.

Invariant: only this node's objects are written, and only what is flock's of them (``flock.cluster.writes``).

If the process dies on any line: what was written stays; the next start reads the status and writes what differs. Events
that were not written are lost, and kubelet's own says the same.
"""

import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Protocol

from flock.agent.conditions import (
    NETWORK_UNAVAILABLE,
    Condition,
    FamilyUse,
    conditions_of,
    node_condition,
    used_addresses,
    written,
)
from flock.agent.event_log import EventLog, Subject, Told
from flock.agent.logs import ctx
from flock.agent.loop import Loop
from flock.agent.peers_status import PEERS_LIMIT, peers_status, peers_up
from flock.agent.refusals import event_reason
from flock.agent.state import NodeState
from flock.api.names import API_VERSION
from flock.api.node_config import NodeConfig
from flock.api.overlaps import find_overlaps
from flock.cluster.errors import ApiConflict, ApiNotFound, ApiRefused
from flock.cluster.writes import ApiWrites
from flock.cni.requests import PodArgs
from flock.errors import FlockError
from flock.model.family import FAMILIES
from flock.model.times import rfc3339
from flock.routing.bird_protocol import SessionState

CONDITION_GAP = 30.0
STATUS_SHORTEST = 2.0
STATUS_GAP = 30.0
EVENTS_SHORTEST = 0.5
EVENTS_GAP = 10.0
MANY = 2**32
"""From here on nobody counts free addresses."""

log = logging.getLogger("flock.upkeep")


class Peers(Protocol):
    """BIRD, as it was read last."""

    @property
    def sessions(self) -> tuple[SessionState, ...]: ...

    @property
    def refused(self) -> Mapping[str, str]: ...


class Upkeep:
    """One node's writes. ``loops`` are its loops by name; the rest is for whoever pokes them."""

    def __init__(self, state: NodeState, bird: Peers, writes: ApiWrites) -> None:
        self._state = state
        self._bird = bird
        self._writes = writes
        self._events = EventLog(state.node, secrets.token_hex(8))
        self._said: Condition | None = None
        self._status: Mapping[str, object] | None = None
        self._told: frozenset[Condition] = frozenset()

    def loops(self) -> dict[str, Loop]:
        return {
            "node-condition": Loop(self.keep_condition, 0.1, CONDITION_GAP),
            "status": Loop(self.keep_status, STATUS_SHORTEST, STATUS_GAP),
            "events": Loop(self.tell, EVENTS_SHORTEST, EVENTS_GAP),
        }

    # The Node's condition

    async def keep_condition(self) -> None:
        """NetworkUnavailable False, with what is true now, whoever wrote otherwise (R6)."""
        state = self._state
        node = state.view.node(state.node)
        wanted = node_condition(state.node, has_config=state.view.node_config(state.node) is not None)
        if node is not None and node.network_unavailable == "False" and wanted == self._said:
            return
        now = rfc3339(state.clock.wall())
        changed = {} if node is not None and node.network_unavailable == "False" else {"lastTransitionTime": now}
        await self._writes.node_condition({
            "type": NETWORK_UNAVAILABLE, "status": "False", "reason": wanted.reason, "message": wanted.message,
            "lastHeartbeatTime": now, **changed,
        })
        if changed:
            log.info("node condition set", extra=ctx(
                condition=f"{NETWORK_UNAVAILABLE}=False", was=node.network_unavailable if node is not None else ""))
        self._said = wanted

    # The NodeConfig's status

    async def keep_status(self) -> None:
        """Conditions, addresses and peers as they are; nothing is written where nothing differs."""
        config = self._state.view.node_config(self._state.node)
        if config is None:
            self._status = None
            return
        try:
            if self._status is None:
                self._status = await self._writes.read_status()
            status = self._wanted_status(config, self._status)
            if status != {key: self._status.get(key) for key in status}:
                await self._writes.status(status)
                self._status = status
        except ApiNotFound:
            # It was deleted; the view hears of it in a moment.
            self._status = None

    def _wanted_status(self, config: NodeConfig, known: Mapping[str, object]) -> dict[str, object]:
        state = self._state
        uses = self._uses()
        overlaps = find_overlaps(config, state.view.snapshot.node_configs.values())
        refused = self._refused_peers(config)
        conditions = conditions_of(config, overlaps=overlaps, refused_peers=refused, uses=uses)
        self._tell_of(config, conditions)
        former = known.get("conditions")
        peers = peers_status(config, refused, self._bird.sessions)
        return {
            "observedGeneration": config.generation,
            "conditions": written(conditions, former if isinstance(former, list) else (), config.generation,
                                  state.clock.wall()),
            "addresses": used_addresses(uses),
            "peersUp": peers_up(peers),
            "peers": peers[:PEERS_LIMIT],
        }

    def _uses(self) -> Sequence[FamilyUse]:
        allocator, now = self._state.allocator, self._state.clock.uptime()
        uses = []
        for family in FAMILIES:
            if not allocator.has(family):
                continue
            usage = allocator.usage(family, now)
            free = max(0, usage.free)
            uses.append(FamilyUse(family=family, used=usage.used, resting=usage.quarantined,
                                  free=free if free < MANY else None))
        return uses

    def _refused_peers(self, config: NodeConfig) -> dict[str, str]:
        bad = config.spec.bgp.bad_peers if config.spec.bgp is not None else ()
        return {**{one.name: "; ".join(map(str, one.problems)) for one in bad}, **self._bird.refused}

    def _tell_of(self, config: NodeConfig, conditions: Sequence[Condition]) -> None:
        """An Event for each condition that has become bad, or says something else now."""
        bad = frozenset(one for one in conditions if not one.good and one.type != "Ready")
        for one in sorted(bad - self._told, key=lambda one: one.type):
            subject = Subject(api_version=API_VERSION, kind="NodeConfig", name=config.name, uid=config.uid)
            self._events.note(subject, one.reason, one.message, self._state.clock.wall())
        self._told = bad

    # Events

    def refused(self, pod: PodArgs, error: FlockError) -> bool:
        """An ADD was refused; True where its Event is new. In the loop's thread."""
        reason = event_reason(error)
        if reason is None or not pod:
            return False
        known = self._state.view.pod(pod.namespace, pod.name)
        subject = Subject(api_version="v1", kind="Pod", namespace=pod.namespace, name=pod.name,
                          uid=known.uid if known is not None else pod.uid)
        return self._events.note(subject, reason, str(error), self._state.clock.wall())

    async def tell(self) -> None:
        """Write what waits. One that the API server refuses for good is given up, so it can't block the others."""
        clock = self._state.clock
        for told in self._events.due(clock.monotonic()):
            count = told.count
            try:
                await self._write(told)
            except ApiNotFound:
                # Its namespace is gone, or the API server has forgotten it: the next refusal begins anew.
                self._events.forget(told)
                continue
            except ApiRefused as error:
                self._events.forget(told)
                log.warning("an Event was refused", extra=ctx(event=told.reason, error=error))
                continue
            self._events.wrote(told, count, clock.monotonic())
        self._state.metrics.events_dropped.set(self._events.dropped)

    async def _write(self, told: Told) -> None:
        if told.written:
            await self._writes.repeat_event(told.namespace, self._events.name(told), self._events.changes(told))
            return
        try:
            await self._writes.create_event(told.namespace, self._events.document(told))
        except ApiConflict:
            # A former try was served and its answer lost.
            await self._writes.repeat_event(told.namespace, self._events.name(told), self._events.changes(told))
