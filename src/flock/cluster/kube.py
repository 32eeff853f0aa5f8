"""The Kubernetes API as the source of the view: this node's pods, all Namespaces, Nodes and NodeConfigs, watched.

Has the face of ``ManifestsFolder``, so that nothing behind the view knows where it comes from. Invariant: a snapshot is
whole, and ``complete`` means that every resource was listed once; an object that can't be used is a problem in the view
while its last good state stays. Changes that come together make one snapshot.

If the process dies on any line: nothing is written; the next start lists anew.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from flock.api.network_policy import NetworkPolicy
from flock.api.node_config import NodeConfig
from flock.api.objects import NamespaceView, NodeView, PodView
from flock.api.peer_pod import PeerPod
from flock.cluster import resources
from flock.cluster.client import ApiClient
from flock.cluster.informer import Informer, InformerState, OnState
from flock.cluster.learned import Learned
from flock.cluster.live import LiveReads
from flock.cluster.pod_wait import PodWait, knows
from flock.cluster.resources import Resource
from flock.cluster.view import SourceProblem, View
from flock.cluster.watch import Change, Damaged, Key
from flock.errors import FlockError
from flock.system.clock import Clock, SystemClock

V = TypeVar("V")
PeersChanged = Callable[[Sequence[Change[PeerPod]]], None]


class KubeSource:
    """Fills ``view`` from an API server, for the agent of ``node``.

    ``with_policy`` follows what policy needs, too: NetworkPolicies, and every pod of the cluster in a narrow form.
    """

    def __init__(self, client: ApiClient, node: str, loop: asyncio.AbstractEventLoop, *, clock: Clock | None = None,
                 with_policy: bool = False, on_state: OnState | None = None) -> None:
        self.view = View()
        self._client = client
        self._node = node
        self._loop = loop
        self._clock = clock or SystemClock()
        self._on_state = on_state
        self._live = LiveReads(client)
        self._learned_pods: Learned[PodView] = Learned()
        self._learned_namespaces: Learned[NamespaceView] = Learned()
        self._pods = self._follow(resources.pods_of(node), self._pods_changed)
        self._namespaces = self._follow(resources.namespaces(), self._namespaces_changed)
        self._nodes: Informer[NodeView] = self._follow(resources.nodes(), self._changed("nodes"))
        self._node_configs: Informer[NodeConfig] = self._follow(resources.node_configs(), self._changed("node_configs"))
        self._policies: Informer[NetworkPolicy] | None = None
        self._peers: Informer[PeerPod] | None = None
        if with_policy:
            self._policies = self._follow(resources.policies(), self._changed("policies"))
            self._peers = self._follow(resources.all_pods(), self._peers_changed)
        self._peer_subscribers: list[PeersChanged] = []
        self._stale: set[str] = set()
        self._publishing: asyncio.Handle | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def _follow(self, resource: Resource[V], on_change: Callable[[Sequence[Change[V]]], None]) -> Informer[V]:
        return Informer(self._client, resource, self._clock, on_change, on_state=self._state_changed)

    def _state_changed(self, state: InformerState, error: FlockError | None) -> None:
        if error is None:
            self._wake()
        if self._on_state is not None:
            self._on_state(state, error)

    def _wake(self) -> None:
        """The API server answers: nobody waits any longer to try again."""
        for informer in self._informers():
            informer.wake()

    def _informers(self) -> Iterator[Informer[NodeConfig] | Informer[NamespaceView] | Informer[PodView]
                                     | Informer[NodeView] | Informer[NetworkPolicy] | Informer[PeerPod]]:
        yield from (self._node_configs, self._namespaces, self._pods, self._nodes)
        if self._policies is not None and self._peers is not None:
            yield from (self._policies, self._peers)

    async def start(self) -> None:
        """Begin to follow, and don't wait: ``listed`` does that, and ``view.complete`` tells."""
        for informer in self._informers():
            self._tasks.append(self._loop.create_task(informer.run(), name=f"informer {informer.state.name}"))

    def close(self) -> None:
        """Stop following; the view stays as it is. The client is its maker's to close."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        if self._publishing is not None:
            self._publishing.cancel()

    def behind(self, then: Callable[[], None]) -> bool:  # noqa: ARG002 - the face of a source
        """An API server can't be asked whether it has more to tell; ``await_pod`` asks for the one pod that matters."""
        return False

    async def listed(self) -> None:
        """Wait until everything was listed once."""
        changed = asyncio.Event()
        unsubscribe = self.view.subscribe(changed.set)
        try:
            while not self.view.complete:
                changed.clear()
                await changed.wait()
        finally:
            unsubscribe()

    @property
    def states(self) -> tuple[InformerState, ...]:
        """How each resource is followed, for health."""
        return tuple(informer.state for informer in self._informers())

    @property
    def peers(self) -> Mapping[Key, PeerPod]:
        """Every pod of the cluster, changed in place in the loop's thread; empty without ``with_policy``.

        Not in the snapshot: a copy of ten thousand for each change would cost more than all else together.
        """
        return self._peers.items if self._peers is not None else {}

    def subscribe_peers(self, callback: PeersChanged) -> None:
        """Call ``callback`` with each change of ``peers``, in the loop's thread."""
        self._peer_subscribers.append(callback)

    # One pod

    def knows(self, namespace: str, name: str, uid: str) -> bool:
        """Whether the view has this very pod (any, where ``uid`` is empty) and its namespace: nothing to wait for."""
        return knows(self.view, namespace, name, uid)

    async def await_pod(self, namespace: str, name: str, uid: str, deadline: float) -> PodView:
        """The pod, once the view has it and its namespace; TryAgain at ``deadline`` (the clock's monotonic time)."""
        wait = PodWait(self.view, self._clock, self._learn, namespace=namespace, name=name, uid=uid)
        return await wait.until(deadline)

    async def live_pod(self, namespace: str, name: str) -> PodView | None:
        """One pod as the server has it now, on whatever node, None where there is none.

        Any other failure, an object that can't be read among them, is a FlockError: nothing is known then.
        """
        return await self._live.pod(namespace, name)

    async def _learn(self, namespace: str, name: str) -> str:
        """Read a pod and its namespace live into the view; the reason why that couldn't be done, or ""."""
        try:
            if self.view.namespace(namespace) is None and (found := await self._live.namespace(namespace)) is not None:
                self._learned_namespaces.put(("", namespace), found)
                self._mark("namespaces")
            pod = await self._live.pod(namespace, name)
        except FlockError as error:
            return str(error)
        self._wake()
        if pod is None:
            return "the API server has no such pod"
        if pod.node_name != self._node:
            return f"the API server has it on node {pod.node_name or '(none)'}"
        known = self._pods.items.get((namespace, name))
        if known is None or known.uid != pod.uid:
            self._learned_pods.put((namespace, name), pod)
            self._mark("pods")
        return ""

    # Changes

    def _pods_changed(self, changes: Sequence[Change[PodView]]) -> None:
        self._learned_pods.caught_up(changes, self._pods.lists)
        self._mark("pods")

    def _namespaces_changed(self, changes: Sequence[Change[NamespaceView]]) -> None:
        self._learned_namespaces.caught_up(changes, self._namespaces.lists)
        self._mark("namespaces")

    def _changed(self, part: str) -> Callable[[object], None]:
        return lambda _changes: self._mark(part)

    def _peers_changed(self, changes: Sequence[Change[PeerPod]]) -> None:
        for callback in tuple(self._peer_subscribers):
            callback(changes)
        if not self.view.complete:
            self._mark("")

    def _mark(self, part: str) -> None:
        """Publish at the loop's next turn: what comes in one piece of the stream makes one snapshot."""
        self._stale.add(part)
        if self._publishing is None:
            self._publishing = self._loop.call_soon(self._publish)

    def _publish(self) -> None:
        self._publishing = None
        stale, self._stale = self._stale, set()
        parts: dict[str, object] = {}
        if "pods" in stale:
            parts["pods"] = self._learned_pods.over(self._pods.items)
        if "namespaces" in stale:
            parts["namespaces"] = _by_name(self._learned_namespaces.over(self._namespaces.items))
        if "nodes" in stale:
            parts["nodes"] = _by_name(self._nodes.items)
        if "node_configs" in stale:
            parts["node_configs"] = _by_name(self._node_configs.items)
        if "policies" in stale and self._policies is not None:
            parts["policies"] = dict(self._policies.items)
        complete = all(informer.complete for informer in self._informers())
        self.view.replace(msgspec.structs.replace(
            self.view.snapshot, **parts, problems=tuple(self._problems()), refusal=self._refusal(), complete=complete))

    def _refusal(self) -> str:
        return next((one.reason for one in self._node_configs.damaged if one.key == ("", self._node)), "")

    def _problems(self) -> Iterator[SourceProblem]:
        for informer in self._informers():
            yield from map(_problem, informer.damaged)
        for policy in self._policies.items.values() if self._policies is not None else ():
            for problem in policy.problems:
                yield SourceProblem(policy.subject, 0, 0, f"{problem}; it allows nothing")
        own = self._node_configs.items.get(("", self._node))
        if own is None:
            return
        where = f"NodeConfig {own.name}"
        for field in own.unknown:
            yield SourceProblem(where, 0, 0, f"{field} is not a field that this version knows; it goes on without")
        for peer in own.spec.bgp.bad_peers if own.spec.bgp is not None else ():
            for problem in peer.problems:
                yield SourceProblem(where, 0, 0, str(problem))


def _by_name(items: Mapping[Key, V]) -> dict[str, V]:
    return {name: value for (_, name), value in items.items()}


def _problem(damaged: Damaged) -> SourceProblem:
    return SourceProblem(damaged.name, 0, 0, damaged.reason)
