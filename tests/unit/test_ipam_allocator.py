"""The allocator's promises, by number."""

import threading
import time
import tracemalloc
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.api.annotations import FamilyRequest
from flock.api.ip_algo import parse_ip_algo
from flock.api.problems import InvalidObject
from flock.errors import AddressRefused, InvalidConfig, PoolExhausted, TryAgain
from flock.ipam.allocator import Allocation, AllocationRequest, Allocator
from flock.ipam.embed import EmbedValues
from flock.ipam.random import CryptoRandom
from flock.model.family import FAMILIES, Address, Family, Network, family_of
from flock.model.ids import AttachmentKey, ContainerID, IfName
from flock.testing.chance import ScriptedRandom

KEY = AttachmentKey(ContainerID("c0"), IfName("eth0"))
BOTH = (FamilyRequest(Family.IPV6), FamilyRequest(Family.IPV4))
ONLY6 = (FamilyRequest(Family.IPV6),)
ONLY4 = (FamilyRequest(Family.IPV4),)
ALGO = parse_ip_algo("namespace=6,pod=5,image=4")


def nets(*texts: str) -> tuple[Network, ...]:
    return tuple(ip_network(text) for text in texts)


def allocator(
    *cidrs: str, chance: ScriptedRandom | None = None, reserved: Iterable[str] = (), reuse_delay: float = 120.0
) -> Allocator:
    networks = nets(*cidrs)
    return Allocator(
        cidrs={family: [one for one in networks if family_of(one) is family] for family in FAMILIES},
        random=chance or ScriptedRandom(),
        reserved=[ip_address(text) for text in reserved],
        reuse_delay=reuse_delay,
    )


def request(
    families: tuple[FamilyRequest, ...] = BOTH, owner: str = "ns/web", ip_algo: str = "", **values: str
) -> AllocationRequest:
    return AllocationRequest(
        key=KEY,
        owner=owner,
        families=families,
        ip_algo=parse_ip_algo(ip_algo),
        values=EmbedValues(namespace="ns", pod="web", container_id="c" * 64, **values),
    )


def within(family: Family, *cidrs: str) -> tuple[FamilyRequest, ...]:
    return (FamilyRequest(family, nets(*cidrs)),)


def exactly(address: str) -> tuple[FamilyRequest, ...]:
    one = ip_address(address)
    return (FamilyRequest(family_of(one), (), one),)


def ip4(allocation: Allocation) -> str:
    return str(allocation.ip4)


def fill(pool: Allocator, cidr: str) -> None:
    pool.mark_in_use(*ip_network(cidr))


def test_I1_concurrent_callers_never_get_the_same_address() -> None:
    pool = allocator("2001:db8::/64", "10.0.0.0/22")
    barrier = threading.Barrier(8)

    def work(_: int) -> list[Address]:
        barrier.wait()
        found: list[Address] = []
        for number in range(100):
            given_now = list(pool.allocate(request(), 0).addresses())
            if number % 3 == 0:
                pool.release(given_now, 0)
            else:
                found += given_now
        return found

    with ThreadPoolExecutor(8) as workers:
        kept = [address for found in workers.map(work, range(8)) for address in found]
    assert len(kept) == len(set(kept)) == pool.used
    assert all(pool.in_use(address) for address in kept)


def test_I2_an_address_in_use_is_never_returned() -> None:
    pool = allocator("10.0.0.0/24")
    pool.mark_in_use(ip_address("10.0.0.2"), ip_address("10.0.0.4"))
    assert [ip4(pool.allocate(request(ONLY4), 0)) for _ in range(3)] == ["10.0.0.3", "10.0.0.5", "10.0.0.6"]


def test_I2_all_of_a_pool_is_given_once_and_no_address_twice() -> None:
    pool = allocator("10.0.0.0/26", "2001:db8::/122")
    given_now = [tuple(pool.allocate(request(), 0).addresses()) for _ in range(61)]
    assert len({one for one, _ in given_now}) == len({two for _, two in given_now}) == 61
    with pytest.raises(PoolExhausted):
        pool.allocate(request(ONLY4), 0)


def test_I3_sixteen_draws_then_an_error_with_cidr_and_count() -> None:
    chance = ScriptedRandom(iids=[7] * 16)
    pool = allocator("2001:db8::/64", chance=chance)
    pool.mark_in_use(ip_address("2001:db8::7"))
    with pytest.raises(PoolExhausted, match=r"pod ns/web: IPv6 allocation: 16 collisions in 2001:db8::/64"):
        pool.allocate(request(ONLY6), 0)
    assert chance.asked["iid"] == 16
    assert pool.used == 1


def test_I3_the_sixteenth_draw_counts() -> None:
    pool = allocator("2001:db8::/64", chance=ScriptedRandom(iids=[7] * 15 + [8]))
    pool.mark_in_use(ip_address("2001:db8::7"))
    assert pool.allocate(request(ONLY6), 0).ip6 == IPv6Address("2001:db8::8")


def test_I3_further_nibbles_are_drawn_without_replacement_so_a_free_one_is_found() -> None:
    for free in range(16):
        pool = allocator("2001:db8::/64", chance=ScriptedRandom(seed=free))
        wanted = request(ONLY6, ip_algo="namespace=6,pod=5,image=4")
        everything = [pool.allocate(wanted, 0).ip6 for _ in range(16)]
        assert len(set(everything)) == 16
        with pytest.raises(PoolExhausted, match=r"16 collisions in 2001:db8::/64"):
            pool.allocate(wanted, 0)
        one = next(address for address in everything if address is not None and int(address) & 15 == free)
        pool.forget(one)
        assert pool.allocate(wanted, 0).ip6 == one


@pytest.mark.parametrize("cidr", ["2001:db8::/112", "2001:db8::/120", "2001:db8::/126", "2001:db8::/127"])
def test_I3_further_a_small_cidr_is_searched_to_the_end(cidr: str) -> None:
    pool = allocator(cidr)
    usable = list(IPv6Network(cidr))[1 : -128 if IPv6Network(cidr).prefixlen < 121 else None]
    pool.mark_in_use(*usable[:-1])
    assert pool.allocate(request(ONLY6), 0).ip6 == usable[-1]
    with pytest.raises(PoolExhausted, match=cidr):
        pool.allocate(request(ONLY6), 0)


def test_I3_further_another_effective_cidr_is_tried_before_giving_up() -> None:
    pool = allocator("2001:db8:a::/64", "2001:db8:b::/64", chance=ScriptedRandom(iids=[7] * 16 + [9], picks=[0, 0]))
    pool.mark_in_use(ip_address("2001:db8:a::7"))
    assert pool.allocate(request(ONLY6), 0).ip6 == IPv6Address("2001:db8:b::9")


def test_I3_further_another_cidr_is_tried_with_ip_algo_too() -> None:
    pool = allocator("2001:db8:a::/64", "2001:db8:b::/64", chance=ScriptedRandom(picks=[0] * 99))
    wanted = request(ONLY6, ip_algo="namespace,pod")
    found = [pool.allocate(wanted, 0).ip6 for _ in range(32)]
    assert len(set(found)) == 32
    with pytest.raises(PoolExhausted, match=r"2001:db8:a::/64, 2001:db8:b::/64"):
        pool.allocate(wanted, 0)


def test_I4_lowest_first_from_offset_two_to_the_one_before_broadcast() -> None:
    pool = allocator("10.0.0.0/29")
    assert [ip4(pool.allocate(request(ONLY4), 0)) for _ in range(5)] == [f"10.0.0.{n}" for n in range(2, 7)]
    with pytest.raises(PoolExhausted, match=r"pod ns/web: IPv4 allocation: 10\.0\.0\.0/29 exhausted"):
        pool.allocate(request(ONLY4), 0)


def test_I4_further_a_released_address_is_passed_over_while_another_is_free() -> None:
    pool = allocator("10.0.0.0/29")
    first = pool.allocate(request(ONLY4), 0)
    pool.release(first.addresses(), 10)
    assert ip4(pool.allocate(request(ONLY4), 11)) == "10.0.0.3"
    assert ip4(pool.allocate(request(ONLY4), 129)) == "10.0.0.4"
    assert ip4(pool.allocate(request(ONLY4), 130)) == "10.0.0.2"


def test_I4_further_when_none_is_free_the_longest_released_is_taken() -> None:
    pool = allocator("10.0.0.0/29")
    given_now = [pool.allocate(request(ONLY4), 0) for _ in range(5)]
    for at, index in enumerate([3, 0, 4]):
        pool.release(given_now[index].addresses(), at)
    assert [ip4(pool.allocate(request(ONLY4), 5)) for _ in range(3)] == ["10.0.0.5", "10.0.0.2", "10.0.0.6"]
    with pytest.raises(PoolExhausted):
        pool.allocate(request(ONLY4), 5)


def test_I4_further_the_longest_released_is_looked_for_in_the_pods_own_cidrs() -> None:
    pool = allocator("10.0.0.0/29", "10.1.0.0/29")
    fill(pool, "10.0.0.0/29")
    fill(pool, "10.1.0.0/29")
    pool.release([ip_address("10.0.0.3")], 1)
    pool.release([ip_address("10.1.0.4")], 2)
    pool.release([ip_address("10.1.0.3")], 3)
    assert ip4(pool.allocate(request(within(Family.IPV4, "10.1.0.0/29")), 4)) == "10.1.0.4"


def test_I4_further_quarantine_is_restored_after_a_restart() -> None:
    pool = allocator("10.0.0.0/29")
    pool.quarantined(ip_address("10.0.0.3"), 50, "ns/other")
    pool.quarantined(ip_address("10.0.0.2"), 100, "ns/other")
    assert ip4(pool.allocate(request(ONLY4), 101)) == "10.0.0.4"
    assert ip4(pool.allocate(request(ONLY4), 170)) == "10.0.0.3"
    pool.quarantined(ip_address("10.0.0.4"), 100, "ns/other")
    assert pool.in_use(ip_address("10.0.0.4"))


def test_I4_further_a_random_and_an_ip_algo_address_are_quarantined_too() -> None:
    pool = allocator("2001:db8::/64", chance=ScriptedRandom(iids=[7, 7, 8]))
    one = pool.allocate(request(ONLY6), 0)
    pool.release(one.addresses(), 1)
    assert pool.allocate(request(ONLY6), 2).ip6 == IPv6Address("2001:db8::8")
    wanted = request(ONLY6, ip_algo="pod")
    built = [pool.allocate(wanted, 3) for _ in range(16)]
    pool.release(built[5].addresses(), 4)
    pool.release(built[2].addresses(), 5)
    assert pool.allocate(wanted, 6) == built[5]


def test_I4_further_a_delay_of_zero_is_no_quarantine() -> None:
    pool = allocator("10.0.0.0/24", reuse_delay=0)
    first = pool.allocate(request(ONLY4), 0)
    pool.release(first.addresses(), 1)
    assert pool.allocate(request(ONLY4), 1) == first


def test_I4_further_the_cost_does_not_grow_with_use() -> None:
    def cost(pool: Allocator) -> float:
        best = 1.0
        for _ in range(30):
            began = time.perf_counter()
            for _ in range(20):
                pool.forget(*pool.allocate(request(ONLY4), 0).addresses())
            best = min(best, time.perf_counter() - began)
        return best

    empty, full = allocator("10.0.0.0/16"), allocator("10.0.0.0/16")
    full.mark_in_use(*(IPv4Address(0x0A000000 + number) for number in range(65536) if number % 20))
    assert cost(full) < 3 * cost(empty)


@pytest.mark.parametrize("cidr", ["10.0.0.0/8", "2001:db8::/32", "2001:db8::/48", "2001:db8::/96"])
def test_I4_further_memory_does_not_grow_with_the_cidr(cidr: str) -> None:
    tracemalloc.start()
    try:
        pool = allocator(cidr)
        for _ in range(50):
            pool.allocate(request((FamilyRequest(family_of(ip_network(cidr))),)), 0)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cidr", ["10.0.0.0/31", "10.0.0.4/32"])
def test_I5_a_tiny_ipv4_cidr_has_no_usable_host_space(cidr: str) -> None:
    with pytest.raises(InvalidConfig, match=f"cidr {cidr} has no usable host space"):
        allocator(cidr).allocate(request(ONLY4), 0)


def test_I5_a_cidr_of_four_has_one_usable_address() -> None:
    pool = allocator("10.0.0.0/30")
    assert ip4(pool.allocate(request(ONLY4), 0)) == "10.0.0.2"
    with pytest.raises(PoolExhausted):
        pool.allocate(request(ONLY4), 0)


def test_I5_a_tiny_cidr_is_passed_over_for_another() -> None:
    pool = allocator("10.0.0.0/31", "10.0.1.0/24")
    assert {ip4(pool.allocate(request(ONLY4), 0)) for _ in range(3)} == {"10.0.1.2", "10.0.1.3", "10.0.1.4"}


def test_I5_further_a_slash_32_by_annotation_asks_for_that_one_address() -> None:
    pool = allocator("10.0.0.0/24")
    wanted = within(Family.IPV4, "10.0.0.77/32")
    assert ip4(pool.allocate(request(wanted), 0)) == "10.0.0.77"
    with pytest.raises(TryAgain, match=r"10\.0\.0\.77 is in use by ns/web"):
        pool.allocate(request(wanted, owner="ns/other"), 0)


@pytest.mark.parametrize("address", ["10.0.0.0", "10.0.0.1", "10.0.0.255"])
def test_I5_further_network_gateway_and_broadcast_are_refused(address: str) -> None:
    for wanted in (within(Family.IPV4, f"{address}/32"), exactly(address)):
        with pytest.raises(AddressRefused, match=f"{address} can't be given"):
            allocator("10.0.0.0/24").allocate(request(wanted), 0)


def test_I5_further_a_slash_32_outside_the_nodes_cidrs_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"do not intersect"):
        allocator("10.0.0.0/24").allocate(request(within(Family.IPV4, "10.0.1.7/32")), 0)


def test_I6_release_is_idempotent_takes_several_and_ignores_none_and_unknown() -> None:
    pool = allocator("10.0.0.0/24", "2001:db8::/64")
    one = pool.allocate(request(), 0)
    pool.release([None, ip_address("192.0.2.1"), *one.addresses(), ip_address("2001:db8:ffff::1")], 1)
    pool.release([*one.addresses(), None], 50)
    pool.release([], 60)
    assert pool.used == 0
    # The second release didn't prolong the quarantine, and the unknown one made none.
    assert ip4(pool.allocate(request(ONLY4), 121)) == ip4(one)
    assert pool.usage(Family.IPV6, 2).quarantined == 1
    assert pool.usage(Family.IPV6, 121).quarantined == 0


def test_I7_neither_family_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"pod ns/web: at least one of ipv6/ipv4 must be true"):
        allocator("10.0.0.0/24").allocate(request(()), 0)


def test_I7_a_node_without_any_cidr_says_so() -> None:
    with pytest.raises(InvalidConfig, match=r"pod ns/web: node has no CIDRs configured"):
        allocator().allocate(request(()), 0)


def test_I8_one_of_several_cidrs_is_picked_at_random() -> None:
    chance = ScriptedRandom(picks=[1, 0])
    pool = allocator("10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", chance=chance)
    assert [ip4(pool.allocate(request(ONLY4), 0)) for _ in range(2)] == ["10.0.1.2", "10.0.0.2"]
    seen = {ip4(pool.allocate(request(ONLY4), 0))[:6] for _ in range(60)}
    assert seen == {"10.0.0", "10.0.1", "10.0.2"}


def test_I8_further_a_full_cidr_is_passed_over() -> None:
    pool = allocator("10.0.0.0/24", "10.0.1.0/24", chance=ScriptedRandom(picks=[0] * 20))
    fill(pool, "10.0.0.0/24")
    assert [ip4(pool.allocate(request(ONLY4), 0)) for _ in range(3)] == ["10.0.1.2", "10.0.1.3", "10.0.1.4"]


def test_I9_ipv6_is_taken_back_if_ipv4_fails() -> None:
    pool = allocator("2001:db8::/64", "10.0.0.0/30", chance=ScriptedRandom(iids=[5, 6, 6]))
    pool.allocate(request(), 0)
    with pytest.raises(PoolExhausted, match="IPv4"):
        pool.allocate(request(), 0)
    assert pool.used == 2
    assert pool.usage(Family.IPV6, 0).quarantined == 0
    assert pool.allocate(request(ONLY6), 0).ip6 == IPv6Address("2001:db8::6")


def test_I9_further_failing_requests_leave_usage_as_it_was() -> None:
    pool = allocator("2001:db8::/64", "10.0.0.0/28")
    for _ in range(200):
        pool.forget(*pool.allocate(request(), 0).addresses())
    assert pool.used == 0
    assert ip4(pool.allocate(request(), 0)) == "10.0.0.2"


def test_I9_further_a_forgotten_address_goes_on_with_its_quarantine() -> None:
    pool = allocator("10.0.0.0/30")
    pool.release(pool.allocate(request(ONLY4, owner="ns/a"), 0).addresses(), 10, "ns/a")
    pool.forget(*pool.allocate(request(ONLY4, owner="ns/b"), 11).addresses())
    with pytest.raises(TryAgain, match=r"released by ns/a"):
        pool.allocate(request(exactly("10.0.0.2"), owner="ns/c"), 12)


def test_I10_the_image_digest_is_in_the_address_with_or_without_its_prefix() -> None:
    digest = "cafe" + "0" * 60
    for image in (digest, f"sha256:{digest}"):
        one = allocator("2001:db8::/64").allocate(request(ONLY6, ip_algo="image=4", image=image), 0)
        assert f"{one.ip6!s}".startswith("2001:db8::cafe:")
    unknown = allocator("2001:db8::/64").allocate(request(ONLY6, ip_algo="image=4"), 0)
    assert f"{unknown.ip6!s}".startswith("2001:db8::cccc:")


def test_I11_cidrs_are_validated_when_the_allocator_is_made() -> None:
    bad = {
        Family.IPV6: nets("10.0.0.0/8", "ff00::/8", "2001:db8::/64", "2001:db8::/48"),
        Family.IPV4: nets("2001:db8:1::/64", "127.0.0.0/8"),
    }
    with pytest.raises(InvalidObject) as caught:
        Allocator(cidrs=bad, random=ScriptedRandom())
    text = str(caught.value)
    assert 'cidr6 "10.0.0.0/8" is IPv4' in text
    assert 'cidr6 "ff00::/8" is multicast' in text
    assert 'cidr6 "2001:db8::/48" overlaps 2001:db8::/64' in text
    assert 'cidr4 "2001:db8:1::/64" is IPv6' in text
    assert 'cidr4 "127.0.0.0/8" is loopback' in text
    assert len(caught.value.problems) == 5


def test_I13_one_address_has_one_identity() -> None:
    pool = allocator("10.0.0.0/24", "2001:db8::/64")
    pool.mark_in_use(ip_address("::ffff:10.0.0.2"), ip_address("2001:0DB8:0:0:0:0:0:000A"))
    assert pool.in_use(ip_address("10.0.0.2"))
    assert pool.in_use(ip_address("2001:db8::a"))
    assert ip4(pool.allocate(request(ONLY4), 0)) == "10.0.0.3"
    pool.release([ip_address("::ffff:10.0.0.2")], 0)
    assert not pool.in_use(ip_address("10.0.0.2"))


@given(st.integers(1, 128), st.integers(0, (1 << 128) - 1), st.integers(0, 1 << 32))
def test_I14_every_network_bit_is_kept(length: int, bits: int, seed: int) -> None:
    network = IPv6Network((0x2001_0DB8 << 96 | (bits >> 32), max(length, 4)), strict=False)
    pool = Allocator(cidrs={Family.IPV6: [network]}, random=ScriptedRandom(seed=seed))
    one = pool.allocate(request(ONLY6), 0).ip6
    assert one is not None
    assert one in network


@given(st.integers(96, 127), st.integers(0, 1 << 32), st.integers(1, 40))
def test_I14_further_reserved_identifiers_are_never_given(length: int, seed: int, count: int) -> None:
    network = IPv6Network(f"2001:db8::/{length}")
    pool = Allocator(cidrs={Family.IPV6: [network]}, random=ScriptedRandom(seed=seed))
    last = network.num_addresses - 1
    for _ in range(count):
        try:
            one = pool.allocate(request(ONLY6), 0).ip6
        except PoolExhausted:
            assert network.num_addresses <= 256
            return
        assert one is not None
        host = int(one) & last
        assert host != 0
        assert network.num_addresses < 256 or host <= last - 128


@pytest.mark.parametrize(
    "host", [0, 0xFDFF_FFFF_FFFF_FF80, 0xFDFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF_FFFF_FF80, 0xFFFF_FFFF_FFFF_FFFF]
)
def test_I14_further_reserved_identifiers_of_a_slash_64(host: int) -> None:
    pool = allocator("2001:db8::/64", chance=ScriptedRandom(iids=[host, 5]))
    assert pool.allocate(request(ONLY6), 0).ip6 == IPv6Address("2001:db8::5")
    named = exactly(str(IPv6Address(int(IPv6Address("2001:db8::")) | host)))
    with pytest.raises(AddressRefused, match="reserved"):
        pool.allocate(request(named), 0)


@pytest.mark.parametrize("host", [0xFDFF_FFFF_FFFF_FF7F, 0xFE00_0000_0000_0000, 0xFFFF_FFFF_FFFF_FF7F, 1])
def test_I14_further_the_neighbours_of_reserved_identifiers_are_given(host: int) -> None:
    one = allocator("2001:db8::/64", chance=ScriptedRandom(iids=[host])).allocate(request(ONLY6), 0)
    assert one.ip6 == IPv6Address(int(IPv6Address("2001:db8::")) | host)


def test_I14_further_the_nodes_reserved_range_holds_in_a_narrower_annotation_too() -> None:
    pool = allocator("2001:db8::/64")
    with pytest.raises(InvalidConfig, match="no usable host space"):
        pool.allocate(request(within(Family.IPV6, "2001:db8::ffff:ffff:ffff:ff80/122")), 0)
    with pytest.raises(AddressRefused):
        pool.allocate(request(within(Family.IPV6, "2001:db8::/128")), 0)


def test_I14_further_the_nodes_own_addresses_are_never_given() -> None:
    pool = allocator(
        "2001:db8::/64", "10.0.0.0/29", chance=ScriptedRandom(iids=[1, 2]), reserved=["2001:db8::1", "10.0.0.2"]
    )
    one = pool.allocate(request(), 0)
    assert [str(address) for address in one.addresses()] == ["2001:db8::2", "10.0.0.3"]
    for own in ("2001:db8::1", "10.0.0.2"):
        with pytest.raises(AddressRefused, match="the node's own"):
            pool.allocate(request(exactly(own)), 0)


def test_I14_further_an_own_address_in_quarantine_is_not_fallen_back_to() -> None:
    pool = allocator("10.0.0.0/30", reserved=["10.0.0.2"])
    pool.quarantined(ip_address("10.0.0.2"), 0, "ns/old")
    for now in (1, 200):
        with pytest.raises(PoolExhausted):
            pool.allocate(request(ONLY4), now)


def test_I14_further_an_own_address_that_is_given_up_becomes_free() -> None:
    pool = allocator("10.0.0.0/29", reserved=["10.0.0.2", "10.0.0.3"])
    pool.mark_in_use(ip_address("10.0.0.3"))
    pool.reconfigure({Family.IPV4: nets("10.0.0.0/29")}, [], 120)
    assert [ip4(pool.allocate(request(ONLY4), 0)) for _ in range(2)] == ["10.0.0.2", "10.0.0.4"]


@pytest.mark.parametrize(
    "cidr", ["2001:db8::/48", "2001:db8::/64", "2001:db8::/96", "2001:db8::/126", "2001:db8::/127"]
)
def test_I14_further_every_length_works(cidr: str) -> None:
    assert allocator(cidr).allocate(request(ONLY6), 0).ip6 in ip_network(cidr)


def test_I14_further_a_slash_128_has_no_host_part_and_is_one_address() -> None:
    pool = allocator("2001:db8::7/128")
    assert str(pool.allocate(request(ONLY6), 0).ip6) == "2001:db8::7"
    with pytest.raises(PoolExhausted, match="2001:db8::7/128"):
        pool.allocate(request(ONLY6), 0)


def test_I15_committed_addresses_are_marked_before_anything_is_allocated() -> None:
    pool = allocator("10.0.0.0/24", "2001:db8::/64", chance=ScriptedRandom(iids=[3, 4]))
    pool.mark_in_use(None, ip_address("2001:db8::3"), ip_address("10.0.0.2"), owner="ns/old")
    assert [str(one) for one in pool.allocate(request(), 0).addresses()] == ["2001:db8::4", "10.0.0.3"]
    assert pool.holder(ip_address("10.0.0.2")) == "ns/old"
    assert pool.holder(ip_address("10.0.0.9")) is None


@pytest.mark.parametrize(("family", "other"), [(Family.IPV6, "10.0.0.0/24"), (Family.IPV4, "2001:db8::/64")])
def test_I16_a_wanted_family_without_cidr_is_an_error_of_its_own(family: Family, other: str) -> None:
    pool = allocator(other)
    text = f"pod ns/web: cidr{family.suffix}: node has no CIDRs configured for this family"
    with pytest.raises(InvalidConfig, match=text):
        pool.allocate(request((FamilyRequest(family),)), 0)


def test_I17_the_narrower_of_annotation_and_node_is_allocated_from() -> None:
    pool = allocator("10.0.0.0/24", "2001:db8::/64")
    assert ip4(pool.allocate(request(within(Family.IPV4, "10.0.0.0/24")), 0)) == "10.0.0.2"
    assert ip4(pool.allocate(request(within(Family.IPV4, "10.0.0.0/8")), 0)) == "10.0.0.3"
    assert ip4(pool.allocate(request(within(Family.IPV4, "10.0.0.64/26")), 0)) == "10.0.0.66"
    assert pool.allocate(request(within(Family.IPV6, "2001:db8::42:0/112")), 0).ip6 in ip_network("2001:db8::42:0/112")


def test_I18_the_first_annotation_that_meets_a_node_cidr_wins() -> None:
    pool = allocator("10.0.0.0/24", "10.1.0.0/24")
    wanted = within(Family.IPV4, "192.0.2.0/24", "10.1.0.128/25", "10.0.0.0/24")
    assert ip4(pool.allocate(request(wanted), 0)) == "10.1.0.130"
    with pytest.raises(InvalidConfig) as caught:
        pool.allocate(request(within(Family.IPV4, "192.0.2.0/24", "198.51.100.0/24")), 0)
    assert "[192.0.2.0/24, 198.51.100.0/24]" in str(caught.value)
    assert "[10.0.0.0/24, 10.1.0.0/24]" in str(caught.value)


def test_I20_the_same_chance_gives_the_same_addresses() -> None:
    def run() -> list[Allocation]:
        pool = allocator("2001:db8::/64", "2001:db8:1::/64", "10.0.0.0/24", chance=ScriptedRandom(seed=7))
        return [pool.allocate(request(), 0) for _ in range(20)]

    assert run() == run()


def test_I20_the_real_source_is_cryptographic() -> None:
    source = CryptoRandom()
    assert {source.nibble() for _ in range(2000)} == set(range(16))
    assert {source.pick(3) for _ in range(500)} == {0, 1, 2}
    assert source.pick(1) == 0
    assert len({source.iid(8) for _ in range(100)}) == 100
    assert len(source.iid(16)) == 16


def test_a_named_address_is_given_or_none() -> None:
    pool = allocator("10.0.0.0/24", "2001:db8::/64")
    assert str(pool.allocate(request(exactly("2001:db8::5")), 0).ip6) == "2001:db8::5"
    with pytest.raises(TryAgain, match=r"pod ns/b: 2001:db8::5 is in use by ns/web"):
        pool.allocate(request(exactly("2001:db8::5"), owner="ns/b"), 0)
    with pytest.raises(AddressRefused, match=r"10\.9\.0\.1 is in no CIDR .*10\.0\.0\.0/24"):
        pool.allocate(request(exactly("10.9.0.1")), 0)
    assert pool.used == 1


def test_a_named_address_must_lie_in_the_annotations_cidr_too() -> None:
    wanted = (FamilyRequest(Family.IPV4, nets("10.0.0.128/25"), ip_address("10.0.0.5")),)
    with pytest.raises(AddressRefused, match=r"10\.0\.0\.128/25"):
        allocator("10.0.0.0/24").allocate(request(wanted), 0)


def test_a_dead_predecessor_of_the_same_owner_is_no_user_of_its_address() -> None:
    pool = allocator("10.0.0.0/24", "2001:db8::/64")
    wanted = (*exactly("2001:db8::5"), *exactly("10.0.0.9"))
    one = pool.allocate(request(wanted, owner="ns/db-0"), 0)
    with pytest.raises(TryAgain, match="in use by ns/db-0"):
        pool.allocate(request(wanted, owner="ns/db-0"), 1)
    pool.release(one.addresses(), 2, "ns/db-0")
    with pytest.raises(TryAgain, match=r"released by ns/db-0; it is free again in 119 s"):
        pool.allocate(request(wanted, owner="ns/thief"), 3)
    assert pool.allocate(request(wanted, owner="ns/db-0"), 3) == one
    pool.release(one.addresses(), 4, "ns/db-0")
    assert pool.allocate(request(wanted, owner="ns/thief"), 125) == one


def test_the_predecessors_quarantine_survives_a_restart_with_its_owner() -> None:
    pool = allocator("10.0.0.0/24")
    pool.quarantined(ip_address("10.0.0.9"), 100, "ns/db-0")
    assert ip4(pool.allocate(request(exactly("10.0.0.9"), owner="ns/db-0"), 101)) == "10.0.0.9"


def test_a_clock_that_was_set_back_does_not_lock_a_named_address() -> None:
    pool = allocator("10.0.0.0/24")
    pool.quarantined(ip_address("10.0.0.9"), 10_000, "ns/a")
    assert ip4(pool.allocate(request(exactly("10.0.0.9"), owner="ns/b"), 5)) == "10.0.0.9"


def test_R14_new_cidrs_take_effect_and_existing_pods_keep_their_addresses() -> None:
    pool = allocator("10.0.0.0/24", "2001:db8::/64")
    old = pool.allocate(request(ONLY4), 0)
    gone = pool.allocate(request(ONLY4), 0)
    pool.release(gone.addresses(), 1)
    pool.reconfigure({Family.IPV4: nets("10.7.0.0/24")}, [], 60)
    assert ip4(pool.allocate(request(ONLY4), 2)) == "10.7.0.2"
    assert pool.in_use(ip_address("10.0.0.2"))
    pool.reconfigure({Family.IPV4: nets("10.0.0.0/24")}, [], 60)
    assert ip4(pool.allocate(request(ONLY4), 3)) == "10.0.0.4"
    assert ip4(pool.allocate(request(ONLY4), 61)) == "10.0.0.3"
    pool.release(old.addresses(), 62)
    assert pool.used == 3


def test_R14_a_bad_reconfiguration_changes_nothing() -> None:
    pool = allocator("10.0.0.0/24")
    with pytest.raises(InvalidObject):
        pool.reconfigure({Family.IPV4: nets("127.0.0.0/8")}, [], 60)
    assert ip4(pool.allocate(request(ONLY4), 0)) == "10.0.0.2"


def test_an_ip_algo_that_does_not_fit_one_cidr_uses_another() -> None:
    pool = allocator("2001:db8::/112", "2001:db8:1::/64")
    wanted = request(ONLY6, ip_algo="namespace=6,pod=5")
    assert all(pool.allocate(wanted, 0).ip6 in ip_network("2001:db8:1::/64") for _ in range(5))
    with pytest.raises(InvalidConfig, match=r"pod ns/web: ip-algo .* doesn't fit 2001:db8::/112"):
        allocator("2001:db8::/112").allocate(wanted, 0)


def test_addresses_come_ipv6_first() -> None:
    one = allocator("10.0.0.0/24", "2001:db8::/64").allocate(request((*ONLY4, *ONLY6)), 0)
    assert [address.version for address in one.addresses()] == [6, 4]
