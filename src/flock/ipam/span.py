"""Which numbers of a CIDR can be a pod's address. Pure.

IPv4 (I4, I5): from offset 2 to the one before broadcast. IPv6 (I14): not the subnet-router anycast address (all-zero
host part, RFC 4291 section 2.6.1), not the reserved highest 128 identifiers where the prefix has room for them, and in
a /64 not fdff:ffff:ffff:ff80 to …:ffff, the same range in the form of an EUI-64 (RFC 2526 section 2, RFC 5453). A CIDR
that is narrower than the node's keeps the node's rules too.

Invariant: ``segments`` are disjoint, sorted, inclusive at both ends, and inside the CIDR.
"""

import msgspec

from flock.model.family import Family, Network, family_of

Segment = tuple[int, int]

_RESERVED_TOP = 128
_EUI64_LOW = 0xFDFF_FFFF_FFFF_FF80
_EUI64_HIGH = 0xFDFF_FFFF_FFFF_FFFF
_SEARCHED_BITS = 16


class Span(msgspec.Struct, frozen=True):
    """A CIDR to allocate from: its first number, its host bits, and what of it is usable."""

    network: Network
    base: int
    host_bits: int
    segments: tuple[Segment, ...]

    @property
    def exact(self) -> bool:
        """Whether the CIDR is one address."""
        return self.host_bits == 0

    @property
    def searchable(self) -> bool:
        """Whether the CIDR is small enough to be searched to its end (I3)."""
        return self.host_bits <= _SEARCHED_BITS

    @property
    def capacity(self) -> int:
        """How many addresses it has for pods."""
        return sum(high - low + 1 for low, high in self.segments)

    def usable(self, number: int) -> bool:
        return any(low <= number <= high for low, high in self.segments)

    def holds(self, number: int) -> bool:
        """Whether a number lies in the CIDR, usable or not."""
        return number >> self.host_bits == self.base >> self.host_bits


def span_of(network: Network) -> Span:
    """The span of a node's CIDR."""
    host_bits = network.max_prefixlen - network.prefixlen
    base = int(network.network_address)
    return Span(network, base, host_bits, _segments(family_of(network), base, host_bits))


def narrowed(network: Network, node: Span) -> Span:
    """The span of an annotation's CIDR within a node's."""
    own = span_of(network)
    # One address has no network or broadcast of its own: only the node's rules say whether it can be given (I5).
    own_segments = ((own.base, own.base),) if own.exact else own.segments
    return Span(network, own.base, own.host_bits, _both(own_segments, node.segments))


def _segments(family: Family, base: int, host_bits: int) -> tuple[Segment, ...]:
    last = base + (1 << host_bits) - 1
    if family is Family.IPV4:
        return ((base + 2, last - 1),) if host_bits >= 2 else ()
    if host_bits == 0:
        return ((base, base),)
    top = last - _RESERVED_TOP if host_bits > 7 else last
    if host_bits != 64:
        return ((base + 1, top),)
    return ((base + 1, base + _EUI64_LOW - 1), (base + _EUI64_HIGH + 1, top))


def _both(left: tuple[Segment, ...], right: tuple[Segment, ...]) -> tuple[Segment, ...]:
    found = ((max(a, c), min(b, d)) for a, b in left for c, d in right)
    return tuple((low, high) for low, high in found if low <= high)
