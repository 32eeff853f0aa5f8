"""Which router ID a node has (R8). Pure.

Invariant: never 0, loopback, link-local, multicast or broadcast, and the same for the same input. The caller keeps the
first answer for the life of the process: a change restarts every session. Source: RFC 6286 (four bytes, not zero,
unique in the AS).
"""

import hashlib
from collections.abc import Iterable
from ipaddress import IPv4Address

from flock.model.family import Address

_LOOPBACK = 127
_UNICAST_NETS = 222
"""First bytes 1 to 223 without 127."""


def choose_router_id(configured: IPv4Address | None, host_addresses: Iterable[Address], node_name: str) -> IPv4Address:
    """The configured one, else the host's first usable IPv4 address, else one that is derived from the node's name."""
    if configured is not None:
        return configured
    return next((address for address in host_addresses if isinstance(address, IPv4Address) and _usable(address)),
                _derived(node_name))


def _usable(address: IPv4Address) -> bool:
    return 1 <= address.packed[0] <= 223 and not address.is_loopback and not address.is_link_local


def _derived(node_name: str) -> IPv4Address:
    """Four bytes of a hash, the first one moved into unicast space: routers refuse what can't be a host."""
    digest = hashlib.sha256(node_name.encode()).digest()
    first = 1 + digest[0] % _UNICAST_NETS
    return IPv4Address(bytes([first + (first >= _LOOPBACK), *digest[1:4]]))
