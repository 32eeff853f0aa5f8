"""Where the agent's view comes from: a folder of manifests or a Kubernetes API. Nothing behind this file knows which.

If the process dies on any line: nothing is written here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from flock.agent.bird_loop import BirdLoop
from flock.agent.loop import Loop
from flock.agent.state import NodeState
from flock.api.objects import PodView
from flock.api.peer_pod import PeerPod
from flock.cluster.manifests import ManifestsFolder
from flock.cluster.view import View
from flock.cni.requests import PodArgs
from flock.errors import FlockError

if TYPE_CHECKING:
    from flock.cluster.informer import InformerState
    from flock.cluster.watch import Change

Then = Callable[[FlockError | None], None]


class Upkeep(Protocol):
    """What is written to an API server, as loops; see ``flock.agent.upkeep``."""

    def loops(self) -> Mapping[str, Loop]: ...

    def refused(self, pod: PodArgs, error: FlockError) -> bool:
        """An ADD was refused; True where that is news. In the loop's thread."""


class LiveSource(Protocol):
    """An API server."""

    async def listed(self) -> None:
        """Until the view is complete: nothing is judged before (R4)."""

    async def live_pod(self, namespace: str, name: str) -> PodView | None:
        """One pod as it is now, on whatever node; None where there is none. FlockError: nothing is known."""


class Source(Protocol):
    """What the agent needs of either."""

    @property
    def view(self) -> View: ...

    def followed(self) -> Sequence["InformerState"]:
        """How each resource of an API is followed, for health; nothing for manifests. From any thread."""

    def peers(self) -> Iterable[PeerPod]:
        """Every pod of the cluster, where an API tells of more than the view has. In the loop's thread."""

    def subscribe_peers(self, callback: Callable[[Sequence["Change[PeerPod]"]], None]) -> None:
        """Call ``callback`` with each change of them, in the loop's thread."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    @property
    def live(self) -> LiveSource | None:
        """Who can be asked for one pod as it is now; None where manifests are all there is."""

    async def tell_missing(self, error: FlockError) -> None:
        """The start failed for want of a NodeConfig: say so where somebody looks, if there is such a place."""

    def upkeep(self, state: NodeState, bird: BirdLoop) -> Upkeep | None:
        """Who writes to the API what this node's agent has to say; None where nobody reads."""

    def waits(self, pod: PodArgs, deadline: float, then: Then) -> bool:
        """True where the view must catch up before this pod's ADD can be decided.

        ``then`` is called once, in the loop's thread: with None when it has, or with why it can't by ``deadline``.
        """


class ManifestsSource:
    """A manifest that was written before a pod's ADD is obeyed by it, however soon the ADD comes."""

    def __init__(self, folder: ManifestsFolder) -> None:
        self._folder = folder

    @property
    def view(self) -> View:
        return self._folder.view

    @property
    def live(self) -> LiveSource | None:
        return None

    def followed(self) -> Sequence["InformerState"]:
        return ()

    def peers(self) -> Iterable[PeerPod]:
        return ()

    def subscribe_peers(self, callback: Callable[[Sequence["Change[PeerPod]"]], None]) -> None:
        """A folder's pods are all in the view."""

    async def start(self) -> None:
        await self._folder.start()

    async def close(self) -> None:
        self._folder.close()

    async def tell_missing(self, error: FlockError) -> None:
        """The agent's log says it."""

    def upkeep(self, state: NodeState, bird: BirdLoop) -> Upkeep | None:  # noqa: ARG002 - a folder is only read
        return None

    def waits(self, pod: PodArgs, deadline: float, then: Then) -> bool:  # noqa: ARG002 - every pod, and at once
        return self._folder.behind(lambda: then(None))
