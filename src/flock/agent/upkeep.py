"""The agent as a writer to the Kubernetes API: its Node's condition (R6), its NodeConfig's status, Events.

Three loops, so that none waits for another: each reads what is, writes what differs, and tries again for ever. Nothing
of it is in the way of a pod: a refusal is noted after its answer and told later. Imported only where there is an API.

Invariant: only this node's objects are written, and only what is flock's of them (``flock.cluster.writes``).

If the process dies on any line: what was written stays; the next start reads the status and writes what differs. Events
that were not written are lost, and kubelet's own says the same.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from flock.agent.conditions import (
    NETWORK_UNAVAILABLE,
    Condition,
    FamilyUse,
    conditions_of,
    node_condition,
    repeated,
)
from flock.agent.event_log import Subject
from flock.agent.logs import ctx
from flock.agent.loop import Loop
from flock.agent.node_status import build_status, differs, essence
from flock.agent.peers_status import peers_status
from flock.agent.refusals import event_reason
from flock.agent.state import NodeState
from flock.agent.telling import Telling
from flock.api.names import API_VERSION
from flock.api.node_config import NodeConfig
from flock.api.overlaps import Overlap, find_overlaps, usable
from flock.cluster.errors import ApiNotFound
from flock.cluster.writes import ApiWrites
from flock.cni.requests import PodArgs
from flock.errors import FlockError
from flock.model.family import FAMILIES
from flock.model.times import rfc3339
from flock.routing.bird_protocol import SessionState

CONDITION_SHORTEST = 1.0
"""A writer that says otherwise each time is answered once a second, not in circles."""
CONDITION_GAP = 30.0
STATUS_SHORTEST = 2.0
STATUS_GAP = 15.0
COUNTS_GAP = 30.0
"""Every write of a NodeConfig is told to every agent: counts alone aren't worth more than two a minute and node."""
PATIENCE = {"BirdConfigured": 30.0}
"""Seconds for which a condition must be bad to be worth an Event: BIRD starts after the agent, and restarts."""
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

    @property
    def trouble(self) -> str | None:
        """Why it doesn't run with what it should; None where nobody has looked yet."""


class Written(NamedTuple):
    """The NodeConfig whose status is known, that status, and when it was written (monotonic)."""

    uid: str | None = None
    status: Mapping[str, object] | None = None
    at: float = float("-inf")


class Upkeep:
    """One node's writes. ``loops`` are its loops by name; the rest is for whoever pokes them."""

    def __init__(self, state: NodeState, bird: Peers, writes: ApiWrites) -> None:
        self._state = state
        self._bird = bird
        self._writes = writes
        self._telling = Telling(state.node, writes, state.clock, state.metrics)
        self._said: Condition | None = None
        self._written = Written()
        self._bad: dict[Condition, float] | None = None
        self._told: set[Condition] = set()

    def loops(self) -> dict[str, Loop]:
        return {
            "node-condition": Loop(self.keep_condition, CONDITION_SHORTEST, CONDITION_GAP),
            "status": Loop(self.keep_status, STATUS_SHORTEST, STATUS_GAP),
            "events": Loop(self._telling.run, EVENTS_SHORTEST, EVENTS_GAP),
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
        """Conditions, addresses and peers as they are. What somebody waits for is written at once, counts with it or
        after a while, and nothing where nothing differs.
        """
        config = self._state.view.node_config(self._state.node)
        if config is None or config.uid != self._written.uid:
            self._written = Written()
        if config is None or self._bird.trouble is None:
            return
        try:
            await self._write_status(config)
        except ApiNotFound:
            # It was deleted; the view hears of it in a moment.
            self._written = Written()

    async def _write_status(self, config: NodeConfig) -> None:
        last, now = self._written, self._state.clock.monotonic()
        known = await self._writes.read_status() if last.status is None else last.status
        wanted = self._wanted_status(config, known)
        if differs(wanted, known) and (essence(wanted) != essence(known) or now - last.at >= COUNTS_GAP):
            await self._writes.status(wanted)
            known, last = wanted, Written(at=now)
        self._written = Written(uid=config.uid, status=known, at=last.at)

    def _wanted_status(self, config: NodeConfig, known: Mapping[str, object]) -> dict[str, object]:
        state, bird = self._state, self._bird
        overlaps = find_overlaps(config, state.view.snapshot.node_configs.values())
        uses = self._uses(config, overlaps)
        refused = self._refused_peers(config)
        conditions = conditions_of(config, overlaps=overlaps, refused_peers=refused, uses=uses,
                                   bird_trouble=bird.trouble or "", refusal=state.view.snapshot.refusal,
                                   failing=state.failing)
        self._tell_of(config, conditions, known.get("conditions"))
        peers = peers_status(config, refused, bird.sessions, bird.trouble or "BIRD doesn't know it yet")
        return build_status(config, known, conditions=conditions, uses=uses, peers=peers, wall=state.clock.wall())

    def _uses(self, config: NodeConfig, overlaps: Sequence[Overlap]) -> Sequence[FamilyUse]:
        """Of each family that the node has; one whose every CIDR an older node gives out has nothing free."""
        allocator, now = self._state.allocator, self._state.clock.uptime()
        uses = []
        for family in FAMILIES:
            cidrs = config.spec.cidrs(family)
            if not allocator.has(family) and (not cidrs or usable(cidrs, overlaps)):
                continue
            usage = allocator.usage(family, now)
            free = max(0, usage.free)
            uses.append(FamilyUse(family=family, used=usage.used, resting=usage.quarantined,
                                  free=free if free < MANY else None))
        return uses

    def _refused_peers(self, config: NodeConfig) -> dict[str, str]:
        bad = config.spec.bgp.bad_peers if config.spec.bgp is not None else ()
        return {**{one.name: "; ".join(map(str, one.problems)) for one in bad}, **self._bird.refused}

    def _tell_of(self, config: NodeConfig, conditions: Sequence[Condition], former: object) -> None:
        """An Event for each condition that has become bad, or says something else now, not again at every start."""
        now = self._state.clock.monotonic()
        bad = [one for one in conditions if not one.good and one.type != "Ready"]
        if self._bad is None:
            self._told = {one for one in bad if isinstance(former, list) and repeated(one, former)}
        self._bad = {one: (self._bad or {}).get(one, now) for one in bad}
        self._told &= self._bad.keys()
        for one, since in self._bad.items():
            if one not in self._told and now - since >= PATIENCE.get(one.type, 0.0):
                subject = Subject(api_version=API_VERSION, kind="NodeConfig", name=config.name, uid=config.uid)
                self._telling.note(subject, one.reason, one.message)
                self._told.add(one)

    # Events

    def refused(self, pod: PodArgs, error: FlockError) -> bool:
        """An ADD was refused; True where its Event is new. In the loop's thread."""
        reason = event_reason(error)
        if reason is None or not pod:
            return False
        known = self._state.view.pod(pod.namespace, pod.name)
        subject = Subject(api_version="v1", kind="Pod", namespace=pod.namespace, name=pod.name,
                          uid=known.uid if known is not None else pod.uid)
        return self._telling.note(subject, reason, str(error))
