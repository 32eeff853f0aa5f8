"""The allocator: one address of each wanted family for a pod, never one twice. Pure; chance and time are injected.

Invariants (numbers are those of the promises in ARCHITECTURE.md):
- allocate, release and mark-in-use are atomic towards each other (I1), and either all families get an address or none
  is claimed (I9: both are chosen before either is);
- an address that is in use, or the node's own, is never given (I2, I14);
- an address that was released less than the reuse delay ago is passed over while another is free, and when none is, the
  one released longest ago is taken (I4), so quarantine never makes a pool smaller;
- the cost depends on the pool's runs of taken addresses, not on its size or how full it is.
"""

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address

import msgspec

from flock.api.annotations import FamilyRequest
from flock.api.cidrs import cidr_problems
from flock.api.ip_algo import Field
from flock.api.problems import InvalidObject
from flock.errors import AddressRefused, FlockError, InvalidConfig
from flock.ipam.choose import Chooser, RandomSource
from flock.ipam.cidr import effective_cidrs
from flock.ipam.embed import EmbedValues
from flock.ipam.pool import Pool
from flock.ipam.span import Span, narrowed, span_of
from flock.model.family import FAMILIES, Address, Family, Network, canonical, family_of
from flock.model.ids import AttachmentKey

NO_VALUES = EmbedValues()


class AllocationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod wants. ``owner`` is ``namespace/pod`` (or a container ID): whose an address is, also in quarantine."""

    key: AttachmentKey
    owner: str
    families: tuple[FamilyRequest, ...]
    ip_algo: tuple[Field, ...] = ()
    values: EmbedValues = NO_VALUES


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """What it gets."""

    ip6: IPv6Address | None = None
    ip4: IPv4Address | None = None

    def addresses(self) -> Iterator[Address]:
        """The addresses, IPv6 first."""
        if self.ip6 is not None:
            yield self.ip6
        if self.ip4 is not None:
            yield self.ip4


class Usage(msgspec.Struct, frozen=True):
    """How many addresses of one family are in use and in quarantine, and how many of its CIDRs nobody uses.

    ``free`` counts those in quarantine, since they are given where no other is.
    """

    used: int
    quarantined: int
    free: int


class Allocator:
    """The addresses of one node's pods. It holds no durable state: the store's is marked at start (I15)."""

    def __init__(
        self,
        *,
        cidrs: Mapping[Family, Sequence[Network]],
        random: RandomSource,
        reserved: Collection[Address] = (),
        reuse_delay: float = 120.0,
    ) -> None:
        self._lock = threading.Lock()
        self._random = random
        self._spans: dict[Family, dict[Network, Span]] = {}
        self._pools = {family: Pool((), reuse_delay) for family in FAMILIES}
        self._configure(cidrs, reserved, reuse_delay)

    def reconfigure(
        self,
        cidrs: Mapping[Family, Sequence[Network]],
        reserved: Collection[Address] = (),
        reuse_delay: float = 120.0,
    ) -> None:
        """Take new CIDRs, own addresses and delay; what is in use or in quarantine stays so (R14)."""
        with self._lock:
            self._configure(cidrs, reserved, reuse_delay)

    def allocate(self, request: AllocationRequest, now: float) -> Allocation:
        """An address of every wanted family, claimed; any error claims nothing."""
        with self._lock:
            if not request.families:
                raise self._nothing_wanted(request.owner)
            chosen = {one.family: self._choose(one, request, now) for one in request.families}
            for family, number in chosen.items():
                self._pools[family].claim(number, request.owner)
        ip6, ip4 = chosen.get(Family.IPV6), chosen.get(Family.IPV4)
        return Allocation(
            ip6=None if ip6 is None else IPv6Address(ip6),
            ip4=None if ip4 is None else IPv4Address(ip4),
        )

    def mark_in_use(self, *addresses: Address | None, owner: str = "") -> None:
        """Addresses that are taken already (I15), in whatever CIDR."""
        with self._lock:
            for pool, number in self._numbers(addresses):
                pool.claim(number, owner)

    def release(self, addresses: Iterable[Address | None], now: float, owner: str = "") -> None:
        """End the use of addresses; they are in quarantine then. Idempotent, None and unknown are ignored (I6)."""
        with self._lock:
            for pool, number in self._numbers(addresses):
                pool.release(number, now, owner)

    def forget(self, *addresses: Address | None) -> None:
        """Undo a claim that came to nothing: no quarantine, and one that the address was taken out of goes on."""
        with self._lock:
            for pool, number in self._numbers(addresses):
                pool.forget(number)

    def quarantined(self, address: Address, released_at: float, owner: str = "") -> None:
        """Restore a quarantine that began before this process did; an address in use stays in use."""
        with self._lock:
            for pool, number in self._numbers((address,)):
                pool.restore(number, released_at, owner)

    def in_use(self, address: Address) -> bool:
        with self._lock:
            return any(number in pool.used for pool, number in self._numbers((address,)))

    def holder(self, address: Address) -> str | None:
        """Whose an address in use is; None where it isn't, empty where nobody said."""
        with self._lock:
            held = [pool.used.get(number) for pool, number in self._numbers((address,))]
        return held[0].owner if held and held[0] is not None else None

    @property
    def used(self) -> int:
        """Addresses in use, of both families."""
        return sum(len(pool.used) for pool in self._pools.values())

    def has(self, family: Family) -> bool:
        """Whether this node has any CIDR of that family."""
        return bool(self._spans[family])

    def usage(self, family: Family, now: float) -> Usage:
        with self._lock:
            pool = self._pools[family]
            pool.expire(now)
            spans = self._spans[family].values()
            inside = sum(any(span.usable(number) for span in spans) for number in pool.used)
            return Usage(len(pool.used), len(pool.quarantine), sum(span.capacity for span in spans) - inside)

    def _configure(
        self, cidrs: Mapping[Family, Sequence[Network]], reserved: Collection[Address], reuse_delay: float
    ) -> None:
        problems = cidr_problems(cidrs)
        if problems:
            raise InvalidObject(problems)
        own = [canonical(address) for address in reserved]
        for family in FAMILIES:
            self._spans[family] = {network: span_of(network) for network in cidrs.get(family, ())}
            pool = self._pools[family]
            pool.reserve(int(address) for address in own if family_of(address) is family)
            pool.reuse_delay = reuse_delay

    def _choose(self, wanted: FamilyRequest, request: AllocationRequest, now: float) -> int:
        """The number of a free address of one family; errors name the pod."""
        pool = self._pools[wanted.family]
        pool.expire(now)
        try:
            spans = self._effective(wanted)
            chooser = Chooser(pool=pool, random=self._random, owner=request.owner, now=now)
            if wanted.address is not None:
                return chooser.named(wanted.address, self._home(wanted.address, spans))
            if spans[0].exact and spans[0].network not in self._spans[wanted.family]:
                return chooser.named(spans[0].network.network_address, spans[0])
            if not any(span.segments for span in spans):
                raise InvalidConfig(f"cidr {', '.join(str(span.network) for span in spans)} has no usable host space")
            if wanted.family is Family.IPV4:
                return chooser.lowest(spans)
            if request.ip_algo:
                return chooser.built(spans, request.ip_algo, request.values)
            return chooser.drawn(spans)
        except FlockError as error:
            raise type(error)(f"pod {request.owner}: {error.msg}") from error

    def _effective(self, wanted: FamilyRequest) -> tuple[Span, ...]:
        own = self._spans[wanted.family]
        if own and not wanted.cidrs:
            return tuple(own.values())
        try:
            networks = effective_cidrs(wanted.cidrs, tuple(own))
        except InvalidConfig as error:
            raise InvalidConfig(f"cidr{wanted.family.suffix}: {error.msg}") from error
        return tuple(own.get(network) or self._narrow(network, own) for network in networks)

    @staticmethod
    def _narrow(network: Network, own: Mapping[Network, Span]) -> Span:
        base = int(network.network_address)
        return narrowed(network, next(span for span in own.values() if span.holds(base)))

    def _home(self, address: Address, spans: Sequence[Span]) -> Span:
        """The effective CIDR that a named address lies in."""
        number = int(address)
        home = next((span for span in spans if span.holds(number)), None)
        if home is None:
            listed = ", ".join(str(span.network) for span in spans)
            raise AddressRefused(f"{address} is in no CIDR that this pod may have on this node ({listed})")
        return home

    def _numbers(self, addresses: Iterable[Address | None]) -> Iterator[tuple[Pool, int]]:
        for address in addresses:
            if address is not None:
                one = canonical(address)
                yield self._pools[family_of(one)], int(one)

    def _nothing_wanted(self, owner: str) -> InvalidConfig:
        if not any(self._spans.values()):
            return InvalidConfig(f"pod {owner}: node has no CIDRs configured for either family")
        return InvalidConfig(f"pod {owner}: at least one of ipv6/ipv4 must be true")
