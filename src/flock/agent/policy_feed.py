"""Tells the policy thread what the view and the node's attachments say, as they change.

Invariant: a pod of this node is told of before its ADD is answered and until its link is gone; what is told of another
is what the API server says. Nothing is begun before the view is complete.

If the process dies on any line: nothing is kept here; the next start tells everything anew.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from flock.agent.policing import Policing
from flock.agent.state import NodeState
from flock.api.objects import PodView
from flock.api.peer_pod import PeerPod
from flock.cluster.view import Snapshot
from flock.model.attachment import Attachment
from flock.policy.select import Rulings
from flock.policy.world import Member, peer_member, view_member

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class PeerChange(Protocol):
    """A pod of the cluster that differs; see ``flock.cluster.watch``."""

    @property
    def key(self) -> tuple[str, str]: ...
    @property
    def after(self) -> PeerPod | None: ...


class PolicyFeed:
    """Built in the loop's thread, in which it hears of the view; ``leave`` is for any thread."""

    def __init__(self, state: NodeState, policing: Policing, peers: Callable[[], Iterable[PeerPod]]) -> None:
        self._state = state
        self._policing = policing
        self._peers = peers
        self._seen = Snapshot()
        self._subjects: dict[str, Attachment] = {}
        self._begun = False

    def start(self, attachments: Iterable[Attachment]) -> None:
        """Tell of the pods that run, and follow the view from now on."""
        for attachment in attachments:
            self._subjects[attachment.host_ifname] = attachment
            self._policing.post(partial(self._put_subject, attachment))
        self._state.joins, self._state.leaves = self.join, self.leave
        self._state.view.subscribe(self._look)
        self._look()

    # This node's pods

    def join(self, attachment: Attachment) -> Callable[[], None]:
        """A pod is about to be wired. In the loop's thread; the worker calls what is returned, which sees to its rules
        (FlockError: they can't stand).
        """
        self._subjects[attachment.host_ifname] = attachment
        return self._policing.prepare(partial(self._put_subject, attachment))

    def _put_subject(self, attachment: Attachment, rulings: Rulings) -> None:
        """What is known of the pod is looked up only now: what changes later is told later."""
        rulings.put_member(self._member(attachment))

    def leave(self, attachment: Attachment) -> None:
        """Its link is gone, or never came."""
        self._subjects.pop(attachment.host_ifname, None)
        name = (attachment.namespace, attachment.pod, attachment.host_ifname)
        self._policing.post(lambda rulings: rulings.remove_member(name), urgent=False)

    def _member(self, attachment: Attachment) -> Member:
        pod = self._state.pod(attachment.namespace, attachment.pod) if attachment.pod else None
        if not _is_pod_of(pod, attachment):
            pod = None
        return Member(
            namespace=attachment.namespace, name=attachment.pod, interface=attachment.host_ifname,
            addresses=tuple(address.packed for address in attachment.addresses()),
            labels=pod.labels if pod is not None else {}, ports=pod.ports if pod is not None else ())

    # The view

    def _look(self) -> None:
        now, before = self._state.view.snapshot, self._seen
        if not now.complete:
            return
        self._seen = now
        for name, namespace in _changed(before.namespaces, now.namespaces):
            labels = namespace.labels if namespace is not None else None
            self._policing.post(partial(_put_namespace, name, labels))
        for key, policy in _changed(before.policies, now.policies):
            self._policing.post(partial(Rulings.remove_policy, key=key) if policy is None
                                else partial(Rulings.put_policy, policy=policy))
        changed = dict(_changed(before.pods, now.pods))
        if changed:
            self._pods_changed(changed)
        if not self._begun:
            self._begun = True
            for peer in self._peers():
                self._put_peer((peer.namespace, peer.name), peer_member(peer))
            self._policing.begin()

    def _pods_changed(self, changed: Mapping[tuple[str, str], PodView | None]) -> None:
        for key, pod in changed.items():
            if pod is None or pod.node_name != self._state.node:
                self._put_peer(key, view_member(pod) if pod is not None else None)
        for attachment in list(self._subjects.values()):
            # One whose object is gone, or has a successor of its name, keeps the labels that it had: it may still run.
            if _is_pod_of(changed.get((attachment.namespace, attachment.pod)), attachment):
                self._policing.post(partial(_update, self._member(attachment)))

    def peers_changed(self, changes: Sequence[PeerChange]) -> None:
        """Pods of the cluster changed. In the loop's thread."""
        if self._begun:
            for change in changes:
                self._put_peer(change.key, peer_member(change.after) if change.after is not None else None)

    def _put_peer(self, key: tuple[str, str], member: Member | None) -> None:
        if member is None:
            self._policing.post(lambda rulings: rulings.remove_member((*key, "")))
        else:
            self._policing.post(partial(_put, member))


def _is_pod_of(pod: PodView | None, attachment: Attachment) -> bool:
    return pod is not None and attachment.uid in ("", pod.uid, pod.mirror_hash)


def _put(member: Member, rulings: Rulings) -> None:
    rulings.put_member(member)


def _update(member: Member, rulings: Rulings) -> None:
    """A pod that left meanwhile doesn't come back."""
    if rulings.knows(member.id):
        rulings.put_member(member)


def _put_namespace(name: str, labels: Mapping[str, str] | None, rulings: Rulings) -> None:
    rulings.put_namespace(name, labels)


def _changed(before: Mapping[K, V], after: Mapping[K, V]) -> Iterator[tuple[K, V | None]]:
    """What differs, as it is now; None where it is gone."""
    if before is after:
        return
    for key, value in after.items():
        if before.get(key) != value:
            yield key, value
    for key in before.keys() - after.keys():
        yield key, None
