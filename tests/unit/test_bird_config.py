"""BIRD's configuration: golden files that the real ``bird -p`` has approved, and nothing that it ever refuses.

FLOCK_UPDATE_GOLDEN=1 writes the golden files anew; look at the difference before you commit it.
"""

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from ipaddress import IPv4Address, ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flock.api.bgp import Bfd, Community, ImportPolicy, Peer, SecretRef
from flock.api.node_config import parse_node_config
from flock.model.family import FAMILIES, Family
from flock.routing.bird_config import BirdConfig, bird_inputs, render_bird, trial_text
from flock.routing.peers import BirdInputs, protocol_name

GOLDEN = Path(__file__).parents[1] / "golden" / "bird"
ROUTER_ID = IPv4Address("192.0.2.11")

BASE = BirdInputs(
    node="node-1", router_id=ROUTER_ID, asn=64513,
    cidrs=(ip_network("2001:db8:0:1::/64"), ip_network("10.64.1.0/24")),
    host_routes=(ip_network("2001:db8:0:1:f::/80"),),
    anycast_cidrs=(ip_network("2001:db8:53::/64"), ip_network("10.53.0.0/28")))


def peer(address: str = "2001:db8::2", **fields: Any) -> Peer:  # noqa: ANN401 - any field of Peer
    return Peer(**({"name": "tor-a", "address": ip_address(address), "asn": 64512} | fields))


CASES: Mapping[str, BirdInputs] = {
    "no-peer": replace(BASE, asn=0),
    "no-cidr": BirdInputs(node="node-1", router_id=ROUTER_ID, asn=64513, peers=(peer(),)),
    "external-ipv6": replace(BASE, peers=(peer(import_=ImportPolicy.DEFAULT_ROUTE),)),
    "external-ipv4": replace(BASE, peers=(peer("192.0.2.1", families=(Family.IPV4,), import_=ImportPolicy.ALL),)),
    "internal": replace(BASE, peers=(peer(asn=64513, local_pref=50), peer("192.0.2.1", name="b", asn=64513))),
    "link-local": replace(BASE, peers=(peer("fe80::1", interface="bond0.100"), peer("fe80::1", interface="eth1"))),
    "everything": replace(
        BASE, drain=True, passwords={"tor-a": "s\\ecret; }"}, sources={Family.IPV6: ip_address("2001:db8::1")},
        peers=(
            peer(name="tor-a", password_secret=SecretRef("tor", "md5"), graceful_restart=60.0, bfd=Bfd(0.3, 3),
                 local_pref=100, import_=ImportPolicy.ALL,
                 communities=(Community((64513, 100)), Community((64513, 1, 2)))),
            peer("2001:db8:f::9", name="far", multihop=3, bfd=Bfd(1.0, 5)),
        )),
}


@pytest.fixture
def approve(tmp_path: Path) -> Callable[[str], str]:
    """What the real BIRD says of a text; empty where it takes it."""

    def ask(text: str) -> str:
        path = tmp_path / "bird.conf"
        path.write_bytes(text.encode())
        done = subprocess.run(["bird", "-p", "-c", path], capture_output=True, check=False, timeout=10)
        return "" if done.returncode == 0 else f"{done.returncode} {done.stderr.decode(errors='replace')}"

    return ask


@pytest.mark.parametrize("name", CASES)
def test_golden_files_that_bird_approves(name: str, approve: Callable[[str], str]) -> None:
    config = render_bird(CASES[name])
    path = GOLDEN / f"{name}.conf"
    if os.environ.get("FLOCK_UPDATE_GOLDEN"):
        path.write_text(config.text)
    assert not config.refused
    assert config.text == path.read_text()
    assert approve(config.text) == ""
    for text in config.peers:
        assert approve(trial_text(text, config)) == ""


def test_R9_equal_input_in_another_order_gives_equal_bytes() -> None:
    inputs = CASES["everything"]
    turned = replace(inputs, peers=inputs.peers[::-1], cidrs=inputs.cidrs[::-1],
                     anycast_cidrs=inputs.anycast_cidrs[::-1])
    assert render_bird(turned).text == render_bird(inputs).text


def test_a_protocols_name_is_the_sessions_and_no_users_word() -> None:
    names = {protocol_name(one) for one in (peer(), peer("fe80::1", interface="a"), peer("fe80::1", interface="b"))}
    assert len(names) == 3
    assert protocol_name(peer(name="protocol", asn=1)) == protocol_name(peer(name='x"; }', asn=2))
    assert all(name.startswith("peer_x") and name.isalnum() is False and len(name) <= 64 for name in names)


def test_one_neighbour_twice_is_one_session_and_one_refusal() -> None:
    config = render_bird(replace(BASE, peers=(peer(), peer("2001:DB8:0::2", name="tor-b"))))
    assert config.refused == {"tor-b": 'has the address and interface of peer "tor-a"'}
    assert len(config.peers) == 1


@pytest.mark.parametrize(("inputs", "reason"), [
    (replace(BASE, own_addresses=frozenset({ip_address("2001:db8::2")}), peers=(peer(),)),
     "address 2001:db8::2 is this node's own"),
    (replace(BASE, interfaces=frozenset({"eth0"}), peers=(peer("fe80::1", interface="eth1"),)),
     "interface 'eth1' isn't there"),
    (replace(BASE, peers=(peer(password_secret=SecretRef("tor", "md5")),)),
     "passwordSecretRef tor/md5 isn't known"),
    (replace(BASE, passwords={"tor-a": "x" * 81}, peers=(peer(password_secret=SecretRef("tor", "md5")),)),
     "a string of this peer must be 1 to 80 bytes long, is 81"),
    (replace(BASE, peers=(peer(multihop=2, bfd=Bfd()),)),
     "multihop with bfd needs an own IPv6 address, and none is known"),
])
def test_what_bird_would_take_and_sleep_or_die_on_is_refused_here(inputs: BirdInputs, reason: str) -> None:
    good = peer("192.0.2.9", name="good")
    config = render_bird(replace(inputs, peers=(*inputs.peers, good)))
    assert config.refused == {"tor-a": reason}
    assert [text.name for text in config.peers] == ["good"]


@pytest.mark.parametrize("password", ["", 'a"b', "a\nb", "a\0b", "p" * 81, "\udc80"])
def test_a_password_that_bird_cant_hold_is_never_written_nor_shown(password: str) -> None:
    config = render_bird(replace(BASE, passwords={"tor-a": password},
                                 peers=(peer(password_secret=SecretRef("tor", "md5")),)))
    assert list(config.refused) == ["tor-a"]
    assert "password" not in config.text
    assert not password or password not in config.refused["tor-a"]


@pytest.mark.parametrize("policy", ImportPolicy)
def test_own_prefixes_never_come_in_and_nothing_comes_by_default(policy: ImportPolicy) -> None:
    body = _filter(render_bird(replace(BASE, peers=(peer(import_=policy),))), "in")
    accepts = "accept;" in body
    assert accepts == (policy is not ImportPolicy.NONE)
    if accepts:
        assert body.index("net ~ FLOCK_OURS6 then reject") < body.index("accept;")
        assert ("if net.len != 0 then reject;" in body) == (policy is ImportPolicy.DEFAULT_ROUTE)
    else:
        assert body.split() == ["reject;"]


def test_only_own_prefixes_leave() -> None:
    config = render_bird(CASES["everything"])
    sets = {line.split()[1]: line for line in config.text.splitlines() if line.startswith("define FLOCK_O")}
    assert sets["FLOCK_OUT6"].endswith(
        "= [ 2001:db8:0:1::/64, 2001:db8:0:1:f::/80{128,128}, 2001:db8:53::/64{128,128} ];")
    assert sets["FLOCK_OUT4"].endswith("= [ 10.53.0.0/28{32,32}, 10.64.1.0/24 ];")
    assert sets["FLOCK_OURS6"].endswith("= [ 2001:db8:0:1::/64+ ];")
    assert "if krt_source != 71 then reject;" in config.head
    assert _filter(config, "out").startswith("if source != RTS_INHERIT then reject;")


def test_what_a_node_config_says_about_bird() -> None:
    raw = {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "node-1"},
           "spec": {"cidr6": ["2001:db8:0:1::/64"], "cidr4": ["10.64.1.0/24"], "hostRoutes": ["2001:db8:0:1:f::/80"],
                    "anycast": [{"cidr": "2001:db8:53::/64"}, {"cidr": "10.53.0.0/28"}],
                    "bgp": {"asn": 64513, "peers": [{"name": "tor-a", "address": "2001:db8::2", "asn": 64512}]}}}
    config = parse_node_config(raw, strict=True)
    assert bird_inputs(config, ROUTER_ID) == replace(BASE, peers=(peer(),))
    del raw["spec"]["bgp"]  # type: ignore[attr-defined]
    assert bird_inputs(parse_node_config(raw, strict=True), ROUTER_ID) == CASES["no-peer"]


TEXTS = st.text(st.characters(codec=None), max_size=90)
ADDRESSES = st.one_of(st.ip_addresses(), st.sampled_from([ip_address(text) for text in (
    "fe80::1", "::", "::1", "ff02::1", "0.0.0.0", "127.0.0.1", "255.255.255.255", "::ffff:10.0.0.1")]))
PEERS = st.builds(
    Peer, name=TEXTS, address=ADDRESSES, asn=st.integers(1, 4294967294), families=st.sampled_from([
        FAMILIES, (Family.IPV6,), (Family.IPV4,)]),
    interface=st.none() | st.sampled_from(["eth0", "bond0.100", 'x"; }', "*", "a" * 16, ""]) | TEXTS,
    password_secret=st.none() | st.just(SecretRef("tor", "md5")), graceful_restart=st.none() | st.floats(1, 4095),
    bfd=st.none() | st.builds(Bfd, st.floats(0.01, 60), st.integers(1, 255)), multihop=st.none() | st.integers(1, 255),
    local_pref=st.none() | st.integers(0, 4294967295),
    communities=st.lists(st.builds(Community, st.tuples(*[st.integers(0, 65535)] * 2)
                                   | st.tuples(*[st.integers(0, 4294967295)] * 3)), max_size=3).map(tuple),
    import_=st.sampled_from(ImportPolicy))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(peers=st.lists(PEERS, max_size=4, unique_by=lambda one: one.name), password=TEXTS, drain=st.booleans())
def test_no_peer_however_hostile_spoils_the_file(
        peers: list[Peer], password: str, drain: bool, approve: Callable[[str], str]) -> None:
    inputs = replace(BASE, peers=tuple(peers), passwords={one.name: password for one in peers}, drain=drain,
                     sources={Family.IPV6: ip_address("2001:db8::1"), Family.IPV4: ip_address("192.0.2.2")})
    config = render_bird(inputs)
    refused = set(config.refused) | {text.name for text in config.peers if approve(trial_text(text, config))}
    assert approve(config.without(refused)) == ""
    assert {text.name for text in config.peers} | set(config.refused) == {one.name for one in peers}
    for line in config.text.splitlines():
        assert line.count('"') % 2 == 0
    protocols = [line for line in config.text.splitlines() if line.startswith("protocol ")]
    assert all(line.split()[2].startswith(("flock_", "peer_")) for line in protocols)


def _filter(config: BirdConfig, way: str) -> str:
    """The body of the first peer's filter of one direction."""
    text = config.text
    start = text.index("{", text.index(f"filter {config.peers[0].protocol}_{way} ")) + 1
    return text[start: text.index("\n}", start)].strip()
