"""BIRD for real: what the kernel holds under protocol 71 is at the router; what comes in is what `import` allows."""

import signal
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from tests.kernel.bird_pair import (
    ANYCAST4,
    ANYCAST6,
    HOST_ROUTE,
    NODE,
    NODE_LL,
    POD4,
    POD6,
    ROUTER,
    ROUTER_LL,
    TOR,
    BirdPair,
    bird_pair,
    run,
)

from flock.api.bgp import ImportPolicy, Peer
from flock.model.family import Family
from flock.routing.bird import BirdState
from flock.routing.bird_socket import BirdHung
from flock.testing.wait import wait_until

pytestmark = pytest.mark.kernel

ONE_BY_ONE = f"{HOST_ROUTE[9]}/128"
AT_HOME = f"{POD6[9]}/128"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BirdPair]:
    """One established IPv6 session with both families, for the tests that leave it so."""
    with bird_pair(tmp_path_factory.mktemp("bird")) as made:
        assert made.apply(TOR).state is BirdState.ABSENT
        made.start_router(ROUTER[Family.IPV6], NODE[Family.IPV6])
        made.start_bird()
        made.await_session()
        made.route("add", POD6)
        made.route("add", POD4)
        made.await_learned(POD6, POD4)
        yield made


def test_R7_summaries_are_announced_and_ipv4_goes_over_an_ipv6_next_hop(pair: BirdPair) -> None:
    learned = pair.learned()
    assert learned.keys() == {str(POD6), str(POD4)}
    assert learned[str(POD6)]["gateway"] == str(NODE[Family.IPV6])
    assert learned[str(POD4)]["via"] == {"family": "inet6", "host": str(NODE[Family.IPV6])}


def test_only_protocol_71_inside_own_lists_is_announced(pair: BirdPair) -> None:
    outside = ["2001:db8:dead::/64", "10.99.0.0/24", AT_HOME, f"{POD4[9]}/32", str(ANYCAST6), str(HOST_ROUTE)]
    inside = [ONE_BY_ONE, f"{ANYCAST6[1]}/128", f"{ANYCAST4[1]}/32"]
    home = [f"{HOST_ROUTE[8]}/128", f"{ANYCAST6[2]}/128"]
    for dst in (*outside, *inside):
        pair.route("add", dst)
    for dst in home:
        pair.route("add", dst, proto=70)
    pair.await_learned(*inside)
    assert pair.learned().keys() == {str(POD6), str(POD4), *inside}
    for dst in (*outside, *inside, *home):
        pair.route("del", dst, proto=70 if dst in home else 71)
    pair.await_learned(POD6, POD4, absent=tuple(inside))


@pytest.mark.parametrize("dst", [f"{ANYCAST6[3]}/128", f"{ANYCAST4[3]}/32"])
def test_replacing_71_by_70_in_place_withdraws_and_back_announces(pair: BirdPair, dst: str) -> None:
    pair.route("add", dst)
    pair.await_learned(dst)
    pair.route("replace", dst, proto=70)
    pair.await_learned(absent=(dst,))
    pair.route("replace", dst)
    pair.await_learned(dst)
    pair.route("del", dst)
    pair.await_learned(absent=(dst,))
    assert pair.learned().keys() == {str(POD6), str(POD4)}


def test_the_default_route_comes_in_at_metric_2048_and_nothing_else(pair: BirdPair) -> None:
    wait_until(lambda: len(pair.imported()) == 2, 10.0, "both default routes")
    imported = pair.imported()
    assert {dst: route["metric"] for dst, route in imported.items()} == {"::/0": 2048, "0.0.0.0/0": 2048}
    assert imported["::/0"]["gateway"] == str(ROUTER[Family.IPV6])
    assert imported["0.0.0.0/0"]["via"] == {"family": "inet6", "host": str(ROUTER[Family.IPV6])}


def test_R9_equal_bytes_reload_nothing_and_a_restarted_agent_neither(pair: BirdPair) -> None:
    before = run(pair.agent().status())
    agent = pair.agent()
    for report in (pair.apply(TOR, agent=agent), pair.apply(TOR, agent=agent), pair.apply(TOR)):
        assert (report.written, report.reloaded) == (False, False)
    after = run(pair.agent().status())
    assert before is not None
    assert after is not None
    # BIRD turns its own clock into the wall's at each question.
    assert after.last_reconfiguration == pytest.approx(before.last_reconfiguration, abs=0.05)


def test_a_bad_peer_is_left_out_and_the_session_of_the_good_one_stays(pair: BirdPair) -> None:
    since = pair.await_session().since
    bad = Peer(name="bad", address=ip_address("fe80::9"), asn=64512)
    report = pair.apply(TOR, bad)
    assert dict(report.refused) == {"bad": "Link-local addresses require defined interface"}
    good = Peer(name="other", address=TOR.address + 9, asn=64514)
    report = pair.apply(TOR, bad, good)
    assert report.reloaded
    assert pair.sessions().keys() == {"tor", "other"}
    assert pair.apply(TOR).reloaded
    assert pair.sessions().keys() == {"tor"}
    assert pair.await_session().since[:19] == since[:19]
    assert {str(POD6), str(POD4)} <= pair.learned().keys()


@pytest.mark.parametrize("policy", [ImportPolicy.NONE, ImportPolicy.ALL])
def test_import_takes_what_it_says_and_never_the_nodes_own(pair: BirdPair, policy: ImportPolicy) -> None:
    peer = Peer(name="tor", address=TOR.address, asn=64512, import_=policy)
    pair.apply(peer)
    wanted = set() if policy is ImportPolicy.NONE else {"::/0", "0.0.0.0/0", "2001:db8:ff::/48", "198.51.100.0/24"}
    wait_until(lambda: pair.imported().keys() == wanted, 10.0, f"exactly {wanted} came in")
    assert pair.await_session().established
    pair.apply(TOR)
    wait_until(lambda: len(pair.imported()) == 2, 10.0, "the default routes are back")


def test_drain_keeps_the_session(pair: BirdPair) -> None:
    since = pair.await_session().since
    assert pair.apply(TOR, drain=True).reloaded
    assert pair.await_session().since[:19] == since[:19]
    wait_until(lambda: "(65535,0)" in pair.ask_router("show", "route", str(POD6), "all"), 5.0, "GRACEFUL_SHUTDOWN")
    assert pair.apply(TOR).reloaded


def test_a_stopped_bird_is_a_typed_error_within_its_deadline(pair: BirdPair) -> None:
    agent = pair.agent()
    assert pair.bird is not None
    pair.bird.send_signal(signal.SIGSTOP)
    try:
        start = time.monotonic()
        with pytest.raises(BirdHung, match="BIRD doesn't answer"):
            run(agent.sessions())
        assert 4.5 < time.monotonic() - start < 6
        assert agent.state is BirdState.HUNG
    finally:
        pair.bird.send_signal(signal.SIGCONT)
    assert pair.await_session().established


def test_a_killed_bird_is_a_state_and_the_next_one_reads_the_file(pair: BirdPair) -> None:
    pair.stop_bird()
    agent = pair.agent()
    assert run(agent.sessions()) == ()
    assert agent.state is BirdState.ABSENT
    other = Peer(name="other", address=TOR.address + 9, asn=64514)
    report = pair.apply(TOR, other, agent=agent)
    assert (report.state, report.written, report.reloaded) == (BirdState.ABSENT, True, False)
    # Graceful restart: the routes that BIRD left in the kernel are there all the while.
    assert len(pair.imported()) == 2
    pair.start_bird("-R")
    assert len(pair.imported()) == 2
    report = pair.apply(TOR, other, agent=agent)
    assert (report.state, report.written, report.reloaded) == (BirdState.RUNNING, False, False)
    assert pair.sessions().keys() == {"tor", "other"}
    pair.await_session()
    assert pair.apply(TOR, agent=agent).reloaded


@pytest.mark.parametrize(("address", "local", "node", "asn", "more"), [
    (ROUTER_LL, ROUTER_LL, NODE_LL, 64512, 'interface "tor0";'),
    (str(ROUTER[Family.IPV4]), ROUTER[Family.IPV4], NODE[Family.IPV4], 64512, ""),
    (str(ROUTER[Family.IPV6]), ROUTER[Family.IPV6], NODE[Family.IPV6], 64513, "direct;"),
    (str(ROUTER[Family.IPV4]), ROUTER[Family.IPV4], NODE[Family.IPV4], 64513, "direct;"),
], ids=["link-local", "external-ipv4", "internal-ipv6", "internal-ipv4"])
def test_every_kind_of_session_carries_routes_both_ways(
        tmp_path: Path, address: str, local: str, node: str, asn: int, more: str) -> None:
    link_local = address == ROUTER_LL
    families = (Family.IPV6, Family.IPV4) if ":" in address else (Family.IPV4,)
    peer = Peer(name="tor", address=ip_address(address), asn=asn, interface="eth0" if link_local else None,
                families=families, import_=ImportPolicy.DEFAULT_ROUTE)
    with bird_pair(tmp_path) as pair:
        pair.apply(peer)
        pair.start_bird()
        pair.start_router(local, node, asn=asn, more=more)
        pair.await_session()
        pair.route("add", POD6)
        pair.route("add", POD4)
        wanted = {str(POD4), str(POD6)} if len(families) == 2 else {str(POD4)}
        pair.await_learned(*wanted)
        defaults = {"::/0", "0.0.0.0/0"} if len(families) == 2 else {"0.0.0.0/0"}
        wait_until(lambda: pair.imported().keys() == defaults, 10.0, "the default routes")
        assert all(route.get("type") != "unreachable" for route in pair.imported().values())
