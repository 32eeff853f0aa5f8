"""What a stranger takes away from the kernel is back within 100 ms of the kernel's notice; seen by ``ip monitor``."""

import re
import statistics

import pytest
from tests.lab.conftest import Placed

from flock.model.family import FAMILIES, Family
from flock.testing.wait import wait_until
from flock_lab.lab import Lab
from flock_lab.watch import watching

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

BAR = 0.1
TIMES = 3


def _heal_times(placed: Placed, pattern: str, *commands: str) -> list[float]:
    """Seconds between the kernel's notice of the loss and the notice that the thing is back, some times over."""
    times = []
    with watching(placed.node) as watch:
        for _ in range(TIMES):
            placed.node.run("ip", *commands)
            gone = watch.await_notice(pattern, deleted=True)
            back = watch.await_notice(pattern, deleted=False)
            times.append(back.at - gone.at)
    return times


def must_be_at_once(times: list[float]) -> None:
    assert statistics.median(times) < BAR, f"seconds: {times}"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pods_host_route_is_back_at_once(pair: tuple[Placed, Placed], family: Family) -> None:
    left, _ = pair
    address = left.pod.address(family)
    must_be_at_once(_heal_times(left, rf"^{address} dev {left.pod.host_ifname} .*proto 70", f"-{family.suffix}",
                                 "route", "del", str(address), "dev", left.pod.host_ifname))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pods_neighbour_is_back_at_once(pair: tuple[Placed, Placed], family: Family) -> None:
    left, _ = pair
    address = left.pod.address(family)
    must_be_at_once(_heal_times(left, rf"^{address} dev {left.pod.host_ifname} ", "neigh", "del", str(address),
                                 "dev", left.pod.host_ifname))


@pytest.mark.parametrize("address", ["fe80::1/64", "169.254.1.1/32"])
def test_a_host_ends_gateway_address_is_back_at_once(pair: tuple[Placed, Placed], address: str) -> None:
    left, _ = pair
    must_be_at_once(_heal_times(left, rf"{left.pod.host_ifname} +inet6? {re.escape(address)}", "address", "del",
                                 address, "dev", left.pod.host_ifname))


@pytest.mark.parametrize("family", FAMILIES)
def test_R10_a_summary_blackhole_is_back_at_once(lab: Lab, pair: tuple[Placed, Placed], family: Family) -> None:
    left, _ = pair
    cidr = left.node.plan.cidrs[family]
    must_be_at_once(_heal_times(left, rf"^blackhole {cidr} .*proto 71", f"-{family.suffix}", "route", "del",
                                 "blackhole", str(cidr), "proto", "71"))
    lab.router.await_learned(cidr)


def test_all_routes_flushed_at_once_come_back(pair: tuple[Placed, Placed]) -> None:
    """``ip route flush`` goes on until a dump is empty: it races with the mending, and loses."""
    left, _ = pair
    with watching(left.node) as watch:
        for family in FAMILIES:
            left.node.run("ip", f"-{family.suffix}", "route", "flush", "proto", "70", check=False)
            watch.await_notice(rf"^{left.pod.address(family)} dev", deleted=False)
    wait_until(lambda: left.node.check(left.pod).code == 0, 5.0, "a CHECK without differences")
