"""What the kernel holds of a pod's link, and how it differs from the plan. Pure.

How it is used::

    for link in pod_wiring.scan():            # ObservedLink of every host end
        link.key                              # AttachmentKey from the alias, None where the alias isn't flock's
        link.pod_addresses                    # what its host routes say the pod has: for a rebuild of the store
    for difference in host_differences(wiring, link): print(difference)
"""

from dataclasses import dataclass
from enum import Enum

from flock.model.family import Address
from flock.model.ids import AttachmentKey
from flock.model.ownership import parse_ifalias
from flock.netlink.routes import Route


class Side(Enum):
    """Which end of the link a difference is on."""

    HOST = "host"
    POD = "pod"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that isn't as planned: ``what`` in plain English for users, ``repair`` the requests that mend it.

    No repair: it can't be mended in place (the link itself is missing).
    """

    side: Side
    what: str
    repair: tuple[bytes, ...] = ()

    def __str__(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedLink:
    """One end of a link with all that hangs off it, as read."""

    ifindex: int
    name: str
    alias: str
    mac: bytes
    mtu: int
    up: bool
    rp_filter: int
    addresses: frozenset[tuple[Address, int]]
    neighbours: frozenset[tuple[Address, bytes]]
    routes: frozenset[Route]

    @property
    def key(self) -> AttachmentKey | None:
        """The attachment that the alias names."""
        return parse_ifalias(self.alias)

    @property
    def pod_addresses(self) -> tuple[Address, ...]:
        """The addresses that the host routes to this link by flock's protocols, IPv6 first."""
        hosts = (route.dst for route in self.routes if route.dst.prefixlen == route.dst.max_prefixlen)
        return tuple(sorted((dst.network_address for dst in hosts), key=lambda address: -address.version))
