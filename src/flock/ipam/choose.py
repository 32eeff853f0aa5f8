"""How one free address is chosen from the CIDRs that a pod may have: lowest, drawn, built or named. Pure.

Every way passes quarantine over while another address is free, and falls back to the longest released where it is
allowed to choose. Nothing is claimed here. Errors name the CIDRs and the tries; the allocator adds the pod.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import IPv6Network
from typing import Protocol, TypeVar

import msgspec

from flock.api.ip_algo import Field
from flock.errors import AddressInUse, AddressRefused, InvalidConfig, PoolExhausted, TryAgain
from flock.ipam.embed import EmbedValues, embed_base
from flock.ipam.pool import Pool
from flock.ipam.span import Span
from flock.model.family import Address, Family, canonical, family_of

T = TypeVar("T")

DRAWS = 16


class RandomSource(Protocol):
    """What an allocator asks of chance."""

    def nibble(self) -> int:
        """A number from 0 to 15."""
        ...

    def iid(self, nbytes: int) -> bytes:
        """Random bytes for an interface identifier."""
        ...

    def pick(self, n: int) -> int:
        """A number from 0 to n - 1; 0 where n is 1."""
        ...


class Chooser(msgspec.Struct, frozen=True, kw_only=True):
    """One choice: the pool at one moment, and for whom."""

    pool: Pool
    random: RandomSource
    owner: str
    now: float

    def lowest(self, spans: Sequence[Span]) -> int:
        """The lowest free address of a CIDR picked at random, full ones passed over (I4, I8)."""
        return self._try_each(spans, self._lowest, "IPv4 allocation: {} exhausted")

    def drawn(self, spans: Sequence[Span]) -> int:
        """A random interface identifier in a CIDR picked at random; a small CIDR is searched to its end (I3)."""
        return self._try_each(spans, self._draw, f"IPv6 allocation: {DRAWS} collisions in {{}}")

    def built(self, spans: Sequence[Span], fields: Sequence[Field], values: EmbedValues) -> int:
        """An ip-algo address in a CIDR picked at random, N being drawn without replacement (I3)."""
        bases: list[tuple[Span, int]] = []
        misfit: InvalidConfig | None = None
        for span in spans:
            try:
                bases.append((span, embed_base(_ipv6(span), fields, values)))
            except InvalidConfig as error:
                misfit = error
        if misfit is not None and not bases:
            raise misfit
        for span, base in self._shuffled(bases):
            number = self._nibble(span, base)
            if number is not None:
                return number
        resting = [
            (rest.since, base | nibble)
            for span, base in bases
            for nibble in range(DRAWS)
            if (rest := self.pool.quarantine.get(base | nibble)) is not None and self._may(span, base | nibble)
        ]
        if resting:
            return min(resting)[1]
        raise PoolExhausted(
            f"IPv6 allocation: {DRAWS} collisions in {_listed([span for span, _ in bases])} (every N of the ip-algo)"
        )

    def named(self, address: Address, span: Span) -> int:
        """The address that was asked for, or none; the same owner's quarantine is no obstacle."""
        address = canonical(address)
        number = int(address)
        if not span.usable(number):
            raise AddressRefused(f"{address} can't be given: {_why_unusable(span, family_of(address))}")
        if number in self.pool.reserved:
            raise AddressRefused(f"{address} can't be given: it is the node's own")
        held = self.pool.used.get(number)
        if held is not None:
            raise AddressInUse(f"{address} is in use by {held.owner or 'another pod'}")
        rest = self.pool.quarantine.get(number)
        if rest is None or rest.owner == self.owner:
            return number
        left = self.pool.reuse_delay - (self.now - rest.since)
        if 0 < left <= self.pool.reuse_delay:
            raise TryAgain(f"{address} was released by {rest.owner or 'another pod'}; it is free again in {left:.0f} s")
        return number

    def _try_each(self, spans: Sequence[Span], find: Callable[[Span], int | None], exhausted: str) -> int:
        for span in self._shuffled(span for span in spans if span.segments):
            number = find(span)
            if number is not None:
                return number
        resting = self.pool.longest_resting(spans)
        if resting is None:
            raise PoolExhausted(exhausted.format(_listed(spans)))
        return resting

    def _lowest(self, span: Span) -> int | None:
        return self._first_free(span, span.base)

    def _draw(self, span: Span) -> int | None:
        mask = (1 << span.host_bits) - 1
        nbytes = max(1, (span.host_bits + 7) // 8)
        number = span.base
        for _ in range(DRAWS):
            number = span.base | int.from_bytes(self.random.iid(nbytes), "big") & mask
            if span.usable(number) and number not in self.pool.taken:
                return number
        if not span.searchable:
            return None
        found = self._first_free(span, number)
        return found if found is not None else self._first_free(span, span.base)

    def _nibble(self, span: Span, base: int) -> int | None:
        nibble = self.random.nibble() & 0xF
        left = list(range(DRAWS))
        while True:
            if self._free(span, base | nibble):
                return base | nibble
            left.remove(nibble)
            if not left:
                return None
            nibble = left[self.random.pick(len(left))]

    def _free(self, span: Span, number: int) -> bool:
        return span.usable(number) and number not in self.pool.taken

    def _may(self, span: Span, number: int) -> bool:
        return span.usable(number) and number not in self.pool.reserved

    def _first_free(self, span: Span, start: int) -> int | None:
        for low, high in span.segments:
            number = self.pool.taken.next_free(max(low, start))
            if number <= high:
                return number
        return None

    def _shuffled(self, spans: Iterable[T]) -> Iterator[T]:
        """The CIDRs in random order, drawn one at a time, so that the first costs one draw (I8)."""
        left = list(spans)
        while len(left) > 1:
            yield left.pop(self.random.pick(len(left)))
        yield from left


def _ipv6(span: Span) -> IPv6Network:
    assert isinstance(span.network, IPv6Network)
    return span.network


def _listed(spans: Sequence[Span]) -> str:
    return ", ".join(str(span.network) for span in spans)


def _why_unusable(span: Span, family: Family) -> str:
    if family is Family.IPV4:
        return f"the network, gateway and broadcast addresses of {span.network} are never a pod's"
    return f"the all-zero and the highest 128 identifiers of {span.network} are reserved (RFC 4291, RFC 2526)"
