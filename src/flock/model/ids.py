"""Identifiers that runtimes hand to flock, and the rules they must keep. Pure.

Sources: CNI specification 1.1.0, "Parameters"; containernetworking/cni pkg/utils (rules for interface names). The limit
of 200 bytes on a container ID is flock's: the ID is part of a file name of at most 255 bytes.
"""

import re
from typing import NamedTuple, NewType

ContainerID = NewType("ContainerID", str)
IfName = NewType("IfName", str)
PodUID = NewType("PodUID", str)

CONTAINER_ID_LIMIT = 200
IFNAME_LIMIT = 15

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*\Z")


class AttachmentKey(NamedTuple):
    """What names an attachment: a container and one of its interfaces."""

    container_id: ContainerID
    ifname: IfName

    def __str__(self) -> str:
        return f"{self.container_id}:{self.ifname}"


def parse_container_id(text: str) -> ContainerID:
    """A container ID that is safe as part of a file name; ValueError says which rule it breaks."""
    if not text:
        raise ValueError("is empty")
    if len(text.encode(errors="replace")) > CONTAINER_ID_LIMIT:
        raise ValueError(f"is longer than {CONTAINER_ID_LIMIT} bytes")
    if not _IDENTIFIER.match(text):
        raise ValueError("must start with a letter or digit and hold only letters, digits, '_', '.' and '-'")
    return ContainerID(text)


def parse_network_name(text: str) -> str:
    """A CNI network name: the same alphabet as a container ID; ValueError says which rule it breaks."""
    return str(parse_container_id(text))


def parse_ifname(text: str) -> IfName:
    """A Linux interface name (net/core/dev.c, dev_valid_name); ValueError says which rule it breaks."""
    if not text:
        raise ValueError("is empty")
    if len(text.encode(errors="replace")) > IFNAME_LIMIT:
        raise ValueError(f"is longer than {IFNAME_LIMIT} bytes")
    if text in (".", ".."):
        raise ValueError(f"must not be {text!r}")
    # The kernel takes "%d" for a template of names and would make another interface (__dev_alloc_name).
    if any(char in "/:%" or char.isspace() or not char.isprintable() for char in text):
        raise ValueError("must hold no '/', ':', '%', white space or control character")
    return IfName(text)
