"""The same configuration and the same reader, with every version of BIRD that is supported.

`make conformance` unpacks the versions into the cache (FLOCK_CACHE, default /var/cache/flock); one that isn't there
fails, so that a green run has left none out.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from tests.kernel.bird_pair import (
    ANYCAST4,
    ANYCAST6,
    NODE_LL,
    POD4,
    POD6,
    ROUTER_LL,
    TOR,
    BirdPair,
    bird_pair,
    run,
)

from flock.api.bgp import Bfd, ImportPolicy, Peer, SecretRef
from flock.routing.bird import BirdState
from flock.testing.wait import wait_until

pytestmark = pytest.mark.versions

GOLDEN = Path(__file__).parents[1] / "golden" / "bird"
CACHE = Path(os.environ.get("FLOCK_CACHE", "/var/cache/flock"))
VERSIONS = {
    "bird-2.0": r"2\.0\.\d+", "bird-2.17": r"2\.17\.\d+", "bird-3.1": r"3\.1\.\d+", "bird-3-newest": r"3\.\d+\.\d+"}

PEER = Peer(name="tor", address=ip_address(ROUTER_LL), interface="eth0", asn=64512,
            import_=ImportPolicy.DEFAULT_ROUTE)


@pytest.fixture(scope="module", params=VERSIONS)
def root(request: pytest.FixtureRequest) -> Path:
    found: Path = CACHE / request.param
    assert (found / "usr/sbin/bird").exists(), f"{found} isn't there: run scripts/setup bird-versions"
    done = subprocess.run(["chroot", found, "bird", "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(f"BIRD version {VERSIONS[request.param]}", (done.stdout + done.stderr).strip())
    return found


@pytest.fixture(scope="module")
def pair(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BirdPair]:
    with bird_pair(tmp_path_factory.mktemp("bird"), root) as made:
        made.apply(PEER)
        made.start_router(ROUTER_LL, NODE_LL, more='interface "tor0";')
        made.start_bird()
        made.await_session()
        yield made


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("*.conf")))
def test_every_version_approves_the_golden_files(pair: BirdPair, name: str) -> None:
    path = pair.folder / name
    path.write_bytes((GOLDEN / name).read_bytes())
    done = subprocess.run([pair.program, "-p", "-c", path], capture_output=True, check=False, timeout=20)
    assert (done.returncode, done.stdout) == (0, b"")
    # From 2.17 on a password without `authentication`, a word that 2.0 doesn't know, is worth a warning.
    warnings = [line for line in done.stderr.decode().splitlines() if "Missing authentication option" not in line]
    assert warnings == []


def test_announcing_withdrawing_and_learning(pair: BirdPair) -> None:
    anycast = [f"{ANYCAST6[1]}/128", f"{ANYCAST4[1]}/32"]
    for dst in (POD6, POD4, *anycast):
        pair.route("add", dst)
    pair.route("add", f"{ANYCAST6[2]}/128", proto=70)
    pair.await_learned(POD6, POD4, *anycast, absent=(f"{ANYCAST6[2]}/128",))
    assert pair.learned()[str(POD4)]["via"]["family"] == "inet6"
    for dst in anycast:
        pair.route("replace", dst, proto=70)
    pair.await_learned(POD6, POD4, absent=tuple(anycast))
    for dst in anycast:
        pair.route("replace", dst)
    pair.await_learned(*anycast)
    wait_until(lambda: len(pair.imported()) == 2, 15.0, "both default routes")
    assert {dst: route["metric"] for dst, route in pair.imported().items()} == {"::/0": 2048, "0.0.0.0/0": 2048}


def test_sessions_are_read(pair: BirdPair) -> None:
    session = pair.await_session()
    assert (session.neighbor, session.interface, session.neighbor_asn) == (PEER.address, "eth0", 64512)
    wait_until(lambda: all(channel.imported == 1 for channel in pair.sessions()["tor"].channels), 5.0,
               "each channel shows its default route")


def test_R9_equal_bytes_reload_nothing_and_a_change_keeps_the_other_session(pair: BirdPair) -> None:
    agent = pair.agent()
    since = pair.await_session().since
    report = pair.apply(PEER, agent=agent)
    assert (report.state, report.written, report.reloaded) == (BirdState.RUNNING, False, False)
    others = [Peer(name=f"other-{number}", address=TOR.address + number, asn=64514) for number in range(5, 9)]
    for count in (4, 2, 0):
        report = pair.apply(PEER, *others[:count], agent=agent)
        assert (dict(report.refused), report.reloaded) == ({}, True)
        assert len(pair.sessions()) == count + 1
    assert pair.await_session().since[:19] == since[:19]
    assert pair.bird is not None
    assert pair.bird.poll() is None


def test_bad_peers_are_left_out_alone(pair: BirdPair) -> None:
    bad = Peer(name="bad", address=PEER.address + 8, asn=64512)
    long = Peer(name="long", address=TOR.address + 8, asn=64512, password_secret=SecretRef("tor", "md5"))
    report = pair.apply(PEER, bad, long, passwords={"long": "x" * 81})
    assert dict(report.refused) == {
        "bad": "Link-local addresses require defined interface",
        "long": "a string of this peer must be 1 to 80 bytes long, is 81"}
    assert pair.await_session().established


def test_everything_that_a_peer_can_have_starts(pair: BirdPair) -> None:
    full = Peer(name="full", address=TOR.address + 9, asn=64512, password_secret=SecretRef("tor", "md5"), bfd=Bfd(),
                graceful_restart=60.0, local_pref=7, import_=ImportPolicy.ALL)
    far = Peer(name="far", address=TOR.address + 0x10000, asn=64512, multihop=3, bfd=Bfd())
    report = pair.apply(PEER, full, far, passwords={"full": "ü" * 40})
    assert (dict(report.refused), report.reloaded) == ({}, True)
    wait_until(lambda: pair.sessions().keys() == {"tor", "full", "far"}, 5.0, "three sessions")
    assert pair.apply(PEER).reloaded
    assert run(pair.agent().status()) is not None
