"""Address families, addresses and prefixes: one code path for IPv4 and IPv6. Pure.

An address has one identity (I13): ``::ffff:10.0.0.1`` is ``10.0.0.1``, upper case and uncompressed text are the same
address. A prefix has no host bits (I12): ``10.0.0.5/24`` means ``10.0.0.0/24``.
"""

from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Family(Enum):
    """An address family; ``value`` is its Linux AF_ number (include/linux/socket.h)."""

    IPV6 = 10
    IPV4 = 2

    @property
    def bits(self) -> int:
        """The width of an address: 128 or 32."""
        return 128 if self is Family.IPV6 else 32

    @property
    def label(self) -> str:
        """``IPv6`` or ``IPv4``, as users read it."""
        return "IPv6" if self is Family.IPV6 else "IPv4"

    @property
    def suffix(self) -> str:
        """``6`` or ``4``, as field names end (``cidr6``)."""
        return "6" if self is Family.IPV6 else "4"


FAMILIES = (Family.IPV6, Family.IPV4)


def family_of(thing: Address | Network) -> Family:
    """The family of an address or a prefix."""
    return Family.IPV6 if thing.version == 6 else Family.IPV4


def parse_address(text: str) -> Address:
    """Read one address, in any spelling, into its one identity; ValueError names the text.

    A zone (``fe80::1%eth0``) and surrounding space are refused: neither is part of an address here.
    """
    if "%" in text:
        raise ValueError(f"{text!r} has a zone; name the interface in its own field")
    try:
        return canonical(ip_address(text))
    except ValueError as error:
        raise ValueError(f"{text!r} is not an IP address") from error


def canonical(address: Address) -> Address:
    """``::ffff:a.b.c.d`` as the IPv4 address that it is; everything else unchanged."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped if mapped is not None else address


def parse_network(text: str) -> Network:
    """Read a prefix and mask its host bits off (I12); ValueError names the text.

    A bare address is refused: a prefix length that nobody wrote is a guess.
    """
    if "/" not in text or "%" in text:
        raise ValueError(f"{text!r} is not a CIDR (address/length)")
    address, _, length = text.partition("/")
    if not (length.isascii() and length.isdigit() and len(length) <= 3 and (length[0] != "0" or length == "0")):
        raise ValueError(f"{text!r} is not a CIDR (address/length)")
    try:
        return ip_network(f"{address}/{length}", strict=False)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a CIDR: {error}") from error
