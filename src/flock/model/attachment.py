"""The attachment: one interface of one container, as the store keeps it and everybody else reads it. Pure."""

from collections.abc import Iterator
from enum import Enum

import msgspec

from flock.model.family import FAMILIES, Address, Family, parse_address
from flock.model.ids import AttachmentKey, ContainerID, IfName


class Phase(Enum):
    """Where an attachment is in its life; a file's name on disk says the same."""

    PENDING = "pending"
    COMMITTED = "committed"
    RELEASED = "released"


class Attachment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """One allocation. Addresses are text in canonical form; times are seconds since the machine's start.

    ``namespace``, ``pod`` and ``uid`` are empty where the runtime named no pod (podman). ``netns_inode`` is st_ino of
    the pod's network namespace, 0 where it isn't known; an inode is unique among living namespaces alone.
    """

    container_id: ContainerID
    ifname: IfName
    host_ifname: str
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    ip6: str | None = None
    ip4: str | None = None
    netns: str = ""
    netns_inode: int = 0
    network: str = ""
    mtu: int = 1500
    created: float = 0.0
    released: float = 0.0

    @property
    def key(self) -> AttachmentKey:
        return AttachmentKey(self.container_id, self.ifname)

    @property
    def owner(self) -> str:
        """``namespace/pod``, or the container ID where no pod was named."""
        return f"{self.namespace}/{self.pod}" if self.pod else str(self.container_id)

    def address(self, family: Family) -> Address | None:
        """The address of one family, if the attachment has one."""
        text = self.ip6 if family is Family.IPV6 else self.ip4
        return parse_address(text) if text else None

    def addresses(self) -> Iterator[Address]:
        """Its addresses, IPv6 first."""
        for family in FAMILIES:
            address = self.address(family)
            if address is not None:
                yield address
