"""The ports of a pod that policies may call by their names. Pure.

Source: k8s.io/api, core/v1/types.go; a restartable init container's count as well.
"""

# ruff: noqa: N815
from collections.abc import Iterable, Iterator

import msgspec


class NamedPort(msgspec.Struct, frozen=True):
    """One port; ``protocol`` as the API spells it."""

    name: str
    port: int
    protocol: str


class RawPort(msgspec.Struct, gc=False):
    """An entry of a container's ``ports``, as it comes."""

    name: str | None = None
    containerPort: int | None = None
    protocol: str | None = None


class RawPorts(msgspec.Struct, gc=False):
    """A container, reduced to its ports."""

    restartPolicy: str | None = None
    ports: list[RawPort] | None = None


def named_ports(containers: Iterable[RawPorts], inits: Iterable[RawPorts]) -> tuple[NamedPort, ...]:
    """What the containers of a pod declare with a name, the initial ones only where they go on running."""
    running = (one for one in inits if one.restartPolicy == "Always")
    return tuple(port for one in (*containers, *running) for port in _named(one))


def _named(container: RawPorts) -> Iterator[NamedPort]:
    for port in container.ports or ():
        if port.name and port.containerPort is not None:
            yield NamedPort(port.name, port.containerPort, port.protocol or "TCP")
