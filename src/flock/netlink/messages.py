"""Requests for links, addresses and neighbours, and what the kernel answers to dumps of them. Pure.

Invariant: a request is a function of its arguments; sequence number and ACK flag come in when a batch is sent. One code
path for both families: the packed address's length chooses the layout.

Sources: drivers/net/veth.c, net/core/rtnetlink.c, net/core/neighbour.c, net/ipv4/devinet.c, net/ipv6/addrconf.c.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from flock.model.family import Address
from flock.netlink import constants as nl
from flock.netlink.wire import attr, attr_u32, attributes, each_attribute, message, nested, text, u32

_IFINFO = struct.Struct("=BxHiII")
_IFADDR = struct.Struct("=BBBBI")
_NDMSG = struct.Struct("=BxxxiHBB")
_FAMILIES = {4: nl.AF_INET, 16: nl.AF_INET6}
_ADDRESSES: Mapping[int, type[IPv4Address] | type[IPv6Address]] = {4: IPv4Address, 16: IPv6Address}
_ENSURE = nl.NLM_F_CREATE | nl.NLM_F_REPLACE
_ONE_QUEUE = attr_u32(nl.IFLA_NUM_TX_QUEUES, 1) + attr_u32(nl.IFLA_NUM_RX_QUEUES, 1)
_STRICT = attr_u32(nl.IFLA_EXT_MASK, nl.RTEXT_FILTER_SKIP_STATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link as the kernel shows it; -1 where it didn't say."""

    ifindex: int
    name: str
    alias: str
    kind: str
    mac: bytes
    mtu: int
    up: bool
    rp_filter: int
    addr_gen_mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkAddress:
    """An address of a link as the kernel shows it."""

    ifindex: int
    address: Address
    length: int
    flags: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A neighbour entry as the kernel shows it; ``mac`` is empty where it has none."""

    ifindex: int
    address: Address
    mac: bytes
    permanent: bool


def ifinfo(ifindex: int, flags: int = 0, change: int = 0) -> bytes:
    """An ifinfomsg: index 0 leaves the choice to the kernel, or the link to IFLA_IFNAME."""
    return _IFINFO.pack(nl.AF_UNSPEC, 0, ifindex, flags, change)


def new_veth(
    *, name: str, ifindex: int, mac: bytes, peer: str, peer_ifindex: int, peer_mac: bytes, netns_fd: int, mtu: int
) -> bytes:
    """Make a veth pair: one end here, the other born in another namespace, both down.

    A peer that is to be up at once fails with ENOTCONN (veth_open runs before the pair is joined). One queue on each
    side: by default the kernel makes one for every possible CPU.
    """
    size = attr_u32(nl.IFLA_MTU, mtu)
    other = (
        ifinfo(peer_ifindex)
        + attr(nl.IFLA_IFNAME, peer.encode() + b"\0")
        + attr(nl.IFLA_ADDRESS, peer_mac)
        + size
        + _ONE_QUEUE
        + attr_u32(nl.IFLA_NET_NS_FD, netns_fd)
    )
    return message(
        nl.RTM_NEWLINK,
        nl.NLM_F_CREATE | nl.NLM_F_EXCL,
        ifinfo(ifindex),
        attr(nl.IFLA_IFNAME, name.encode() + b"\0"),
        attr(nl.IFLA_ADDRESS, mac),
        size,
        _ONE_QUEUE,
        nested(
            nl.IFLA_LINKINFO,
            attr(nl.IFLA_INFO_KIND, b"veth\0"),
            nested(nl.IFLA_INFO_DATA, nested(nl.VETH_INFO_PEER, other)),
        ),
    )


NO_LINK_LOCAL = nested(nl.AF_INET6, attr(nl.IFLA_INET6_ADDR_GEN_MODE, bytes([nl.IN6_ADDR_GEN_MODE_NONE])))
"""The kernel makes no link-local address of its own, which it would then try for duplicates for a second or two."""

LOOSE_RP_FILTER = nested(nl.AF_INET, nested(nl.IFLA_INET_CONF, attr_u32(nl.IPV4_DEVCONF_RP_FILTER, 2)))
"""Reverse path filter 2: the kernel takes the greater of this and ``all``, so 2 works whatever ``all`` is."""


def set_family_options(ifindex: int, *options: bytes, alias: str | None = None) -> bytes:
    """Set per-family options of a link that exists, and its alias.

    In the creating message IFLA_AF_SPEC fails with EAFNOSUPPORT, since no family knows the link yet. On a link that is
    up each such change walks the node's whole IPv6 table (NETDEV_CHANGE, rt6_sync_down_dev); while it is down it
    doesn't.
    """
    name = attr(nl.IFLA_IFALIAS, alias.encode()) if alias is not None else b""
    return message(nl.RTM_NEWLINK, 0, ifinfo(ifindex), name, nested(nl.IFLA_AF_SPEC, *options) if options else b"")


def set_link(
    ifindex: int, *, up: bool | None = None, mac: bytes | None = None, mtu: int | None = None, group: int | None = None
) -> bytes:
    """Change what is given of a link that exists."""
    return message(
        nl.RTM_NEWLINK,
        0,
        ifinfo(ifindex, nl.IFF_UP if up else 0, nl.IFF_UP if up is not None else 0),
        attr(nl.IFLA_ADDRESS, mac) if mac is not None else b"",
        attr_u32(nl.IFLA_MTU, mtu) if mtu is not None else b"",
        attr_u32(nl.IFLA_GROUP, group) if group is not None else b"",
    )


def delete_link(ifindex: int) -> bytes:
    """Remove a link; a veth's other end goes with it."""
    return message(nl.RTM_DELLINK, 0, ifinfo(ifindex))


def delete_group(group: int) -> bytes:
    """Remove every link of a group."""
    return message(nl.RTM_DELLINK, 0, ifinfo(0), attr_u32(nl.IFLA_GROUP, group))


def ensure_address(ifindex: int, address: Address, length: int) -> bytes:
    """Give a link an address, without duplicate detection, so that it can be used at once.

    One that can't leave its link has link scope in IPv4; IPv6 finds its scope by itself (RFC 4007).
    """
    packed = address.packed
    scope = nl.RT_SCOPE_LINK if len(packed) == 4 and address.is_link_local else nl.RT_SCOPE_UNIVERSE
    return message(
        nl.RTM_NEWADDR,
        _ENSURE,
        _IFADDR.pack(_FAMILIES[len(packed)], length, nl.IFA_F_NODAD, scope, ifindex),
        attr(nl.IFA_LOCAL, packed),
        attr(nl.IFA_ADDRESS, packed),
    )


def ensure_neighbour(ifindex: int, address: Address, mac: bytes) -> bytes:
    """Set a neighbour's MAC for good."""
    packed = address.packed
    return message(
        nl.RTM_NEWNEIGH,
        _ENSURE,
        _NDMSG.pack(_FAMILIES[len(packed)], ifindex, nl.NUD_PERMANENT, 0, 0),
        attr(nl.NDA_DST, packed),
        attr(nl.NDA_LLADDR, mac),
    )


def get_link(*, name: str = "", ifindex: int = 0) -> bytes:
    """Ask for one link, by name or by index."""
    named = attr(nl.IFLA_IFNAME, name.encode() + b"\0") if name else b""
    return message(nl.RTM_GETLINK, 0, ifinfo(ifindex), named, _STRICT)


def dump_veths() -> bytes:
    """Ask for all veth ends, without their counters."""
    kind = nested(nl.IFLA_LINKINFO, attr(nl.IFLA_INFO_KIND, b"veth\0"))
    return message(nl.RTM_GETLINK, nl.NLM_F_DUMP, ifinfo(0), kind, _STRICT)


def dump_addresses(family: int = nl.AF_UNSPEC, ifindex: int = 0) -> bytes:
    """Ask for the addresses of one link, or of all."""
    return message(nl.RTM_GETADDR, nl.NLM_F_DUMP, _IFADDR.pack(family, 0, 0, 0, ifindex))


def dump_neighbours(ifindex: int = 0) -> bytes:
    """Ask for the neighbour entries of one link, or of all."""
    only = attr_u32(nl.NDA_IFINDEX, ifindex) if ifindex else b""
    return message(nl.RTM_GETNEIGH, nl.NLM_F_DUMP, _NDMSG.pack(nl.AF_UNSPEC, 0, 0, 0, 0), only)


def parse_link(body: memoryview) -> Link | None:
    """Read an ifinfomsg and its attributes."""
    if len(body) < _IFINFO.size:
        return None
    _, _, ifindex, flags, _ = _IFINFO.unpack_from(body)
    found = attributes(body, _IFINFO.size)
    info = attributes(found[nl.IFLA_LINKINFO]) if nl.IFLA_LINKINFO in found else {}
    families = attributes(found[nl.IFLA_AF_SPEC]) if nl.IFLA_AF_SPEC in found else {}
    return Link(
        ifindex=ifindex,
        name=text(found.get(nl.IFLA_IFNAME)),
        alias=text(found.get(nl.IFLA_IFALIAS)),
        kind=text(info.get(nl.IFLA_INFO_KIND)),
        mac=bytes(found.get(nl.IFLA_ADDRESS, b"")),
        mtu=u32(found[nl.IFLA_MTU]) if nl.IFLA_MTU in found else -1,
        up=bool(flags & nl.IFF_UP),
        rp_filter=_rp_filter(families.get(nl.AF_INET)),
        addr_gen_mode=_addr_gen_mode(families.get(nl.AF_INET6)),
    )


def parse_link_name(body: memoryview) -> tuple[int, str] | None:
    """Index and name alone, at a fifth of the cost: the kernel writes the name first (rtnl_fill_ifinfo)."""
    if len(body) < _IFINFO.size:
        return None
    found = next((value for kind, value in each_attribute(body, _IFINFO.size) if kind == nl.IFLA_IFNAME), None)
    return int(_IFINFO.unpack_from(body)[2]), text(found)


def _rp_filter(spec: memoryview | None) -> int:
    values = attributes(spec).get(nl.IFLA_INET_CONF) if spec is not None else None
    return u32(values[(nl.IPV4_DEVCONF_RP_FILTER - 1) * 4 :]) if values is not None else -1


def _addr_gen_mode(spec: memoryview | None) -> int:
    mode = attributes(spec).get(nl.IFLA_INET6_ADDR_GEN_MODE) if spec is not None else None
    return mode[0] if mode else -1


def parse_address(body: memoryview) -> LinkAddress | None:
    """Read an ifaddrmsg and its attributes; IFA_LOCAL is the address itself, IFA_ADDRESS may be a peer's."""
    if len(body) < _IFADDR.size:
        return None
    _, length, short_flags, _, ifindex = _IFADDR.unpack_from(body)
    found = attributes(body, _IFADDR.size)
    address = read_address(found.get(nl.IFA_LOCAL) or found.get(nl.IFA_ADDRESS))
    if address is None:
        return None
    flags = u32(found[nl.IFA_FLAGS]) if nl.IFA_FLAGS in found else short_flags
    return LinkAddress(ifindex=ifindex, address=address, length=length, flags=flags)


def parse_neighbour(body: memoryview) -> Neighbour | None:
    """Read an ndmsg and its attributes; None for a proxy entry or another family's."""
    if len(body) < _NDMSG.size:
        return None
    _, ifindex, state, _, _ = _NDMSG.unpack_from(body)
    found = attributes(body, _NDMSG.size)
    address = read_address(found.get(nl.NDA_DST))
    if address is None:
        return None
    mac = bytes(found.get(nl.NDA_LLADDR, b""))
    return Neighbour(ifindex=ifindex, address=address, mac=mac, permanent=bool(state & nl.NUD_PERMANENT))


def read_address(raw: memoryview | None) -> Address | None:
    """An address of either family by its length; None for any other length."""
    kind = _ADDRESSES.get(len(raw)) if raw is not None else None
    return None if kind is None or raw is None else kind(bytes(raw))
