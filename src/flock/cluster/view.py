"""The view: what is wanted of this node and known of its cluster, as one immutable snapshot. Pure.

Every source (a manifests folder, the Kubernetes API) fills the same view, and nothing behind it knows which.

Invariant: a snapshot is whole; it is replaced, never changed, so that a reader on any thread sees one moment.
``complete`` is false until the source has told everything once, and nothing may be judged gone before that.
"""

from collections.abc import Callable, Mapping

import msgspec

from flock.api.network_policy import NetworkPolicy
from flock.api.node_config import NodeConfig
from flock.api.objects import NamespaceView, NodeView, PodView


class SourceProblem(msgspec.Struct, frozen=True):
    """What is wrong with a source. ``document`` and ``line`` count from 1; 0 where a whole file or folder is meant."""

    file: str
    document: int
    line: int
    message: str

    def __str__(self) -> str:
        where = f", document {self.document}, line {self.line}" if self.document else ""
        return f"{self.file}{where}: {self.message}"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at one moment; ``nodes`` only where there is a cluster. ``refusal`` says why the newest state of this
    node's own NodeConfig can't be used, where it can't.
    """

    node_configs: Mapping[str, NodeConfig] = {}
    namespaces: Mapping[str, NamespaceView] = {}
    pods: Mapping[tuple[str, str], PodView] = {}
    nodes: Mapping[str, NodeView] = {}
    policies: Mapping[tuple[str, str], NetworkPolicy] = {}
    problems: tuple[SourceProblem, ...] = ()
    refusal: str = ""
    complete: bool = False


class View:
    """The snapshot of the moment, and who wants to be told of the next."""

    def __init__(self) -> None:
        self._snapshot = Snapshot()
        self._subscribers: list[Callable[[], None]] = []

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    @property
    def complete(self) -> bool:
        return self._snapshot.complete

    @property
    def problems(self) -> tuple[SourceProblem, ...]:
        return self._snapshot.problems

    def node_config(self, name: str) -> NodeConfig | None:
        return self._snapshot.node_configs.get(name)

    def namespace(self, name: str) -> NamespaceView | None:
        return self._snapshot.namespaces.get(name)

    def pod(self, namespace: str, name: str) -> PodView | None:
        return self._snapshot.pods.get((namespace, name))

    def node(self, name: str) -> NodeView | None:
        return self._snapshot.nodes.get(name)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` after every change, to poke a loop and do nothing else; what is returned ends that."""
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    def replace(self, snapshot: Snapshot) -> bool:
        """Put a new snapshot in place, and say so if it differs from the last."""
        if snapshot == self._snapshot:
            return False
        self._snapshot = snapshot
        for callback in tuple(self._subscribers):
            callback()
        return True
