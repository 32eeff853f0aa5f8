"""NodeConfig: I11, I12, I13 and the rules of each field, all problems together."""

from collections.abc import Mapping
from ipaddress import IPv4Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.api.node_config import (
    AnycastRule,
    Bfd,
    Community,
    Defaults,
    ImportPolicy,
    NodeConfig,
    Peer,
    SecretRef,
    parse_node_config,
)
from flock.api.problems import InvalidObject
from flock.api.selector import Operator, Requirement, Selector
from flock.errors import InvalidConfig
from flock.model.family import Family

PEER: dict[str, object] = {"name": "tor-a", "address": "2001:db8:f::1", "asn": 64512}


def config(**spec: object) -> dict[str, object]:
    return {
        "apiVersion": "flock.fritzlab.net/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {"name": "node-1"},
        "spec": spec,
        "status": {"whatever": 1},
    }


def parse(**spec: object) -> NodeConfig:
    return parse_node_config(config(**spec), strict=True)


def problems(raw: object, *, strict: bool = True) -> list[str]:
    with pytest.raises(InvalidObject) as caught:
        parse_node_config(raw, strict=strict)
    assert isinstance(caught.value, InvalidConfig)
    assert caught.value.msg.isprintable()
    return [str(problem) for problem in caught.value.problems]


def peer_problems(**changes: object) -> list[str]:
    peer = {**PEER, **changes}
    return problems(config(bgp={"asn": 64513, "peers": [{k: v for k, v in peer.items() if v is not ...}]}))


def one_peer(**changes: object) -> Peer:
    found = parse(bgp={"asn": 64513, "peers": [{**PEER, **changes}]}).spec.bgp
    assert found is not None
    assert not found.bad_peers
    return found.peers[0]


def test_the_whole_schema() -> None:
    found = parse(
        cidr6=["2001:db8:0:1::/64"],
        cidr4=["10.64.1.0/24"],
        defaults={"ipv6": True, "ipv4": False, "ipAlgo": "namespace,pod"},
        mtu=1400,
        reuseDelay="1m30s",
        masquerade4=True,
        hostRoutes=["2001:db8:0:1:f::/80", "10.64.1.128/25"],
        anycast=[{"cidr": "2001:db8:53::/64", "namespaceSelector": {"matchLabels": {"dns": "true"}}}],
        bgp={
            "asn": 64513,
            "routerID": "192.0.2.11",
            "mesh": True,
            "peers": [
                {
                    "name": "tor-a",
                    "address": "fe80::1",
                    "interface": "eth0",
                    "asn": 64512,
                    "passwordSecretRef": {"name": "tor", "key": "md5"},
                    "families": ["ipv6", "ipv4"],
                    "gracefulRestart": {"restartTime": "90s"},
                    "bfd": {"interval": "200ms", "multiplier": 5},
                    "localPref": 100,
                    "communities": ["64513:100", "64513:1:2"],
                    "import": "default-route",
                }
            ],
        },
    )
    spec = found.spec
    assert found.name == "node-1"
    assert spec.cidrs(Family.IPV6) == spec.cidr6 == (ip_network("2001:db8:0:1::/64"),)
    assert spec.cidrs(Family.IPV4) == spec.cidr4 == (ip_network("10.64.1.0/24"),)
    assert (spec.defaults.ipv6, spec.defaults.ipv4, len(spec.defaults.ip_algo)) == (True, False, 2)
    assert (spec.mtu, spec.reuse_delay, spec.masquerade4) == (1400, 90.0, True)
    assert spec.host_routes == (ip_network("2001:db8:0:1:f::/80"), ip_network("10.64.1.128/25"))
    label = Requirement("dns", Operator.IN, frozenset({"true"}))
    assert spec.anycast == (AnycastRule(ip_network("2001:db8:53::/64"), Selector((label,))),)
    assert spec.bgp is not None
    assert (spec.bgp.asn, spec.bgp.router_id, spec.bgp.mesh) == (64513, IPv4Address("192.0.2.11"), True)
    assert spec.bgp.peers == (
        Peer(
            name="tor-a",
            address=ip_address("fe80::1"),
            interface="eth0",
            asn=64512,
            password_secret=SecretRef("tor", "md5"),
            families=(Family.IPV6, Family.IPV4),
            graceful_restart=90.0,
            bfd=Bfd(0.2, 5),
            local_pref=100,
            communities=(Community((64513, 100)), Community((64513, 1, 2))),
            import_=ImportPolicy.DEFAULT_ROUTE,
        ),
    )


def test_what_is_left_out_has_its_default() -> None:
    spec = parse().spec
    assert (spec.cidr6, spec.cidr4, spec.mtu, spec.reuse_delay, spec.bgp) == ((), (), None, 120.0, None)
    assert spec.defaults == Defaults()
    assert parse(mtu=None, bgp=None, cidr6=None) == parse()
    assert one_peer().import_ is ImportPolicy.NONE
    assert one_peer().families == (Family.IPV6, Family.IPV4)
    assert one_peer(address="192.0.2.1").families == (Family.IPV4,)
    assert one_peer(gracefulRestart={}, bfd={}).graceful_restart == 120.0
    assert one_peer(bfd={}).bfd == Bfd(0.3, 3)


@pytest.mark.parametrize(
    ("field", "text", "rule"),
    [
        ("cidr6", "10.0.0.0/8", "is IPv4"),
        ("cidr4", "2001:db8::/32", "is IPv6"),
        ("cidr6", "ff02::/16", "is multicast"),
        ("cidr6", "fe80::/64", "is link-local"),
        ("cidr6", "::1/128", "is loopback"),
        ("cidr6", "::/128", "is unspecified"),
        ("cidr6", "::/0", "is the default route, which covers every address"),
        ("cidr6", "::/3", "covers unspecified addresses (::/128)"),
        ("cidr6", "::ffff:10.0.0.0/104", "is IPv4-mapped; write it as IPv4"),
        ("cidr6", "fe00::/7", "covers link-local addresses (fe80::/10)"),
        ("cidr4", "::ffff:10.0.0.0/104", "is IPv4-mapped; write it as IPv4"),
        ("cidr4", "255.255.212.1/24", "is reserved (class E)"),
        ("cidr4", "240.0.0.0/8", "is reserved (class E)"),
        ("cidr4", "224.0.0.0/24", "is multicast"),
        ("cidr4", "127.0.0.0/8", "is loopback"),
        ("cidr4", "169.254.0.0/16", "is link-local"),
        ("cidr4", "0.0.0.0/8", "is unspecified"),
        ("cidr4", "0.0.0.0/0", "is the default route, which covers every address"),
        ("cidr4", "128.0.0.0/1", "covers link-local addresses (169.254.0.0/16)"),
        ("cidr4", "10.0.0.0/33", "has a prefix length that is not from 0 to 32"),
        ("cidr6", "2001:db8::/129", "has a prefix length that is not from 0 to 128"),
        ("cidr6", "fd00::/64 ", "has white space around it"),
        ("cidr6", "fd00::1", "is an address; a CIDR needs a length (/128 for this address alone)"),
        ("cidr6", "fd00::–/64", "is not a CIDR (address/length)"),
        ("cidr6", "new-pool", "is not a CIDR (address/length)"),
        ("cidr6", "fe80::1%eth0/64", "is not a CIDR (address/length)"),
        ("cidr4", "10.0.0.0/255.255.255.0", "has a prefix length that is not from 0 to 32"),
        ("cidr4", "010.0.0.0/8", "is not a CIDR (address/length)"),
        ("cidr4", "", "is not a CIDR (address/length)"),
    ],
)
def test_I11_a_bad_cidr_is_named_with_field_text_and_reason(field: str, text: str, rule: str) -> None:
    assert problems(config(**{field: [text]})) == [f'spec.{field} "{text}" {rule}']


def test_I11_further_every_bad_cidr_is_reported_at_once() -> None:
    found = problems(config(cidr6=["10.0.0.0/8", "2001:db8::/64", "ff00::/8"], cidr4=["::/0", "10.0.0.0/99"]))
    assert [one.split('"')[1] for one in found] == ["10.0.0.0/8", "ff00::/8", "::/0", "10.0.0.0/99"]


@pytest.mark.parametrize(
    ("cidrs", "rule"),
    [
        (["10.0.0.0/16", "10.0.1.0/24"], 'spec.cidr4 "10.0.1.0/24" overlaps 10.0.0.0/16'),
        (["10.0.1.0/24", "10.0.0.0/16"], 'spec.cidr4 "10.0.0.0/16" overlaps 10.0.1.0/24'),
        (["10.0.1.0/24", "10.0.1.7/24"], 'spec.cidr4 "10.0.1.0/24" is there twice'),
    ],
)
def test_I11_further_overlapping_cidrs_are_refused(cidrs: list[str], rule: str) -> None:
    assert problems(config(cidr4=cidrs)) == [rule]


def test_I12_host_bits_are_masked_off() -> None:
    spec = parse(cidr4=["10.0.0.5/24"], cidr6=["2001:DB8::5/64"]).spec
    assert spec.cidr4 == (ip_network("10.0.0.0/24"),)
    assert spec.cidr6 == (ip_network("2001:db8::/64"),)


def test_I13_one_cidr_has_one_identity() -> None:
    assert parse(cidr6=["2001:0DB8:0:0::/64"]) == parse(cidr6=["2001:db8::/64"])
    assert problems(config(cidr6=["2001:0DB8:0:0::/64", "2001:db8::/64"]))[0].endswith("is there twice")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"mtu": 1279, "cidr6": ["fd00::/64"]}, "spec.mtu 1279 must be a whole number from 1280 to 65535"),
        ({"mtu": "1500"}, 'spec.mtu "1500" must be a whole number from 576 to 65535'),
        ({"mtu": True}, "spec.mtu true must be a whole number from 576 to 65535"),
        ({"mtu": 1500.5}, "spec.mtu 1500.5 must be a whole number from 576 to 65535"),
        ({"mtu": 10**5000}, "spec.mtu a number of 16610 bits must be a whole number from 576 to 65535"),
        ({"reuseDelay": 120}, 'spec.reuseDelay 120 must be a duration such as "120s" or "300ms"'),
        ({"reuseDelay": "soon"}, 'spec.reuseDelay "soon" must be a duration such as "120s" or "300ms"'),
        ({"reuseDelay": "25h"}, 'spec.reuseDelay "25h" must be a duration from 0s to 86400s'),
        ({"reuseDelay": "-1s"}, 'spec.reuseDelay "-1s" must be a duration such as "120s" or "300ms"'),
        ({"masquerade4": "yes"}, 'spec.masquerade4 "yes" must be true or false'),
        ({"cidr6": "fd00::/64"}, 'spec.cidr6 "fd00::/64" must be a list'),
        ({"cidr6": [7]}, "spec.cidr6 7 must be a string of at most 4096 characters"),
        ({"cidr6": [None]}, "spec.cidr6 null must be a string of at most 4096 characters"),
        ({"cidr6": {}}, "spec.cidr6 a mapping must be a list"),
        ({"defaults": []}, "spec.defaults a list must be a mapping"),
        ({"defaults": {"ipv6": 1}}, "spec.defaults.ipv6 1 must be true or false"),
        ({"defaults": {"ipAlgo": "pod,pod"}}, 'spec.defaults.ipAlgo "pod,pod" has the field pod twice'),
        (
            {"defaults": {"ipv6": False, "ipv4": False}},
            "spec.defaults.ipv4 false leaves pods without any address, ipv6 being false, too",
        ),
        (
            {"cidr6": ["fd00::/64"], "hostRoutes": ["fd00:1::/64"]},
            'spec.hostRoutes "fd00:1::/64" lies in none of the node\'s CIDRs',
        ),
        (
            {"cidr6": ["fd00::/64"], "anycast": [{"cidr": "fd00::53/128"}]},
            'spec.anycast[0].cidr "fd00::53/128" overlaps the pods\' own CIDR fd00::/64',
        ),
        ({"anycast": [{}]}, "spec.anycast[0].cidr is required"),
        ({"anycast": [{"cidr": "ff00::/8"}]}, 'spec.anycast[0].cidr "ff00::/8" is multicast'),
        (
            {"anycast": [{"cidr": "fd00::/64", "namespaceSelector": {"matchLabels": {"a": 1}}}]},
            "spec.anycast[0].namespaceSelector.matchLabels 1 must be a string",
        ),
        ({"bgp": {}}, "spec.bgp.asn is required"),
        ({"bgp": {"asn": 0}}, "spec.bgp.asn 0 must be a whole number from 1 to 4294967294"),
        ({"bgp": {"asn": 4294967295}}, "spec.bgp.asn 4294967295 must be a whole number from 1 to 4294967294"),
        ({"bgp": {"asn": "64512"}}, 'spec.bgp.asn "64512" must be a whole number from 1 to 4294967294'),
        ({"bgp": {"asn": 23456}}, "spec.bgp.asn 23456 is a reserved AS number"),
        ({"bgp": {"asn": 65535}}, "spec.bgp.asn 65535 is a reserved AS number"),
        ({"bgp": {"asn": 1, "routerID": "fe80::1"}}, 'spec.bgp.routerID "fe80::1" must look like an IPv4 address'),
        (
            {"bgp": {"asn": 1, "routerID": "127.0.0.1"}},
            'spec.bgp.routerID "127.0.0.1" must not be 0, loopback, multicast or broadcast',
        ),
        ({"bgp": {"asn": 1, "mesh": "no"}}, 'spec.bgp.mesh "no" must be true or false'),
        ({"foo": 1}, "spec.foo is not a field of NodeConfig"),
        ({"bgp": {"asn": 1, "peer": []}}, "spec.bgp.peer is not a field of NodeConfig"),
    ],
)
def test_a_bad_field_is_named_with_value_and_rule(spec: Mapping[str, object], problem: str) -> None:
    assert problems(config(**spec)) == [problem]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": ...}, ".name is required"),
        ({"name": ""}, '.name "" must be 1 to 253 characters long'),
        ({"name": "a\nb"}, '.name "a\\nb" must be printable, without quotation marks'),
        ({"name": 'a"; }'}, '.name "a\\"; }" must be printable, without quotation marks'),
        ({"address": ...}, ".address is required"),
        ({"address": "tor"}, '.address "tor" is not an IP address'),
        ({"address": "::"}, '.address "::" is unspecified, no neighbour\'s address'),
        ({"address": "::1"}, '.address "::1" is loopback, no neighbour\'s address'),
        ({"address": "ff02::1"}, '.address "ff02::1" is multicast, no neighbour\'s address'),
        ({"address": "255.255.255.255"}, '.address "255.255.255.255" is reserved (class E), no neighbour\'s address'),
        ({"address": "::ffff:192.0.2.1"}, '.address "::ffff:192.0.2.1" is IPv4-mapped; write it as IPv4'),
        ({"address": "fe80::1"}, '.address "fe80::1" is link-local and needs an interface'),
        ({"address": "fe80::1%a b"}, '.address "a b" as interface must be the name of one network interface'),
        (
            {"address": "fe80::1%eth1", "interface": "eth0"},
            '.interface "eth0" is not the interface in the address ("eth1")',
        ),
        ({"interface": "eth*"}, '.interface "eth*" must be the name of one network interface'),
        ({"interface": 'e"; }'}, '.interface "e\\"; }" must be the name of one network interface'),
        ({"interface": "a" * 16}, f'.interface "{"a" * 16}" is longer than 15 bytes'),
        ({"asn": ...}, ".asn is required"),
        ({"asn": "64512"}, '.asn "64512" must be a whole number from 1 to 4294967294'),
        ({"asn": 23456}, ".asn 23456 is a reserved AS number"),
        ({"multihop": 0}, ".multihop 0 must be a whole number from 1 to 255"),
        (
            {"multihop": 2, "interface": "eth0"},
            '.multihop 2 goes with no interface ("eth0") and no link-local address',
        ),
        ({"gracefulRestart": {"restartTime": "4096s"}}, ".gracefulRestart.restartTime"),
        ({"gracefulRestart": {"restartTime": "0s"}}, ".gracefulRestart.restartTime"),
        (
            {"gracefulRestart": {"restartTime": "1500ms"}},
            '.gracefulRestart.restartTime "1.5s" must be whole seconds',
        ),
        ({"bfd": {"interval": "9ms"}}, '.bfd.interval "9ms" must be a duration from 0.01s to 60s'),
        ({"bfd": {"multiplier": 256}}, ".bfd.multiplier 256 must be a whole number from 1 to 255"),
        ({"localPref": 4294967296}, ".localPref 4294967296 must be a whole number from 0 to 4294967295"),
        ({"communities": ["65536:1"]}, '.communities "65536:1" must be two parts'),
        ({"communities": ["1:2:4294967296"]}, '.communities "1:2:4294967296" must be two parts'),
        ({"communities": ["٣:1"]}, '.communities "٣:1" must be two parts'),
        ({"communities": ["no-export"]}, '.communities "no-export" must be two parts'),
        ({"families": []}, ".families a list must name a family"),
        ({"families": ["ipx"]}, '.families "ipx" must be one of ipv6, ipv4'),
        ({"families": ["ipv6", "ipv6"]}, ".families a list names a family twice"),
        ({"import": "everything"}, '.import "everything" must be one of none, default-route, all'),
        ({"passwordSecretRef": {"name": "tor"}}, ".passwordSecretRef.key is required"),
        ({"passwordSecretRef": {"name": "../x", "key": "k"}}, '.passwordSecretRef.name "../x" is not the name'),
        ({"password": "secret"}, ".password is not a field of NodeConfig"),
    ],
)
def test_a_bad_peer_is_named_with_field_value_and_rule(changes: dict[str, object], problem: str) -> None:
    found = peer_problems(**changes)
    assert len(found) == 1
    assert found[0].startswith(f"spec.bgp.peers[0]{problem}")


@pytest.mark.parametrize("name", ["a" * 253, "a.b", "A-b", "a_b", "9", "protocol", "all", "tor ü", "#;'\\"])
def test_any_printable_peer_name_is_taken(name: str) -> None:
    assert one_peer(name=name).name == name


@pytest.mark.parametrize("zone", ["eth1", "bond0.100", "a" * 15])
def test_a_zone_in_the_address_is_the_interface(zone: str) -> None:
    found = one_peer(address=f"FE80::1%{zone}")
    assert (str(found.address), found.interface) == ("fe80::1", zone)
    assert one_peer(address=f"fe80::1%{zone}", interface=zone) == found


def test_a_bad_peer_never_takes_the_others_down() -> None:
    peers = [PEER, {**PEER, "name": "b", "asn": 0}, {**PEER, "name": "c", "address": "2001:0DB8:F::1"}, {"name": 7}]
    raw = config(bgp={"asn": 64513, "peers": [*peers, {**PEER, "address": "2001:db8:f::2"}, "nonsense"]})
    for found in (parse_node_config(raw, strict=False), parse_node_config(raw, strict=True, peers_apart=True)):
        bgp = found.spec.bgp
        assert bgp is not None
        assert [peer.name for peer in bgp.peers] == ["tor-a"]
        assert [bad.name for bad in bgp.bad_peers] == ["b", "c", "peers[3]", "tor-a", "peers[5]"]
        assert "is the address of peer" in str(bgp.bad_peers[1].problems[0])
        assert "is another peer's name" in str(bgp.bad_peers[3].problems[0])
    assert len(problems(raw)) >= 5


def test_two_link_local_peers_of_one_address_on_two_interfaces_are_two() -> None:
    peers = [{**PEER, "name": name, "address": "fe80::1", "interface": name} for name in ("eth0", "eth1")]
    bgp = parse(bgp={"asn": 1, "peers": peers}).spec.bgp
    assert bgp is not None
    assert len(bgp.peers) == 2


def test_unknown_fields_are_refused_or_kept_by_name() -> None:
    raw = config(foo=1, bgp={"asn": 1, "peers": [{**PEER, "bar": 1}]}, defaults={"ipv7": True})
    raw["extra"] = {}
    names = ["spec.defaults.ipv7", "spec.bgp.peers[0].bar", "spec.foo", "extra"]
    assert sorted(parse_node_config(raw, strict=False).unknown) == sorted(names)
    assert sorted(problems(raw)) == sorted(f"{name} is not a field of NodeConfig" for name in names)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (None, "metadata is required"),
        ([], " a list must be a mapping"),
        ({"metadata": {"name": "n"}}, "spec is required"),
        ({"metadata": {"name": "N"}, "spec": {}}, 'metadata.name "N" must be'),
        ({"metadata": {}, "spec": {}}, "metadata.name is required"),
        ({"kind": "Pod", "metadata": {"name": "n"}, "spec": {}}, 'kind "Pod" must be "NodeConfig"'),
        ({"apiVersion": "v1", "metadata": {"name": "n"}, "spec": {}}, 'apiVersion "v1" must be'),
        ({"metadata": {"name": "n"}, "spec": "text"}, 'spec "text" must be a mapping'),
    ],
)
def test_a_bad_head_is_named(raw: object, problem: str) -> None:
    assert any(one.strip().startswith(problem.strip()) for one in problems(raw))


HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.builds(pow, st.just(10), st.just(5000)),
    st.floats(),
    st.text(st.characters()),
    st.sampled_from(["\x00", 'a"\n', "fd00::/64", "10.0.0.0/8", "x" * 100_000, "120s", "fe80::1%x", "\ud800"]),
)
JSON = st.recursive(
    HOSTILE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(
                st.sampled_from(
                    [
                        "spec",
                        "metadata",
                        "name",
                        "cidr6",
                        "cidr4",
                        "bgp",
                        "peers",
                        "asn",
                        "address",
                        "interface",
                        "defaults",
                        "ipAlgo",
                        "anycast",
                        "cidr",
                        "namespaceSelector",
                        "matchLabels",
                        "matchExpressions",
                        "key",
                        "operator",
                        "values",
                        "hostRoutes",
                        "reuseDelay",
                        "mtu",
                        "families",
                        "communities",
                        "bfd",
                        "interval",
                        "gracefulRestart",
                        "restartTime",
                        "passwordSecretRef",
                        "import",
                    ]
                ),
                st.text(max_size=5),
                st.integers(),
            ),
            inner,
            max_size=6,
        ),
    ),
    max_leaves=30,
)


@given(JSON, st.dictionaries(st.sampled_from(["cidr6", "bgp", "anycast", "defaults", "mtu"]), JSON), st.booleans())
def test_anything_at_all_is_a_node_config_or_an_invalid_object(
    raw: object, spec: dict[str, object], strict: bool
) -> None:
    for candidate in (raw, config(**spec), {"metadata": {"name": "n"}, "spec": raw}):
        try:
            parse_node_config(candidate, strict=strict)
        except InvalidObject as error:
            refusal = error
        else:
            continue
        assert refusal.problems
        assert refusal.msg.isprintable()


def test_hostile_sizes_are_one_short_line() -> None:
    deep: object = []
    for _ in range(100_000):
        deep = [deep]
    found = problems(config(cidr6=["x" * 10_000_000, deep], mtu=deep, **{"k" * 1_000_000: 1, 'a"\n\x00': 2}))
    assert all(len(one) < 300 for one in found)
    assert len(found) == 5
    many = problems(config(cidr6=["bad"] * 100_000))
    assert len(many) < 300
    # The value is held by the test alone: unwound in a loop, since Python would free it by recursion.
    while isinstance(deep, list) and deep:
        deep = deep.pop()
