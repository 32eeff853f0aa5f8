"""What the parts of the agent share: the store, the allocator, the pods' links, and the node as it is now.

A composition, no logic: whoever changes ``facts`` or reads ``view`` sees the newest whole value (one reference each).
"""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from flock.agent.metrics import Metrics
from flock.agent.worker import Worker
from flock.api.node_config import NodeConfig, NodeConfigSpec
from flock.api.objects import PodView
from flock.cluster.view import View
from flock.cni.requests import PodArgs
from flock.errors import FlockError, NodeConfigMissing
from flock.ipam.allocator import Allocator
from flock.ipam.store import Store
from flock.model.attachment import Attachment
from flock.model.family import Address, family_of
from flock.model.ids import AttachmentKey
from flock.pods.plan import NodeFacts, Wiring, plan_wiring
from flock.pods.wiring import PodWiring
from flock.system.clock import Clock


def _nobody(_pod: PodArgs, _error: FlockError) -> None:
    """Nobody wants to know."""


def _open(_attachment: Attachment) -> Callable[[], None]:
    """Nobody enforces policy."""
    return lambda: None


def _unheard(_attachment: Attachment) -> None:
    """Nobody enforces policy."""


@dataclass(slots=True, kw_only=True)
class NodeState:
    """One node's parts. ``leaving``: attachments whose links are being removed, which nothing may mend.

    ``left_behind``: addresses that lie in none of the node's CIDRs any more. ``last_spec``: the NodeConfig's, which
    holds for running pods when it is gone. ``incomplete``: new ones whose host ends lack the addresses that answer
    pings. ``failing``: why a field of the NodeConfig has no effect now. ``refused`` is told of every ADD that failed,
    after its answer, from any thread.

    ``joins`` is told of a pod that is about to be wired, in the loop's thread; the worker calls what it returns, after
    which the pod's rules stand (FlockError: they can't). ``leaves`` is told of one whose link is gone, from any thread.
    """

    node: str
    view: View
    store: Store
    allocator: Allocator
    wiring: PodWiring
    worker: Worker
    clock: Clock
    metrics: Metrics
    facts: NodeFacts
    leaving: set[AttachmentKey] = field(default_factory=set)
    links: dict[int, AttachmentKey] = field(default_factory=dict)
    left_behind: frozenset[Address] = frozenset()
    last_spec: NodeConfigSpec | None = None
    incomplete: dict[AttachmentKey, tuple[Wiring, int]] = field(default_factory=dict)
    failing: dict[str, str] = field(default_factory=dict)
    refused: Callable[[PodArgs, FlockError], object] = _nobody
    joins: Callable[[Attachment], Callable[[], None]] = _open
    leaves: Callable[[Attachment], None] = _unheard
    mending: threading.Lock = field(default_factory=threading.Lock)

    def config(self) -> NodeConfig:
        """The NodeConfig as it is now (R14); NodeConfigMissing where there is none."""
        config = self.view.node_config(self.node)
        if config is None:
            raise NodeConfigMissing(f"NodeConfig {self.node} doesn't exist", "pods start once it does")
        return config

    def spec(self) -> NodeConfigSpec | None:
        """Its spec, or None where there is none."""
        config = self.view.node_config(self.node)
        return config.spec if config is not None else None

    def pod(self, namespace: str, name: str) -> PodView | None:
        """A pod of this node, as the view knows it; one that is assigned to another node is none of ours."""
        pod = self.view.pod(namespace, name)
        return pod if pod is not None and pod.node_name in ("", self.node) else None

    def announced(self, address: Address) -> bool:
        """Whether BIRD announces this pod's address by itself: it lies in ``hostRoutes``, or in no CIDR any more."""
        if self.left_behind and address in self.left_behind:
            return True
        spec = self.spec() or self.last_spec
        if spec is None or not spec.host_routes:
            return False
        return any(address in net for net in spec.host_routes if family_of(net) is family_of(address))

    def cares_for(self, ifindex: int) -> bool:
        """Whether a link is one of a pod that stays; 0 stands for routes without a link, which are the summaries."""
        key = self.links.get(ifindex)
        return ifindex == 0 or (key is not None and key not in self.leaving)

    def complete(self, key: AttachmentKey) -> None:
        """Give a new link's host end its addresses, which no packet needs, after the pod's ADD was answered.

        In the worker. A failure is the sweep's to mend; so is a process that dies before.
        """
        waiting = self.incomplete.pop(key, None)
        if waiting is not None and key not in self.leaving:
            with contextlib.suppress(FlockError):
                self.wiring.complete(*waiting)

    def plan(self, attachment: Attachment) -> Wiring:
        """What the kernel must hold for one attachment, now."""
        return plan_wiring(attachment, self.facts, self.announced)
