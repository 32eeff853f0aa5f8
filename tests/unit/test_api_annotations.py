"""What pods and namespaces ask for: I7, I19, and what an annotation's error says."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.api.annotations import PREFIX, FamilyRequest, PodNetwork, parse_annotations
from flock.api.ip_algo import parse_ip_algo
from flock.api.node_config import NodeConfigSpec, parse_node_config
from flock.api.problems import InvalidObject
from flock.model.family import Family

SIX, FOUR = FamilyRequest(Family.IPV6), FamilyRequest(Family.IPV4)
DUAL = {"cidr6": ["2001:db8::/64"], "cidr4": ["10.0.0.0/24"]}


def spec(**fields: object) -> NodeConfigSpec:
    return parse_node_config({"metadata": {"name": "n"}, "spec": fields}, strict=True).spec


def ours(annotations: dict[str, str]) -> dict[str, str]:
    return {PREFIX + key: value for key, value in annotations.items()}


def parse(
    pod: dict[str, str] | None = None, namespace: dict[str, str] | None = None, node: NodeConfigSpec | None = None
) -> PodNetwork:
    return parse_annotations(ours(pod or {}), ours(namespace or {}), node or spec(**DUAL))


def problems(pod: dict[str, str] | None = None, namespace: dict[str, str] | None = None, **node: object) -> list[str]:
    with pytest.raises(InvalidObject) as caught:
        parse(pod, namespace, spec(**(node or DUAL)))
    assert caught.value.msg.isprintable()
    return [str(problem) for problem in caught.value.problems]


def test_I19_dual_stack_by_default() -> None:
    assert parse() == PodNetwork(wanted=(SIX, FOUR))
    assert parse_annotations({"other.org/ipv6": "junk", "flock.fritzlab.net": "x"}, {}, spec(**DUAL)) == parse()


@pytest.mark.parametrize("pod", [None, "true", "false"])
@pytest.mark.parametrize("namespace", [None, "true", "false"])
@pytest.mark.parametrize("node", [None, True, False])
@pytest.mark.parametrize("family", list(Family))
def test_I19_pod_then_namespace_then_node_config_then_dual_stack(
    family: Family, pod: str | None, namespace: str | None, node: bool | None
) -> None:
    key = f"ipv{family.suffix}"
    found = parse({key: pod} if pod else {}, {key: namespace} if namespace else {}, spec(**DUAL, defaults={key: node}))
    said = [value for value in (pod, namespace, None if node is None else str(node).lower()) if value is not None]
    assert (family in {one.family for one in found.wanted}) is (not said or said[0] == "true")


def test_I19_further_the_built_in_default_asks_only_for_what_the_node_has() -> None:
    assert parse(node=spec(cidr6=["2001:db8::/64"])).wanted == (SIX,)
    assert parse(node=spec(cidr4=["10.0.0.0/24"])).wanted == (FOUR,)
    assert parse(node=spec()).wanted == ()


@pytest.mark.parametrize("where", ["pod", "namespace", "node", "cidr", "namespace cidr"])
def test_I19_further_a_family_asked_for_by_name_is_wanted_though_not_configured(where: str) -> None:
    only6 = {"cidr6": ["2001:db8::/64"]}
    found = {
        "pod": lambda: parse({"ipv4": "true"}, node=spec(**only6)),
        "namespace": lambda: parse({}, {"ipv4": "true"}, spec(**only6)),
        "node": lambda: parse(node=spec(**only6, defaults={"ipv4": True})),
        "cidr": lambda: parse({"cidr4": "10.0.0.0/24"}, node=spec(**only6)),
        "namespace cidr": lambda: parse({}, {"cidr4": "10.0.0.0/24"}, spec(**only6)),
    }[where]()
    assert {one.family for one in found.wanted} == set(Family)


def test_I19_further_a_namespaces_cidrs_and_ip_algo_are_defaults_too() -> None:
    namespace = {"cidr6": "2001:db8::8:0/112", "ip-algo": "pod"}
    node = spec(**DUAL, defaults={"ipAlgo": "namespace"})
    assert parse(node=node).ip_algo == parse_ip_algo("namespace")
    found = parse({}, namespace, node)
    assert (found.ip_algo, found.wanted[0].cidrs) == (parse_ip_algo("pod"), (ip_network("2001:db8::8:0/112"),))
    found = parse({"cidr6": "2001:db8::/64", "ip-algo": ""}, namespace, node)
    assert (found.ip_algo, found.wanted[0].cidrs) == ((), (ip_network("2001:db8::/64"),))


def test_I7_neither_family_is_left_for_the_allocator_to_refuse() -> None:
    assert parse({"ipv6": "false", "ipv4": "false"}).wanted == ()


def test_one_address_by_name_in_its_one_identity() -> None:
    found = parse({"ipv6": "2001:DB8:0::5", "ipv4": "::ffff:10.0.0.9"})
    assert [one.address for one in found.wanted] == [ip_address("2001:db8::5"), ip_address("10.0.0.9")]


def test_several_cidrs_keep_their_order_and_lose_their_host_bits() -> None:
    found = parse({"cidr4": "192.0.2.1/24, 10.0.0.0/25,10.0.0.0/8"})
    assert found.wanted[1].cidrs == (ip_network("192.0.2.0/24"), ip_network("10.0.0.0/25"), ip_network("10.0.0.0/8"))


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("ipv6", "yes", 'must be "true", "false" or one IPv6 address'),
        ("ipv6", "True", 'must be "true", "false" or one IPv6 address'),
        ("ipv6", "", 'must be "true", "false" or one IPv6 address'),
        ("ipv6", "10.0.0.1", 'must be "true", "false" or one IPv6 address (is IPv4)'),
        ("ipv6", "fe80::1", 'must be "true", "false" or one IPv6 address (is link-local)'),
        ("ipv6", "2001:db8::/64", 'must be "true", "false" or one IPv6 address (is not an IP address)'),
        ("ipv4", "224.0.0.1", 'must be "true", "false" or one IPv4 address (is multicast)'),
        ("cidr6", "new-pool", "is not a CIDR (address/length)"),
        ("cidr6", "[", "is not a CIDR (address/length)"),
        ("cidr6", '[""]', "is not a CIDR (address/length)"),
        ("cidr6", "null", "is not a CIDR (address/length)"),
        ("cidr6", "7", "is not a CIDR (address/length)"),
        ("cidr6", "2001:db8::–/64", "is not a CIDR (address/length)"),
        ("cidr6", "10.0.0.0/8", "is IPv4"),
        ("cidr4", "2001:db8::/64", "is IPv6"),
        ("cidr4", "127.0.0.0/8", "is loopback"),
        ("ip-algo", "namespace,whatever", 'has no field "whatever"'),
        ("anycast", "2001:db8:53::1", "lies in none of the NodeConfig's anycast CIDRs"),
    ],
)
def test_a_bad_value_is_named_with_annotation_and_rule(key: str, value: str, rule: str) -> None:
    shown = value.replace('"', '\\"')
    assert problems({key: value})[0].startswith(f'annotation flock.fritzlab.net/{key} "{shown}" {rule}')
    if key != "anycast":
        assert problems({}, {key: value})[0].startswith(f"namespace annotation flock.fritzlab.net/{key}")


@pytest.mark.parametrize("value", ["2001:db8::/64,", ",", "", "2001:db8::/64,,2001:db8:1::/64"])
def test_a_missing_item_is_a_problem(value: str) -> None:
    assert problems({"cidr6": value})[0] == 'annotation flock.fritzlab.net/cidr6 "" is empty: an item is missing'


def test_every_problem_of_both_objects_is_told() -> None:
    found = problems(
        {"ipv6": "maybe", "cidr4": "a,10.0.0.0/24,b", "ip-algo": "x", "colour": "red"},
        {"ipv4": "no", "anycast": "2001:db8:53::1", "ip-Algo": ""},
    )
    assert len(found) == 8
    assert "annotation flock.fritzlab.net/colour is no annotation of flock's" in found
    assert 'namespace annotation flock.fritzlab.net/anycast "2001:db8:53::1" is for pods alone' in found


def test_anycast_claims() -> None:
    node: dict[str, Any] = {
        **DUAL,
        "anycast": [{"cidr": "2001:db8:53::/64"}, {"cidr": "192.0.2.0/24"}, {"cidr": "198.51.100.1/32"}],
    }
    found = parse({"anycast": "2001:DB8:53::1, 192.0.2.53,198.51.100.1"}, node=spec(**node))
    assert found.anycast == tuple(map(ip_address, ["2001:db8:53::1", "192.0.2.53", "198.51.100.1"]))
    for value, rule in {
        "2001:db8:53::1,2001:db8:53:0::1": "is there twice",
        "192.0.2.0": "is the network or broadcast address of 192.0.2.0/24",
        "192.0.2.255": "is the network or broadcast address of 192.0.2.0/24",
        "10.0.0.7": "lies in none of the NodeConfig's anycast CIDRs",
        "ff02::1": "is multicast",
        "169.254.1.1": "is link-local",
        "2001:db8:53::/64": "is not an IP address",
    }.items():
        assert problems({"anycast": value}, **node)[0].endswith(rule)
    refused = problems({"anycast": "192.0.2.53", "ipv4": "false"}, **node)
    assert refused == ['annotation flock.fritzlab.net/anycast "192.0.2.53" is IPv4, which the pod itself doesn\'t have']


@given(
    st.dictionaries(
        st.one_of(
            st.sampled_from([PREFIX + key for key in ("ipv6", "ipv4", "cidr6", "cidr4", "ip-algo", "anycast")]),
            st.text().map(lambda text: PREFIX + text),
            st.text(),
        ),
        st.one_of(
            st.text(),
            st.sampled_from(["true", "\x00", 'a"\nb', "2001:db8::1", "10.0.0.0/24,", "x" * 100_000, "," * 5000]),
        ),
    ),
    st.dictionaries(st.text().map(lambda text: PREFIX + text), st.text()),
)
def test_any_text_is_a_network_or_an_invalid_object(pod: dict[str, str], namespace: dict[str, str]) -> None:
    try:
        found = parse_annotations(pod, namespace, spec(**DUAL))
    except InvalidObject as error:
        refusal = error.msg
    else:
        assert isinstance(found, PodNetwork)
        return
    assert refusal.isprintable()


def test_hostile_sizes_are_one_short_line() -> None:
    for value in ("x" * 10_000_000, "," * 10_000_000, "\x00" * 10_000_000):
        for key in ("ipv6", "cidr6", "ip-algo", "anycast"):
            (found,) = problems({key: value})
            assert len(found) < 500
    (found,) = problems({"x" * 10_000_000: ""})
    assert len(found) < 300
