"""An allocation in a /16 that is 95 % full, over one in an empty /16: in this process, no kernel and no disk.

Two ways of being full, both with their holes scattered at random: all in use, and half of it in quarantine.
"""

import random
import time
from ipaddress import IPv4Network

from bench.report import Figure, median
from flock.api.annotations import FamilyRequest
from flock.ipam.allocator import AllocationRequest, Allocator
from flock.ipam.random import CryptoRandom
from flock.model.family import Family
from flock.model.ids import AttachmentKey, ContainerID, IfName

POOL = IPv4Network("10.64.0.0/16")
FULL = 0.95
SAMPLES = 400
REPEATS = 25
NOW = 1000.0

_REQUEST = AllocationRequest(
    key=AttachmentKey(ContainerID("bench"), IfName("eth0")), owner="bench/web", families=(FamilyRequest(Family.IPV4),),
)


def allocation_figures() -> list[Figure]:
    """Microseconds of an allocation that is taken back, so that the pool stays as full as it is."""
    pools = {"empty": _pool(0, 0), "in use": _pool(FULL, 0), "half of it in quarantine": _pool(FULL / 2, FULL / 2)}
    samples: dict[str, list[float]] = {name: [] for name in pools}
    for _ in range(SAMPLES):
        for name in random.sample(sorted(pools), len(pools)):
            samples[name].append(_sample(pools[name]))
    return [
        Figure(name=f"allocation in a /16 {FULL:.0%} full, {name} / empty, both ours", group="store",
               ours=median(values) * 1e6, theirs=median(samples["empty"]) * 1e6, unit="µs", bar=2.0)
        for name, values in samples.items() if name != "empty"
    ]


def _pool(used: float, quarantined: float) -> Allocator:
    pool = Allocator(cidrs={Family.IPV4: (POOL,)}, random=CryptoRandom(), reuse_delay=3600.0)
    addresses = list(POOL.hosts())
    random.shuffle(addresses)
    in_use, resting = int(len(addresses) * used), int(len(addresses) * quarantined)
    pool.mark_in_use(*addresses[:in_use])
    for address in addresses[in_use:in_use + resting]:
        pool.quarantined(address, NOW)
    return pool


def _sample(pool: Allocator) -> float:
    start = time.perf_counter()
    for _ in range(REPEATS):
        given = pool.allocate(_REQUEST, NOW)
        pool.forget(*given.addresses())
    return (time.perf_counter() - start) / REPEATS
