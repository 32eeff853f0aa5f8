"""ADD's two batches, quickly: the steps of each end from a template. Pure.

Invariant: the bytes are those of ``create_link`` with ``vital_host_steps``, and of ``pod_steps``; a template belongs to
a shape, which holds all that changes the layout or the constants of a batch, and is derived from these very functions.
"""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from struct import pack, unpack
from typing import NamedTuple

from flock.model.family import Address, Family
from flock.model.ids import AttachmentKey, ContainerID, IfName
from flock.netlink.template import Template, derive_template
from flock.pods.plan import PodAddress, Wiring
from flock.pods.steps import create_link, pod_steps, vital_host_steps


class Entry(NamedTuple):
    """What of one address changes the layout."""

    family: Family
    proto: int
    sourced: bool


class Shape(NamedTuple):
    """What of a wiring changes the layout or the constants of its batches."""

    names: tuple[int, int, int]
    entries: tuple[Entry, ...]


class Batch(NamedTuple):
    """Numbered requests, ready to be sent."""

    data: bytearray
    messages: int


def host_batch(wiring: Wiring, ifindex: int, pod_ifindex: int, netns_fd: int) -> Batch:
    """Make the link and complete its host end; message 0 is the making, the others are ``vital_host_steps``."""
    template = _host_template(_shape(wiring))
    return Batch(template.fill(_values(wiring, ifindex, pod_ifindex, netns_fd)), template.count)


def pod_batch(wiring: Wiring, ifindex: int) -> Batch:
    """Complete the pod's end: ``pod_steps``."""
    template = _pod_template(_shape(wiring))
    return Batch(template.fill(_values(wiring, 0, ifindex, 0)), template.count)


def prepare(wiring: Wiring) -> None:
    """Derive the templates of a wiring's shape now: that takes milliseconds, which the first ADD needn't wait for."""
    _host_template(_shape(wiring))
    _pod_template(_shape(wiring))


def _shape(wiring: Wiring) -> Shape:
    return Shape(
        (len(wiring.host_ifname), len(wiring.alias.encode()), len(wiring.ifname.encode())),
        tuple([Entry(each.family, each.proto, each.source is not None) for each in wiring.addresses]),
    )


_FIXED = 10


def _values(wiring: Wiring, ifindex: int, pod_ifindex: int, netns_fd: int) -> list[bytes]:
    values = [
        pack("=i", ifindex),
        pack("=i", pod_ifindex),
        pack("=i", netns_fd),
        pack("=i", wiring.mtu),
        wiring.host_ifname.encode(),
        wiring.alias.encode(),
        wiring.ifname.encode(),
        wiring.host_mac,
        wiring.pod_mac,
        wiring.pod_link_local.packed if wiring.pod_link_local is not None else b"",
    ]
    for entry in wiring.addresses:
        values.append(entry.address.packed)
        values.append(entry.source.packed if entry.source is not None else b"")
    return values


def _sizes(shape: Shape) -> list[int]:
    has_link_local = any(entry.family is Family.IPV6 for entry in shape.entries)
    sizes = [4, 4, 4, 4, *shape.names, 6, 6, 16 if has_link_local else 0]
    for entry in shape.entries:
        size = entry.family.bits // 8
        sizes += [size, size if entry.sourced else 0]
    return sizes


def _wiring(shape: Shape, values: Sequence[bytes]) -> Wiring:
    """The wiring that has these values: the inverse of ``_values``."""
    _, _, _, mtu, host_ifname, alias, ifname, host_mac, pod_mac, link_local = values[:_FIXED]
    pairs = zip(values[_FIXED::2], values[_FIXED + 1 :: 2], strict=True)
    return Wiring(
        key=AttachmentKey(ContainerID(""), IfName("")),
        ifname=ifname.decode(),
        host_ifname=host_ifname.decode(),
        alias=alias.decode(),
        mtu=_number(mtu),
        pod_mac=pod_mac,
        host_mac=host_mac,
        pod_link_local=IPv6Address(link_local) if link_local else None,
        addresses=tuple(
            PodAddress(address=_address(raw), proto=entry.proto, source=_address(source) if source else None)
            for entry, (raw, source) in zip(shape.entries, pairs, strict=True)
        ),
    )


def _number(raw: bytes) -> int:
    return int(unpack("=i", raw)[0])


def _address(raw: bytes) -> Address:
    return IPv4Address(raw) if len(raw) == 4 else IPv6Address(raw)


# Container IDs of one runtime are of one length, so a node has a handful of shapes.
@lru_cache(maxsize=64)
def _host_template(shape: Shape) -> Template:
    def packed(values: Sequence[bytes]) -> bytes:
        ifindex, pod_ifindex, netns_fd = map(_number, values[:3])
        wiring = _wiring(shape, values)
        steps = [create_link(wiring, ifindex, pod_ifindex, netns_fd), *vital_host_steps(wiring, ifindex)]
        return b"".join([step.request for step in steps])

    return derive_template(packed, _sizes(shape))


@lru_cache(maxsize=64)
def _pod_template(shape: Shape) -> Template:
    def packed(values: Sequence[bytes]) -> bytes:
        steps = pod_steps(_wiring(shape, values), _number(values[1]))
        return b"".join([step.request for step in steps])

    return derive_template(packed, _sizes(shape))
