"""The table of masquerade4, written and read by every version of nft that is supported, side by side on one node.

`make conformance` unpacks the versions into the cache (FLOCK_CACHE, default /var/cache/flock); one that isn't there
fails, so that a green run has left none out.
"""

import asyncio
import os
import re
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from flock.routing.masquerade import Masquerade
from flock.routing.masquerade_table import MasqueradeTable, NftFailed, table_differences
from flock_lab.netns import Netns

pytestmark = pytest.mark.versions

CACHE = Path(os.environ.get("FLOCK_CACHE", "/var/cache/flock"))
VERSIONS = {"nft-1.0": r"1\.0\.6", "nft-1.1": r"1\.1\.\d+"}
Nft = tuple[str, ...]

SMALL = Masquerade(sources=(IPv4Network("10.64.1.0/24"),), cluster=(IPv4Network("10.64.1.0/24"),))
LARGE = Masquerade(sources=(IPv4Network("10.64.1.0/24"), IPv4Network("10.99.0.5/32")),
                   cluster=tuple(IPv4Network(f"10.{number // 128}.{number % 128 * 2}.0/24") for number in range(1000)))


@pytest.fixture(scope="module")
def programs() -> dict[str, Nft]:
    found: dict[str, Nft] = {}
    for name, version in VERSIONS.items():
        root = CACHE / name
        assert (root / "usr/sbin/nft").exists(), f"{root} isn't there: run scripts/setup bird-versions"
        found[name] = ("chroot", str(root), "nft")
        done = subprocess.run([*found[name], "--version"], capture_output=True, text=True, check=True)
        assert re.match(rf"nftables v{version} ", done.stdout)
    return found


@pytest.fixture
def node() -> Iterator[Netns]:
    with Netns.create() as netns:
        yield netns


def write(node: Netns, nft: Nft, wanted: Masquerade, *, anew: bool = False) -> None:
    node.run(lambda: asyncio.run(MasqueradeTable(nft).write(wanted, anew=anew)))


def right(node: Netns, wanted: Masquerade) -> bool:
    return node.run(lambda: not table_differences(wanted, MasqueradeTable().read()))


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("wanted", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("second", VERSIONS)
@pytest.mark.parametrize("first", VERSIONS)
def test_each_writes_and_reads_what_the_other_wrote(
    node: Netns, programs: dict[str, Nft], first: str, second: str, wanted: Masquerade, anew: bool,
) -> None:
    write(node, programs[first], wanted)
    listings = {node.command(*nft, "list", "ruleset").stdout for nft in programs.values()}
    assert len(listings) == 1
    assert "masquerade fully-random" in listings.pop()
    for again in (SMALL, wanted):
        write(node, programs[second], again, anew=anew)
        assert right(node, again)
    for nft in programs.values():
        node.command(*nft, "add table ip other; add set ip other s { type ipv4_addr . inet_service; }; "
                           "add element ip other s { 192.0.2.1 . 80 }; delete table ip other")
    node.command(*programs[second], "delete table ip flock_masquerade")


def test_where_strangers_make_an_old_nft_die_it_is_told_and_removal_works(
    node: Netns, programs: dict[str, Nft],
) -> None:
    write(node, programs["nft-1.0"], SMALL)
    node.command(*programs["nft-1.1"], "add table ip other; add set ip other s { type ipv4_addr; }")
    assert node.command(*programs["nft-1.0"], "list", "ruleset", check=False).returncode == -11
    with pytest.raises(NftFailed, match=r"died of SIGSEGV, as nft 1\.0\.6 does"):
        write(node, programs["nft-1.0"], LARGE)
    assert right(node, SMALL)
    write(node, programs["nft-1.1"], LARGE)
    assert right(node, LARGE)
    assert node.run(MasqueradeTable().remove)
