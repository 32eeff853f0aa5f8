"""Results and errors as each version of the specification shapes them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.cni.requests import Dns
from flock.cni.results import MESSAGE_LIMIT, render_add, render_error, render_version
from flock.cni.wire import VERSIONS
from flock.errors import FlockError, IOFailure, PoolExhausted, TryAgain
from flock.model.attachment import Attachment
from flock.model.ids import ContainerID, IfName
from flock.model.ownership import host_ifname, host_mac, pod_mac

BOTH = {"ip6": "2001:db8::1", "ip4": "10.0.0.1"}


def attachment(**addresses: str) -> Attachment:
    container, ifname = ContainerID("abc"), IfName("eth0")
    bare = Attachment(container_id=container, ifname=ifname, host_ifname="")
    return Attachment(
        container_id=container,
        ifname=ifname,
        host_ifname=host_ifname(bare.key),
        netns="/var/run/netns/x",
        mtu=1420,
        ip6=addresses.get("ip6"),
        ip4=addresses.get("ip4"),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ends_are_listed_and_only_1_1_0_has_their_mtu(version: str) -> None:
    pod = attachment(**BOTH)
    result = json.loads(render_add(version, pod))
    mtu = {"mtu": 1420} if version == "1.1.0" else {}
    assert result["cniVersion"] == version
    assert result["interfaces"] == [
        {"name": pod.host_ifname, "mac": host_mac(pod.key).hex(":")} | mtu,
        {"name": "eth0", "mac": pod_mac(pod.key).hex(":"), "sandbox": "/var/run/netns/x"} | mtu,
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_b11_at_most_one_address_a_family_ipv6_first_with_its_interface(version: str) -> None:
    result = json.loads(render_add(version, attachment(**BOTH)))
    labels = [{"version": "6"}, {"version": "4"}] if version in {"0.3.1", "0.4.0"} else [{}, {}]
    assert result["ips"] == [
        {"address": "2001:db8::1/128", "gateway": "fe80::1", "interface": 1} | labels[0],
        {"address": "10.0.0.1/32", "gateway": "169.254.1.1", "interface": 1} | labels[1],
    ]
    assert result["routes"] == [{"dst": "::/0", "gw": "fe80::1"}, {"dst": "0.0.0.0/0", "gw": "169.254.1.1"}]


@pytest.mark.parametrize(("ip", "destination"), [({"ip6": "2001:db8::1"}, "::/0"), ({"ip4": "10.0.0.1"}, "0.0.0.0/0")])
def test_one_family_alone_has_its_route_alone(ip: dict[str, str], destination: str) -> None:
    result = json.loads(render_add("1.0.0", attachment(**ip)))
    assert [route["dst"] for route in result["routes"]] == [destination]
    assert len(result["ips"]) == 1


def test_dns_of_the_configuration_goes_into_the_result() -> None:
    dns = Dns(nameservers=("2001:db8::53",), search=("example.org",))
    result = json.loads(render_add("1.1.0", attachment(**BOTH), dns))
    assert result["dns"] == {"nameservers": ["2001:db8::53"], "search": ["example.org"]}
    assert json.loads(render_add("1.1.0", attachment(**BOTH)))["dns"] == {}


def test_an_error_has_code_message_and_details() -> None:
    body = json.loads(render_error("1.1.0", PoolExhausted("no free address", "2001:db8::/120")))
    assert body == {"cniVersion": "1.1.0", "code": 101, "msg": "no free address", "details": "2001:db8::/120"}
    assert "details" not in json.loads(render_error("1.1.0", TryAgain("later")))
    assert json.loads(render_error("nonsense", TryAgain("later")))["cniVersion"] == "1.0.0"


@given(st.text(max_size=3000), st.text(max_size=3000), st.booleans())
def test_any_text_gives_json_whose_message_fits_in_an_event(msg: str, details: str, deleting: bool) -> None:
    body = json.loads(render_error("1.1.0", FlockError(msg, details), deleting=deleting))
    assert len(body["msg"].encode()) <= MESSAGE_LIMIT
    assert len(body.get("details", "").encode()) <= MESSAGE_LIMIT


@pytest.mark.parametrize("text", ["x" * 10_000_000, "ä" * 2000, "\udcff" * 900, '"\\\n\0' * 500])
def test_long_and_hostile_messages_are_cut(text: str) -> None:
    body = json.loads(render_error("1.1.0", IOFailure(text)))
    assert 0 < len(body["msg"].encode()) <= MESSAGE_LIMIT


@pytest.mark.parametrize("words", ["Not Found", "no such file or directory: not found"])
def test_a_failed_del_never_reads_like_a_success_to_go_cni(words: str) -> None:
    text = render_error("1.0.0", IOFailure(words, words), deleting=True).decode().lower()
    assert "not found" not in text
    assert "no such file or directory" not in text
    assert b"ot " in render_error("1.0.0", IOFailure("not found"))


def test_version_names_all_versions() -> None:
    assert json.loads(render_version()) == {"cniVersion": "1.1.0", "supportedVersions": list(VERSIONS)}
