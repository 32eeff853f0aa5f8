"""Whose addresses a rule means: pods by namespace and labels, or all that declare a named port. Pure.

Two rules that mean the same pods have equal sources, whichever policy they stand in, so their addresses are kept once.
"""

import msgspec

from flock.api.network_policy import IPBlock, PodPeer, PortName
from flock.api.selector import Selector

EVERY = Selector()


class Scope(msgspec.Struct, frozen=True):
    """Pods by their labels, in the one ``namespace``, or in those whose labels ``namespaces`` matches."""

    namespace: str | None
    namespaces: Selector = EVERY
    pods: Selector = EVERY


class Source(msgspec.Struct, frozen=True):
    """What some pods contribute to a set: their addresses; or, with ``port``, each address with the ports that the pod
    calls so. ``where`` None is every pod; an IPBlock, those with an address in it, is only met with a port.
    """

    where: Scope | IPBlock | None
    port: PortName | None = None


def scope_of(peer: PodPeer, namespace: str) -> Scope:
    """The pods that a peer of a policy in ``namespace`` means."""
    pods = peer.pods if peer.pods is not None else EVERY
    if peer.namespaces is None:
        return Scope(namespace, EVERY, pods)
    return Scope(None, peer.namespaces, pods)


def identity(source: Source) -> str:
    """A text that equal sources have in common on every node and in every run, and different ones don't."""
    where = source.where
    if isinstance(where, Scope):
        said = repr((where.namespace, _demands(where.namespaces), _demands(where.pods)))
    elif where is not None:
        said = repr((str(where.cidr), sorted(map(str, where.excepted))))
    else:
        said = ""
    return f"{said} {source.port.protocol.name} {source.port.name}" if source.port is not None else said


def _demands(selector: Selector) -> list[tuple[str, str, list[str]]]:
    return sorted((one.key, one.operator.value, sorted(one.values)) for one in selector.requirements)
