"""The table of masquerade4 in the kernel: written by nft, read and removed by flock's own netlink."""

import asyncio
import json
import re
import select
import subprocess
from ipaddress import IPv4Address, IPv4Network

import pytest

from flock.netlink.generations import Generations
from flock.routing.masquerade import Masquerade
from flock.routing.masquerade_table import MasqueradeTable, NftFailed, table_differences
from flock.system.commands import ProgramMissing
from flock_lab.netns import Netns

pytestmark = pytest.mark.kernel

SMALL = Masquerade(sources=(IPv4Network("10.64.1.0/24"),), cluster=(IPv4Network("10.64.1.0/24"),))
LARGE = Masquerade(
    sources=(IPv4Network("10.64.1.0/24"), IPv4Network("10.99.0.5/32")),
    cluster=tuple(IPv4Network((int(IPv4Address("10.0.0.0")) + 512 * number, 24)) for number in range(5000)))
OTHERS = """
table ip kube-proxy { map m { type ipv4_addr : verdict; }; chain post { type nat hook postrouting priority 100; }; }
table inet other { chain c { counter; }; }
"""

def write(node: Netns, wanted: Masquerade, *, anew: bool = False, nft: tuple[str, ...] = ("nft",)) -> None:
    node.run(lambda: asyncio.run(MasqueradeTable(nft).write(wanted, anew=anew)))


def differences(node: Netns, wanted: Masquerade) -> tuple[str, ...]:
    return node.run(lambda: table_differences(wanted, MasqueradeTable().read()))


def listed(node: Netns) -> str:
    return node.command("nft", "list", "ruleset").stdout


@pytest.mark.parametrize("wanted", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("anew", [False, True])
def test_what_was_written_reads_as_written(node: Netns, wanted: Masquerade, anew: bool) -> None:
    for _ in range(2):
        write(node, wanted, anew=anew)
        assert differences(node, wanted) == ()
    assert differences(node, SMALL if wanted is LARGE else LARGE) != ()


def test_a_change_is_in_place_and_touches_nobody_else(node: Netns) -> None:
    node.command("nft", OTHERS)
    others = listed(node)
    write(node, SMALL)
    table = _handles(node)
    write(node, LARGE)
    assert _handles(node) == table
    assert node.run(MasqueradeTable().remove)
    assert listed(node) == others


def _handles(node: Netns) -> list[tuple[str, int]]:
    text = node.command("nft", "-j", "-a", "list", "ruleset").stdout
    return [(kind, one["handle"]) for entry in json.loads(text)["nftables"] for kind, one in entry.items()
            if kind in ("table", "chain")]


def test_removing_what_is_not_there_is_fine(node: Netns) -> None:
    assert not node.run(MasqueradeTable().remove)
    assert node.run(MasqueradeTable().read) is None


CHAIN = "ip flock_masquerade postrouting"
ELSEWHERE = f"delete chain {CHAIN}; add chain {CHAIN} {{ type nat hook postrouting priority 50; }}"


@pytest.mark.parametrize(("command", "said"), [
    ("delete table ip flock_masquerade", "is missing"),
    ("flush table ip flock_masquerade", "has other rules"),
    (f"add rule {CHAIN} accept", "has other rules"),
    ("add table ip flock_masquerade { flags dormant; }", "has flags 0x1"),
    (f"flush chain {CHAIN}; delete chain {CHAIN}", "has no chain postrouting"),
    (f"flush chain {CHAIN}; {ELSEWHERE}", "has no chain postrouting"),
    (f"add chain {CHAIN} {{ policy drop; }}", "has no chain postrouting"),
])
def test_what_a_stranger_did_is_named_and_mended(node: Netns, command: str, said: str) -> None:
    write(node, SMALL)
    node.command("nft", command)
    (found,) = differences(node, SMALL)
    assert said in found
    write(node, SMALL)
    assert differences(node, SMALL) == ()


def test_a_chain_of_a_stranger_in_it_is_seen_and_goes(node: Netns) -> None:
    write(node, SMALL)
    before = node.run(MasqueradeTable().read)
    assert not node.run(MasqueradeTable().foreign_chains)
    node.command("nft", "add chain ip flock_masquerade mine")
    after = node.run(MasqueradeTable().read)
    assert before is not None
    assert after is not None
    assert after.raw != before.raw
    assert node.run(MasqueradeTable().foreign_chains)
    write(node, SMALL, anew=True)
    assert not node.run(MasqueradeTable().foreign_chains)


def test_nft_that_is_missing_or_fails_is_told_and_the_table_stays(node: Netns) -> None:
    write(node, SMALL)
    with pytest.raises(ProgramMissing, match="nft-that-nobody-has can't be run"):
        write(node, LARGE, nft=("nft-that-nobody-has",))
    with pytest.raises(NftFailed, match="ip flock_masquerade can't be written: no such luck"):
        write(node, LARGE, nft=("sh", "-c", "echo no such luck >&2; exit 1"))
    with pytest.raises(NftFailed, match="died of SIGSEGV"):
        write(node, LARGE, nft=("sh", "-c", "kill -SEGV $$"))
    assert differences(node, SMALL) == ()


def test_each_transaction_is_heard_once_whatever_is_in_it(node: Netns) -> None:
    generations = node.run(Generations)
    try:
        for command in (OTHERS, "flush ruleset", "add table ip a; add table ip b; delete table ip a"):
            node.command("nft", command)
            assert select.select([generations], [], [], 5.0)[0]
            assert generations.read() == 1
        assert generations.read() == 0
    finally:
        generations.close()


def test_the_listing_is_the_same_however_often_it_is_written(node: Netns) -> None:
    write(node, LARGE)
    before = listed(node)
    write(node, LARGE)
    assert listed(node) == before
    assert re.search(r'oifname != "flk\*" masquerade fully-random', before)


PORTS = ("--reply-port-src", "53", "--reply-port-dst", "1000")
FLOWS = {
    "vain": ("10.64.1.5", "203.0.113.9", []),
    "vain, another": ("10.64.1.200", "198.51.100.7", []),
    "answered": ("10.64.1.6", "203.0.113.9", ["-u", "SEEN_REPLY"]),
    "translated": ("10.64.1.7", "203.0.113.9", ["-r", "203.0.113.9", "-q", "192.0.2.11", *PORTS]),
    "of another node": ("10.64.2.5", "203.0.113.9", []),
    "to another node's pod": ("10.64.1.8", "10.64.2.9", []),
    "to a Service": ("10.64.1.9", "10.96.0.10", ["-r", "10.64.2.9", "-q", "10.64.1.9", *PORTS]),
    "to a Service outside": ("10.64.1.10", "10.96.0.10", ["-r", "192.0.2.99", "-q", "10.64.1.10", *PORTS]),
}
GONE = {"vain", "vain, another", "to a Service outside"}


def test_flows_that_began_in_vain_are_forgotten_and_no_others(node: Netns) -> None:
    """conntrack's own program makes them and lists what is left."""
    cluster = (IPv4Network("10.64.1.0/24"), IPv4Network("10.64.2.0/24"))
    for source, target, more in FLOWS.values():
        node.command("conntrack", "-I", "-p", "udp", "-s", source, "-d", target, "--sport", "1000", "--dport", "53",
                     "-t", "60", *more)
    forgotten = node.run(lambda: MasqueradeTable().forget_untranslated(
        Masquerade(sources=SMALL.sources, cluster=cluster)))
    left = node.command("conntrack", "-L").stdout
    assert forgotten == len(GONE)
    assert {name for name, (source, _, _) in FLOWS.items() if f"src={source} " not in left} == GONE


def test_many_flows_are_looked_through(node: Netns) -> None:
    lines = [f"-I -p udp -s 10.64.1.{number % 250} -d 203.0.{number // 250}.9 --sport 1000 --dport 53 -t 60"
             for number in range(5000)]
    done = subprocess.run(node.argv(["conntrack", "-R", "-"]), input="\n".join(lines), text=True, capture_output=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert node.run(lambda: MasqueradeTable().forget_untranslated(SMALL)) == 5000
    assert node.command("conntrack", "-C").stdout.strip() == "0"
