"""Flows as the kernel tracks them: asked for, read, and removed. Pure.

Invariant: a flow is removed by the very bytes that the kernel named it with, so no other can be meant.

Source: net/netfilter/nf_conntrack_netlink.c. Numbers in attributes are in network byte order.
"""

import struct
from dataclasses import dataclass
from ipaddress import ip_address

from flock.model.family import Address
from flock.netlink import constants as nl
from flock.netlink.wire import Message, attr, attributes, message

_HEADER_SIZE = 4
_U32 = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Both directions' addresses: where they don't mirror each other somebody translates. ``name`` is the kernel's."""

    source: Address
    target: Address
    reply_source: Address
    reply_target: Address
    answered: bool
    name: bytes


def dump_unreplied(family: int) -> bytes:
    """The request for the flows that were never answered; a kernel that can't pick them names all of the family."""
    return message(nl.IPCTNL_MSG_CT_GET, nl.NLM_F_DUMP, _nfgenmsg(family), attr(nl.CTA_STATUS, _U32.pack(0)),
                   attr(nl.CTA_STATUS_MASK, _U32.pack(nl.IPS_SEEN_REPLY)))


def delete_flow(family: int, flow: Flow) -> bytes:
    """The request that removes a flow; ENOENT where it has ended by itself."""
    return message(nl.IPCTNL_MSG_CT_DELETE, 0, _nfgenmsg(family), flow.name)


def parse_flow(entry: Message) -> Flow | None:
    """The flow that an answer tells of, or None."""
    if entry.kind != nl.IPCTNL_MSG_CT_NEW:
        return None
    found = attributes(entry.body, _HEADER_SIZE)
    there, back = _addresses(found.get(nl.CTA_TUPLE_ORIG)), _addresses(found.get(nl.CTA_TUPLE_REPLY))
    if there is None or back is None:
        return None
    status = found.get(nl.CTA_STATUS)
    named = [attr(kind | flag, bytes(found[kind]))
             for kind, flag in ((nl.CTA_TUPLE_ORIG, nl.NLA_F_NESTED), (nl.CTA_ZONE, 0)) if kind in found]
    return Flow(source=there[0], target=there[1], reply_source=back[0], reply_target=back[1],
                answered=status is None or len(status) != 4 or bool(_U32.unpack(status)[0] & nl.IPS_SEEN_REPLY),
                name=b"".join(named))


def _addresses(direction: memoryview | None) -> tuple[Address, Address] | None:
    """Source and target of one direction."""
    inside = attributes(direction).get(nl.CTA_TUPLE_IP) if direction is not None else None
    found = attributes(inside) if inside is not None else {}
    source = found.get(nl.CTA_IP_V4_SRC, found.get(nl.CTA_IP_V6_SRC))
    target = found.get(nl.CTA_IP_V4_DST, found.get(nl.CTA_IP_V6_DST))
    if source is None or target is None or len(source) not in {4, 16} or len(target) not in {4, 16}:
        return None
    return ip_address(bytes(source)), ip_address(bytes(target))


def _nfgenmsg(family: int) -> bytes:
    return struct.pack(">BBH", family, 0, 0)
