"""The allocator in any order of calls, against a model that is slow, plain and knows nothing of runs and heaps."""

from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from flock.api.annotations import FamilyRequest
from flock.errors import AddressRefused, FlockError, PoolExhausted, TryAgain
from flock.ipam.allocator import AllocationRequest, Allocator
from flock.model.family import FAMILIES, Address, Family, Network, family_of
from flock.model.ids import AttachmentKey, ContainerID, IfName
from flock.testing.chance import ScriptedRandom

KEY = AttachmentKey(ContainerID("c0"), IfName("eth0"))
DELAY = 100.0
WORLDS: tuple[dict[Family, tuple[Network, ...]], ...] = (
    {Family.IPV4: (ip_network("10.0.0.0/29"),), Family.IPV6: (ip_network("2001:db8::/125"),)},
    {
        Family.IPV4: (ip_network("10.0.0.8/29"), ip_network("10.0.0.0/29")),
        Family.IPV6: (ip_network("2001:db8::8/125"), ip_network("2001:db8::/125")),
    },
    {Family.IPV4: (ip_network("10.0.0.0/28"),)},
)
OWN: tuple[tuple[Address, ...], ...] = ((), (ip_address("10.0.0.3"), ip_address("2001:db8::3")))
EVERY: tuple[Address, ...] = tuple(
    make(base + number)
    for make, base in ((IPv4Address, 0x0A000000), (IPv6Address, 0x20010DB8 << 96))
    for number in range(16)
)
OWNERS = st.sampled_from(["ns/a", "ns/b", "ns/c"])


@dataclass
class Model:
    """What is in use (by whom, and out of which quarantine) and what rests (since when, whose it was)."""

    used: dict[Address, tuple[str, tuple[float, str] | None]] = field(default_factory=dict)
    resting: dict[Address, tuple[float, str]] = field(default_factory=dict)
    cidrs: dict[Family, tuple[Network, ...]] = field(default_factory=dict)
    own: frozenset[Address] = frozenset()

    def usable(self, family: Family) -> list[Address]:
        """Every address that may ever be given, lowest first."""
        found: list[Address] = []
        for network in self.cidrs.get(family, ()):
            edges = [network[number] for number in range(network.num_addresses)]
            found += edges[2:-1] if family is Family.IPV4 else edges[1:]
        return sorted((one for one in found if one not in self.own), key=int)

    def free(self, family: Family, now: float) -> list[Address]:
        for address, (since, _) in list(self.resting.items()):
            if since + DELAY <= now:
                del self.resting[address]
        return [one for one in self.usable(family) if one not in self.used and one not in self.resting]

    def claim(self, address: Address, owner: str) -> None:
        self.used[address] = (owner, self.resting.pop(address, None))


class AllocatorStates(RuleBasedStateMachine):
    """Each rule does one thing to both and compares what came of it."""

    given = Bundle("given")

    @initialize(seed=st.integers(0, 1000))
    def begin(self, seed: int) -> None:
        self.now = 1000.0
        self.model = Model(cidrs=dict(WORLDS[0]))
        self.allocator = Allocator(cidrs=WORLDS[0], random=ScriptedRandom(seed=seed), reuse_delay=DELAY)

    def ask(self, owner: str, *families: FamilyRequest) -> tuple[Address, ...]:
        request = AllocationRequest(key=KEY, owner=owner, families=families)
        return tuple(self.allocator.allocate(request, self.now).addresses())

    @rule(seconds=st.sampled_from([0.0, 1.0, 60.0, 150.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(target=given, owner=OWNERS, families=st.sampled_from([FAMILIES, FAMILIES[:1], FAMILIES[1:]]))
    def allocate(self, owner: str, families: tuple[Family, ...]) -> object:
        model = self.model
        expected: list[Address | list[Address]] = []
        possible = True
        for family in families:
            free = model.free(family, self.now)
            oldest = sorted(
                (one for one in model.resting if one in model.usable(family)), key=lambda one: model.resting[one][0]
            )
            if not free and not oldest:
                possible = False
            elif free:
                expected.append(free)
            else:
                first = model.resting[oldest[0]][0]
                expected.append([one for one in oldest if model.resting[one][0] == first])
        if not possible:
            with pytest.raises(FlockError):
                self.ask(owner, *map(FamilyRequest, families))
            return multiple()
        found = self.ask(owner, *map(FamilyRequest, families))
        assert [family_of(one) for one in found] == list(families)
        for address, choices in zip(found, expected, strict=True):
            assert isinstance(choices, list)
            assert address in choices
            if family_of(address) is Family.IPV4 and address not in model.resting:
                home = next(net for net in model.cidrs[Family.IPV4] if address in net)
                assert address == next(one for one in choices if one in home)
            model.claim(address, owner)
        return multiple(*found)

    @rule(owner=OWNERS, address=st.sampled_from(EVERY))
    def allocate_by_name(self, owner: str, address: Address) -> None:
        model, family = self.model, family_of(address)
        model.free(family, self.now)
        wish = FamilyRequest(family, (), address)
        if address not in model.usable(family):
            with pytest.raises(FlockError) as caught:
                self.ask(owner, wish)
            assert not isinstance(caught.value, (TryAgain, PoolExhausted))
        elif address in model.used or (address in model.resting and model.resting[address][1] != owner):
            with pytest.raises(TryAgain):
                self.ask(owner, wish)
        else:
            assert self.ask(owner, wish) == (address,)
            model.claim(address, owner)

    @rule(address=given)
    def release(self, address: Address) -> None:
        self.allocator.release([address, None], self.now)
        held = self.model.used.pop(address, None)
        if held is not None:
            self.model.resting[address] = (self.now, held[0])

    @rule(address=given)
    def forget(self, address: Address) -> None:
        self.allocator.forget(address)
        held = self.model.used.pop(address, None)
        if held is not None and held[1] is not None:
            self.model.resting[address] = held[1]

    @rule(target=given, address=st.sampled_from(EVERY), owner=OWNERS)
    def mark_in_use(self, address: Address, owner: str) -> Address:
        self.allocator.mark_in_use(address, owner=owner)
        if address in self.model.used:
            self.model.used[address] = (owner, self.model.used[address][1])
        else:
            self.model.claim(address, owner)
        return address

    @rule(address=st.sampled_from(EVERY), owner=OWNERS, ago=st.sampled_from([0.0, 50.0, 99.0]))
    def restore_quarantine(self, address: Address, owner: str, ago: float) -> None:
        self.allocator.quarantined(address, self.now - ago, owner)
        if address not in self.model.used:
            self.model.resting[address] = (self.now - ago, owner)

    @rule(world=st.sampled_from(WORLDS), own=st.sampled_from(OWN))
    def reconfigure(self, world: dict[Family, tuple[Network, ...]], own: tuple[Address, ...]) -> None:
        self.allocator.reconfigure(world, own, DELAY)
        self.model.cidrs, self.model.own = dict(world), frozenset(own)

    @rule(owner=OWNERS)
    def own_address_is_refused(self, owner: str) -> None:
        for address in self.model.own:
            if address in self.model.used or not any(
                address in net for net in self.model.cidrs.get(family_of(address), ())
            ):
                continue
            with pytest.raises(AddressRefused):
                self.ask(owner, FamilyRequest(family_of(address), (), address))

    @invariant()
    def in_use_is_what_the_model_says(self) -> None:
        assert self.allocator.used == len(self.model.used)
        for address in EVERY:
            assert self.allocator.in_use(address) is (address in self.model.used)
            assert self.allocator.holder(address) == self.model.used.get(address, (None, None))[0]


TestAllocatorStates = AllocatorStates.TestCase
TestAllocatorStates.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
