"""The Kubernetes API as the agent's source, with what only an API server can do: wait for a pod, read one live.

Imported only where it is used: an agent without a cluster pays neither its time nor its memory.

If the process dies on any line: nothing is written here.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from flock.agent.bird_loop import BirdLoop
from flock.agent.event_log import EventLog, Subject
from flock.agent.logs import ctx
from flock.agent.source import LiveSource, Then
from flock.agent.state import NodeState
from flock.agent.upkeep import Upkeep
from flock.api.objects import PodView
from flock.api.peer_pod import PeerPod
from flock.cluster.client import ApiClient
from flock.cluster.credentials import in_cluster, load_kubeconfig
from flock.cluster.informer import InformerState
from flock.cluster.kube import KubeSource
from flock.cluster.view import View
from flock.cluster.watch import Change
from flock.cluster.writes import ApiWrites
from flock.cni.requests import PodArgs
from flock.errors import FlockError
from flock.system.clock import Clock

MARGIN = 1.0
"""Seconds before a call's deadline at which its wait ends, so that the reason reaches the runtime."""

log = logging.getLogger("flock.source")


class ApiSource:
    """The view of one node, watched."""

    def __init__(self, kubeconfig: Path | None, node: str, clock: Clock) -> None:
        """``kubeconfig`` None: the credentials of the pod that the agent runs in."""
        access = load_kubeconfig(kubeconfig, clock=clock) if kubeconfig is not None else in_cluster(clock=clock)
        self.client = ApiClient(access, clock)
        self._node = node
        self._clock = clock
        self._source = KubeSource(self.client, node, asyncio.get_running_loop(), clock=clock,
                                  with_policy=True, on_state=_tell)
        self._waits: set[asyncio.Task[None]] = set()

    @property
    def view(self) -> View:
        return self._source.view

    @property
    def live(self) -> LiveSource | None:
        return self

    async def tell_missing(self, error: FlockError) -> None:
        """An Event on the Node, whose description an operator reads when it doesn't become Ready."""
        node = self.view.node(self._node)
        if node is None:
            return
        events = EventLog(self._node, secrets.token_hex(8))
        subject = Subject(api_version="v1", kind="Node", name=node.name, uid=node.uid)
        events.note(subject, "NodeConfigMissing", str(error), self._clock.wall())
        writes = ApiWrites(self.client, self._node)
        for told in events.due(0.0):
            try:
                await writes.create_event(told.namespace, events.document(told))
            except FlockError as failure:
                log.warning("an Event was refused", extra=ctx(error=failure))

    def upkeep(self, state: NodeState, bird: BirdLoop) -> Upkeep:
        return Upkeep(state, bird, ApiWrites(self.client, state.node))

    def followed(self) -> Sequence[InformerState]:
        return self._source.states

    def peers(self) -> Iterable[PeerPod]:
        return self._source.peers.values()

    def subscribe_peers(self, callback: Callable[[Sequence[Change[PeerPod]]], None]) -> None:
        self._source.subscribe_peers(callback)

    async def start(self) -> None:
        await self._source.start()

    async def close(self) -> None:
        for wait in self._waits:
            wait.cancel()
        self._source.close()
        await self.client.close()

    async def listed(self) -> None:
        await self._source.listed()

    async def live_pod(self, namespace: str, name: str) -> PodView | None:
        return await self._source.live_pod(namespace, name)

    def waits(self, pod: PodArgs, deadline: float, then: Then) -> bool:
        """A pod that the runtime names must be known, by its UID, with its namespace; a nameless one has nothing."""
        if not pod or self._source.knows(pod.namespace, pod.name, pod.uid):
            return False
        wait = asyncio.ensure_future(self._wait(pod, deadline - MARGIN, then))
        self._waits.add(wait)
        wait.add_done_callback(self._waits.discard)
        return True

    async def _wait(self, pod: PodArgs, deadline: float, then: Then) -> None:
        error: FlockError | None = None
        try:
            await self._source.await_pod(pod.namespace, pod.name, pod.uid, deadline)
        except FlockError as failure:
            error = failure
        then(error)


def _tell(state: InformerState, error: FlockError | None) -> None:
    """Say once that a resource can't be followed, and why, and once that it can again."""
    if error is None:
        log.info("the API server is followed again", extra=ctx(resource=state.name, items=state.items))
    else:
        log.warning("the API server can't be followed, what is known stays", extra=ctx(
            resource=state.name, error=error))
