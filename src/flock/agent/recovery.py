"""What a start does with what it finds: files of the store on one side, marked links on the other. Pure.

The rules, each for one name (container ID and interface):

- a pending file: an ADD that a former agent didn't finish; torn down and deleted, link or not (R3);
- a committed file with its link: in use (I15);
- a committed file without its link: the pod's network ended without a DEL; released into quarantine;
- a link without a file, or with a damaged one: rebuilt from the link's mark and its routes, since a pod may well be
  running on it; it is never taken for "nothing is allocated".

The scan of the links is one complete dump, so nothing is judged from a partial view.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from flock.model.attachment import Attachment
from flock.model.family import Address, Family, family_of
from flock.model.ids import AttachmentKey
from flock.model.ownership import host_ifname


class MarkedLink(Protocol):
    """A host end, as far as recovery looks at it."""

    @property
    def ifindex(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def mtu(self) -> int: ...
    @property
    def key(self) -> AttachmentKey | None: ...
    @property
    def pod_addresses(self) -> tuple[Address, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What to do. ``keep`` and ``rebuild`` are in use from now on; ``lost`` go into quarantine."""

    tear_down: tuple[AttachmentKey, ...]
    keep: tuple[Attachment, ...]
    rebuild: tuple[Attachment, ...]
    lost: tuple[Attachment, ...]


def decide_recovery(
    committed: Iterable[Attachment], pending: Iterable[AttachmentKey], links: Iterable[MarkedLink], now: float
) -> Recovery:
    """Join files and links. ``now`` (seconds since the machine's start) dates what is rebuilt."""
    unfinished = tuple(pending)
    entries = {entry.key: entry for entry in committed if entry.key not in unfinished}
    marked = {key: link for link in links if (key := link.key) is not None and link.name == host_ifname(key)}
    return Recovery(
        tear_down=unfinished,
        keep=tuple(entry for key, entry in entries.items() if key in marked),
        rebuild=tuple(
            rebuilt(key, link, now) for key, link in marked.items() if key not in entries and key not in unfinished
        ),
        lost=tuple(entry for key, entry in entries.items() if key not in marked),
    )


def rebuilt(key: AttachmentKey, link: MarkedLink, now: float) -> Attachment:
    """The allocation that a marked link stands for. Whose pod it is the kernel doesn't know."""
    ips: dict[Family, str] = {}
    for address in link.pod_addresses:
        ips.setdefault(family_of(address), str(address))
    return Attachment(
        container_id=key.container_id,
        ifname=key.ifname,
        host_ifname=link.name,
        ip6=ips.get(Family.IPV6),
        ip4=ips.get(Family.IPV4),
        mtu=link.mtu,
        created=now,
    )

