"""ADD: allocate in the loop's thread, then pending → kernel → commit → reply in the worker's.

If the process dies on any line: before the pending file, nothing happened; after it, the next start tears down what the
kernel has of it and deletes it, and the runtime, whose connection broke, sends DEL; after the commit the attachment is
whole, and a runtime that got no answer sends DEL.
"""

import contextlib
import logging
import os
from collections.abc import Callable
from functools import partial

from flock.agent.logs import ctx
from flock.agent.state import NodeState
from flock.api.annotations import FamilyRequest, PodNetwork, parse_annotations
from flock.api.objects import PodView, image_digest
from flock.cni.call import Call
from flock.cni.requests import AddRequest
from flock.cni.results import render_add
from flock.errors import AlreadyAttached, FlockError, FlockFailure, InvalidNetns, TryAgain, UnsupportedField
from flock.ipam.allocator import Allocation, AllocationRequest
from flock.ipam.embed import EmbedValues
from flock.model.attachment import Attachment
from flock.model.family import Family, family_of
from flock.model.ownership import host_ifname

log = logging.getLogger("flock.add")


class Adding:
    """Serves ADD. ``begin`` runs in the loop's thread and never waits."""

    def __init__(self, state: NodeState) -> None:
        self._state = state

    def begin(self, request: AddRequest, netns_fd: int | None, call: Call) -> None:
        """Decide everything, then hand over to the worker. FlockError: nothing was begun."""
        if netns_fd is None:
            raise InvalidNetns(f"the network namespace {request.netns!r} came without a descriptor")
        if request.mac:
            raise UnsupportedField("MAC of CNI_ARGS is not supported", "flock gives every pod its MAC")
        if self._state.store.known(request.key):
            raise AlreadyAttached(f"container {request.key.container_id} has {request.key.ifname} already")
        attachment = self._allocate(request, os.fstat(netns_fd).st_ino)
        realise = partial(self._realise, attachment, netns_fd, self._state.joins(attachment))
        self._state.worker.post(partial(self._finish, attachment, request, call, realise))

    def _allocate(self, request: AddRequest, inode: int) -> Attachment:
        state = self._state
        pod, network = self._describe(request)
        if network.anycast:
            log.warning("anycast claims are not served yet", extra=ctx(key=request.key, claims=network.anycast))
        key, args = request.key, request.args
        allocation = state.allocator.allocate(
            AllocationRequest(
                key=key,
                owner=f"{args.namespace}/{args.name}" if args else str(key.container_id),
                families=_with_wishes(network, request),
                ip_algo=network.ip_algo,
                values=_embed_values(request, pod, state.node),
            ),
            state.clock.uptime(),
        )
        return Attachment(
            container_id=key.container_id,
            ifname=key.ifname,
            host_ifname=host_ifname(key),
            namespace=args.namespace,
            pod=args.name,
            uid=args.uid,
            ip6=_text(allocation, Family.IPV6),
            ip4=_text(allocation, Family.IPV4),
            netns=request.netns,
            netns_inode=inode,
            network=request.network,
            mtu=state.facts.mtu,
            created=state.clock.uptime(),
        )

    def _describe(self, request: AddRequest) -> tuple[PodView | None, PodNetwork]:
        """The pod as the view knows it, and what its annotations ask for."""
        state, args = self._state, request.args
        spec = state.config().spec
        pod = state.pod(args.namespace, args.name) if args else None
        if pod is not None and pod.uid and args.uid and args.uid not in (pod.uid, pod.mirror_hash):
            raise TryAgain(f"pod {args.namespace}/{args.name} is known with another UID", f"{pod.uid}, not {args.uid}")
        namespace = state.view.namespace(args.namespace) if args else None
        return pod, parse_annotations(
            pod.annotations if pod is not None else {},
            namespace.annotations if namespace is not None else {},
            spec,
        )

    def _finish(self, attachment: Attachment, request: AddRequest, call: Call, realise: Callable[[], None]) -> None:
        """The worker's part."""
        if call.cancelled:
            self._take_back(attachment)
            call.finish()
            return
        try:
            realise()
        except FlockError as error:
            self._take_back(attachment)
            call.fail(error)
            log.warning("pod not added", extra=ctx(pod=attachment.owner, key=attachment.key, error=error))
            self._state.refused(request.args, error)
        except Exception:
            self._take_back(attachment)
            log.exception("ADD failed by a fault of flock", extra=ctx(key=attachment.key))
            call.fail(FlockFailure("flock failed to add the pod", "the agent's log has the reason"))
        else:
            self._answer(attachment, request, call)

    def _realise(self, attachment: Attachment, netns_fd: int, join: Callable[[], None]) -> None:
        state, key = self._state, attachment.key
        state.store.write_pending(attachment)
        with contextlib.ExitStack() as undo:
            undo.callback(state.store.discard, key)
            join()
            plan = state.plan(attachment)
            wired = state.wiring.attach(plan, netns_fd)
            undo.callback(state.wiring.unwire, attachment.host_ifname)
            state.store.commit(key)
            state.links[wired.host_ifindex] = key
            state.incomplete[key] = (plan, wired.host_ifindex)
            state.worker.later(partial(state.complete, key))
            undo.pop_all()

    def _answer(self, attachment: Attachment, request: AddRequest, call: Call) -> None:
        if call.reply(render_add(request.version, attachment, request.dns)):
            self._state.worker.later(partial(_tell, attachment))
            return
        log.warning("the runtime hung up, the pod is taken back", extra=ctx(pod=attachment.owner, key=attachment.key))
        try:
            self._state.wiring.unwire(attachment.host_ifname)
            self._state.store.release(attachment.key, self._state.clock.uptime())
            self._state.allocator.release(tuple(attachment.addresses()), self._state.clock.uptime(), attachment.owner)
        except FlockError as error:
            # The entry stays, so the runtime's DEL or GC finds it.
            log.warning("taking back failed", extra=ctx(key=attachment.key, error=error))
        finally:
            self._state.leaves(attachment)
            call.finish()

    def _take_back(self, attachment: Attachment) -> None:
        self._state.leaves(attachment)
        for address in attachment.addresses():
            self._state.allocator.forget(address)


def _tell(attachment: Attachment) -> None:
    log.info("pod added", extra=ctx(pod=attachment.owner, key=attachment.key, ip6=attachment.ip6, ip4=attachment.ip4))


def _with_wishes(network: PodNetwork, request: AddRequest) -> tuple[FamilyRequest, ...]:
    """Addresses that the user asked the runtime for (``podman --ip``) stand above the annotations."""
    if not request.ips:
        return network.wanted
    return tuple(FamilyRequest(family=family_of(ip), cidrs=(), address=ip) for ip in request.ips)


def _embed_values(request: AddRequest, pod: PodView | None, node: str) -> EmbedValues:
    return EmbedValues(
        namespace=request.args.namespace,
        pod=request.args.name,
        image=image_digest(pod) if pod is not None else None,
        container_id=str(request.key.container_id),
        node=node,
        service_account=pod.service_account if pod is not None else "",
    )


def _text(allocation: Allocation, family: Family) -> str | None:
    for address in allocation.addresses():
        if family_of(address) is family:
            return str(address)
    return None
