"""Requests: every rule about environment and network configuration, with its CNI code (4, 1, 2, 6, 7, 8)."""

import itertools
import json
import random
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.cni.frames import RawRequest
from flock.cni.wire import (
    VERSIONS,
    AddRequest,
    CheckRequest,
    DelRequest,
    Dns,
    GcRequest,
    PodArgs,
    QueryRequest,
    StatusRequest,
    VersionRequest,
    parse_del_frame,
    parse_request,
    version_of,
)
from flock.errors import (
    DecodeFailure,
    FlockError,
    IncompatibleVersion,
    InvalidConfig,
    InvalidEnvironment,
    InvalidNetns,
    UnsupportedField,
)
from flock.model.ids import AttachmentKey, ContainerID, IfName

ID = "0123456789abcdef" * 4
KEY = AttachmentKey(ContainerID(ID), IfName("eth0"))
ENV = {
    "CNI_CONTAINERID": ID,
    "CNI_NETNS": "/var/run/netns/cni-1",
    "CNI_IFNAME": "eth0",
    "CNI_PATH": "/opt/cni/bin",
    "CNI_ARGS": "",
}
CONF: dict[str, object] = {"cniVersion": "1.1.0", "name": "flock", "type": "flock"}
PREV = {
    "cniVersion": "1.0.0",
    "interfaces": [{"name": "flkx"}, {"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/var/run/netns/cni-1"}],
    "ips": [{"interface": 1, "address": "2001:db8::1/128", "gateway": "fe80::1"}],
    "routes": [{"dst": "::/0", "gw": "fe80::1"}],
}


def raw(command: str, conf: object = CONF, **env: str) -> RawRequest:
    stdin = conf if isinstance(conf, bytes) else json.dumps(conf).encode()
    return RawRequest(ENV | {"CNI_COMMAND": command} | env, stdin)


def error_of(request: RawRequest) -> FlockError:
    with pytest.raises(FlockError) as caught:
        parse_request(request)
    return caught.value


def outcome(parse: Callable[[RawRequest], object], request: RawRequest) -> tuple[int, object]:
    """The code, 0 for a request, and what came out."""
    try:
        return 0, parse(request)
    except FlockError as error:
        return error.code, str(error)


def test_add_carries_what_the_runtime_said() -> None:
    dns = {"nameservers": ["2001:db8::53"], "search": ["example.org"], "domain": "", "options": ["ndots:2"]}
    args = f"IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=u-1;K8S_POD_INFRA_CONTAINER_ID={ID}"
    request = parse_request(raw("ADD", CONF | {"dns": dns}, CNI_ARGS=args))
    assert request == AddRequest(
        key=KEY,
        netns="/var/run/netns/cni-1",
        network="flock",
        version="1.1.0",
        args=PodArgs(namespace="shop", name="web-0", uid="u-1", infra=ID),
        dns=Dns(("2001:db8::53",), "", ("example.org",), ("ndots:2",)),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_taken(version: str) -> None:
    request = parse_request(raw("ADD", CONF | {"cniVersion": version}))
    assert isinstance(request, AddRequest)
    assert request.version == version


def test_the_order_of_cni_args_says_nothing_and_unknown_keys_are_left_alone() -> None:
    pairs = ["IgnoreUnknown=1", "K8S_POD_NAMESPACE=a", "K8S_POD_NAME=b", "K8S_POD_UID=c", "FOO=bar=baz", ""]
    shuffler = random.Random(7)
    seen = set()
    for _ in range(50):
        shuffler.shuffle(pairs)
        request = parse_request(raw("ADD", CNI_ARGS=";".join(pairs)))
        assert isinstance(request, AddRequest)
        seen.add(request.args)
    assert seen == {PodArgs(namespace="a", name="b", uid="c")}


def test_podmans_container_name_is_no_pod_and_its_wishes_are_kept() -> None:
    args = "IgnoreUnknown=1;K8S_POD_NAME=happy_mole;IP=10.0.0.9;MAC=02:00:00:00:00:09"
    request = parse_request(raw("ADD", CNI_ARGS=args))
    assert isinstance(request, AddRequest)
    assert not request.args
    assert request.ips == (IPv4Address("10.0.0.9"),)
    assert request.mac == bytes.fromhex("020000000009")


def test_capability_arguments_win_over_cni_args() -> None:
    runtime = {"ips": ["2001:db8::9/64", "10.0.0.9"], "mac": "02:00:00:00:00:0A", "portMappings": [{"hostPort": 80}]}
    request = parse_request(raw("ADD", CONF | {"runtimeConfig": runtime}, CNI_ARGS="IP=10.0.0.1"))
    assert isinstance(request, AddRequest)
    assert request.ips == (IPv6Address("2001:db8::9"), IPv4Address("10.0.0.9"))
    assert request.mac.hex() == "02000000000a"


def test_del_needs_no_netns_and_no_prev_result() -> None:
    request = parse_request(raw("DEL", CNI_NETNS="", FLOCK_NETNS_ERROR="2"))
    assert request == DelRequest(key=KEY, network="flock", version="1.1.0")


@pytest.mark.parametrize("prev", [None, {}, "nonsense", [1], PREV])
def test_del_looks_at_no_prev_result(prev: object) -> None:
    assert isinstance(parse_request(raw("DEL", CONF | {"prevResult": prev})), DelRequest)


@pytest.mark.parametrize("version", ["0.4.0", "1.0.0", "1.1.0"])
def test_check_carries_the_result_of_add(version: str) -> None:
    request = parse_request(raw("CHECK", CONF | {"cniVersion": version, "prevResult": PREV}))
    assert isinstance(request, CheckRequest)
    assert [ip.address for ip in request.prev_result.ips] == ["2001:db8::1/128"]
    assert request.prev_result.interfaces[1].sandbox == request.netns


def test_status_and_gc_need_no_container() -> None:
    empty = dict.fromkeys(("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"), "")
    assert parse_request(raw("STATUS", **empty)) == StatusRequest(network="flock", version="1.1.0")
    assert parse_request(raw("GC", **empty)) == GcRequest(network="flock", version="1.1.0", valid=None)


def test_version_depends_on_nothing() -> None:
    dummy = dict.fromkeys(("CNI_NETNS", "CNI_IFNAME", "CNI_PATH"), "dummy")
    assert parse_request(raw("VERSION", b"\xff not json", **dummy)) == VersionRequest()
    assert parse_request(RawRequest({"CNI_COMMAND": "VERSION"}, b"")) == VersionRequest()


def test_a_query_is_no_cni_verb() -> None:
    assert parse_request(RawRequest({"FLOCK_QUERY": "status"}, b"x")) == QueryRequest("status", b"x")


ENTRY = {"containerID": ID, "ifname": "eth0"}


@pytest.mark.parametrize(
    ("fields", "valid"),
    [
        ({}, None),
        ({"cni.dev/valid-attachments": None}, None),
        ({"cni.dev/valid-attachments": []}, frozenset()),
        ({"cni.dev/attachments": []}, frozenset()),
        ({"cni.dev/valid-attachments": [ENTRY]}, frozenset({KEY})),
        ({"cni.dev/attachments": [ENTRY]}, frozenset({KEY})),
        ({"cni.dev/valid-attachments": [], "cni.dev/attachments": [ENTRY]}, frozenset({KEY})),
    ],
)
def test_gc_knows_missing_from_empty(fields: dict[str, object], valid: frozenset[AttachmentKey] | None) -> None:
    request = parse_request(raw("GC", CONF | fields))
    assert isinstance(request, GcRequest)
    assert request.valid == valid


@pytest.mark.parametrize(
    "entry", [{}, {"containerID": "../x", "ifname": "eth0"}, {"containerID": ID, "ifname": "a/b"}, 7]
)
def test_one_wrong_entry_fails_the_whole_gc(entry: object) -> None:
    assert isinstance(error_of(raw("GC", CONF | {"cni.dev/valid-attachments": [ENTRY, entry]})), InvalidConfig)


@pytest.mark.parametrize("command", ["", "add", "ADD ", "FOO", "A" * 5000, "ADD\n", "\udcff"])
def test_an_unknown_command_is_code_4(command: str) -> None:
    error = error_of(raw(command))
    assert isinstance(error, InvalidEnvironment)
    assert len(error.msg) < 250


@pytest.mark.parametrize("command", ["ADD", "CHECK"])
def test_all_missing_variables_are_named_together(command: str) -> None:
    error = error_of(RawRequest({"CNI_COMMAND": command, "CNI_IFNAME": ""}, b""))
    assert isinstance(error, InvalidEnvironment)
    assert all(name in error.msg for name in ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"))


BAD_IDS = ["some-%%id", "../x", "-a", ".a", "a b", "a/b", "a\n", "a\0b", "ä", "x" * 201, "\udcff"]
BAD_IFNAMES = ["eth/0", ".", "..", "a:b", "x" * 16, "a b", "a\tb", "a\x01", "\udcff", "ethernetääää"]


@pytest.mark.parametrize("command", ["ADD", "DEL", "CHECK"])
@pytest.mark.parametrize(
    ("name", "value"),
    [*(("CNI_CONTAINERID", value) for value in BAD_IDS), *(("CNI_IFNAME", value) for value in BAD_IFNAMES)],
)
def test_b2_a_bad_identifier_is_code_4_before_anything_else(command: str, name: str, value: str) -> None:
    env = ENV | {"CNI_COMMAND": command, name: value}
    error = error_of(RawRequest(env, b"not json"))
    assert isinstance(error, InvalidEnvironment)
    assert error.msg.startswith(f"{name}: ")


@pytest.mark.parametrize("container", ["a", "ab", "f" * 64, "x" * 200, "A_b.c-9"])
def test_b1_short_and_long_container_ids_work(container: str) -> None:
    request = parse_request(raw("DEL", CNI_CONTAINERID=container))
    assert isinstance(request, DelRequest)
    assert request.key.container_id == container


@pytest.mark.parametrize(
    "args",
    [
        "K8S_POD_NAME",
        "=x",
        "K8S_POD_NAMESPACE=a;K8S_POD_NAME=../../x",
        "K8S_POD_NAMESPACE=a b;K8S_POD_NAME=c",
        "K8S_POD_NAMESPACE=a;K8S_POD_NAME=" + "x" * 254,
        "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;K8S_POD_UID='",
        "a=\n",
        "a=\udcff",
        "IP=10.0.0",
        "IP=fe80::1%eth0",
        "MAC=1",
        "MAC=02-00-00-00-00-01",
    ],
)
def test_bad_cni_args_are_code_4(args: str) -> None:
    assert isinstance(error_of(raw("ADD", CNI_ARGS=args)), InvalidEnvironment)


@pytest.mark.parametrize("command", ["ADD", "CHECK"])
@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"FLOCK_NETNS_ERROR": "2"}, "ENOENT"),
        ({"FLOCK_NETNS_ERROR": "13"}, "EACCES"),
        ({"FLOCK_NETNS_ERROR": "nonsense"}, "nonsense"),
        ({"FLOCK_NETNS_ERROR": "99999999999999999999"}, "99999"),
        ({"CNI_NETNS": "relative/path"}, "absolute"),
    ],
)
def test_a_netns_that_cannot_be_opened_is_code_8(command: str, env: dict[str, str], words: str) -> None:
    error = error_of(raw(command, CONF | ({"prevResult": PREV} if command == "CHECK" else {}), **env))
    assert isinstance(error, InvalidNetns)
    assert words in str(error)


@pytest.mark.parametrize(
    "stdin",
    [
        b"",
        b"{",
        b"nonsense",
        b"\xff\xfe",
        b'{"name": "\xff"}',
        b'{"a":' * 100_000,
        b"{}x",
        b'{"name": "flock"',
        b"\0" * 100,
        b"x" * 4_000_000,
    ],
)
@pytest.mark.parametrize("command", ["ADD", "DEL", "CHECK", "GC", "STATUS"])
def test_what_is_no_json_is_code_6(command: str, stdin: bytes) -> None:
    error = error_of(raw(command, stdin))
    assert isinstance(error, DecodeFailure)
    assert len(str(error)) < 500


@pytest.mark.parametrize(
    "conf",
    [
        b"[" * 1_000_000,
        [],
        7,
        "x",
        None,
        CONF | {"name": ""},
        CONF | {"name": 7},
        CONF | {"name": "a/b"},
        CONF | {"name": "a\0b"},
        CONF | {"name": "x" * 10_000_000},
        {"cniVersion": "1.1.0"},
        CONF | {"cniVersion": 1.1},
        CONF | {"cniVersion": None},
        CONF | {"dns": 7},
        CONF | {"dns": {"nameservers": "x"}},
        CONF | {"runtimeConfig": []},
        CONF | {"prevResult": PREV},
        CONF | {"prevResult": "x"},
    ],
)
def test_a_wrong_value_is_code_7(conf: object) -> None:
    error = error_of(raw("ADD", conf))
    assert isinstance(error, InvalidConfig)
    assert len(str(error)) < 500


def test_deep_nesting_where_nobody_looks_is_code_6_or_fine() -> None:
    for opened, closed in ((b"[" * 10, b"]" * 10), (b"[" * 100_000, b"]" * 100_000), (b'{"a":' * 50_000, b"")):
        stdin = b'{"cniVersion":"1.1.0","name":"flock","other":' + opened + closed + b"}"
        try:
            request = parse_request(raw("ADD", stdin))
        except DecodeFailure:
            continue
        assert isinstance(request, AddRequest)


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0", "0.3.0", "1.2.0", "", "x" * 100_000, "1.1.0 "])
@pytest.mark.parametrize("command", ["ADD", "DEL", "CHECK", "GC", "STATUS"])
def test_a_version_that_flock_does_not_speak_is_code_1(command: str, version: str) -> None:
    error = error_of(raw(command, CONF | {"cniVersion": version}))
    assert isinstance(error, IncompatibleVersion)
    assert "0.3.1, 0.4.0, 1.0.0, 1.1.0" in error.details


def test_a_missing_version_means_0_1_0() -> None:
    error = error_of(raw("ADD", {"name": "flock"}))
    assert isinstance(error, IncompatibleVersion)
    assert "'0.1.0'" in error.msg


@pytest.mark.parametrize(
    ("command", "version"),
    [("CHECK", "0.3.1"), *itertools.product(["GC", "STATUS"], ["0.3.1", "0.4.0", "1.0.0"])],
)
def test_a_verb_that_its_version_does_not_have_is_code_1(command: str, version: str) -> None:
    error = error_of(raw(command, CONF | {"cniVersion": version, "prevResult": PREV}))
    assert isinstance(error, IncompatibleVersion)
    assert command in error.msg


def test_foreign_address_management_is_code_2() -> None:
    error = error_of(raw("ADD", CONF | {"ipam": {"type": "host-local"}}))
    assert isinstance(error, UnsupportedField)
    assert error.msg.startswith("ipam: ")
    assert isinstance(parse_request(raw("ADD", CONF | {"ipam": {}})), AddRequest)


@pytest.mark.parametrize("prev", [{}, {"prevResult": None}])
def test_check_without_prev_result_is_code_7(prev: dict[str, None]) -> None:
    error = error_of(raw("CHECK", CONF | prev))
    assert isinstance(error, InvalidConfig)
    assert error.msg.startswith("prevResult: ")


@pytest.mark.parametrize(
    "prev", [7, "x", [], {"ips": 7}, {"ips": [{}]}, {"ips": [{"address": 7}]}, {"interfaces": [{"name": None}]}]
)
def test_check_with_a_wrong_prev_result_is_code_7(prev: object) -> None:
    assert isinstance(error_of(raw("CHECK", CONF | {"prevResult": prev})), InvalidConfig)


def test_extra_keys_are_left_alone() -> None:
    extra = {
        "capabilities": {"x": True},
        "args": {"cni": {}},
        "cni.dev/other": [1],
        "keepSourcePort": None,
        "type": "flock",
    }
    assert parse_request(raw("ADD", CONF | extra)) == parse_request(raw("ADD"))


def test_a_queued_delete_is_read_from_the_environment_alone() -> None:
    request = parse_del_frame(raw("DEL", b"\xff not json", FLOCK_NETNS_INODE="4026531840"))
    assert request == DelRequest(key=KEY, netns="/var/run/netns/cni-1", version="1.0.0", netns_inode=4026531840)
    assert parse_del_frame(raw("DEL")).netns_inode == 0


@pytest.mark.parametrize(
    "request_",
    [raw("ADD"), raw("DEL", FLOCK_NETNS_INODE="x"), raw("DEL", FLOCK_NETNS_INODE="-1"), raw("DEL", CNI_IFNAME="..")],
)
def test_what_is_no_queued_delete_is_refused(request_: RawRequest) -> None:
    with pytest.raises(InvalidEnvironment):
        parse_del_frame(request_)


@pytest.mark.parametrize(
    ("stdin", "version"),
    [
        (b'{"cniVersion":"0.4.0"}', "0.4.0"),
        (b'{"cniVersion":"9"}', "1.0.0"),
        (b"\xff", "1.0.0"),
        (b'{"cniVersion":7}', "1.0.0"),
    ],
)
def test_an_error_about_a_broken_configuration_still_has_a_version(stdin: bytes, version: str) -> None:
    assert version_of(stdin) == version


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
known_fields = st.sampled_from(
    [
        "cniVersion",
        "name",
        "type",
        "ipam",
        "dns",
        "runtimeConfig",
        "prevResult",
        "cni.dev/valid-attachments",
        "cni.dev/attachments",
    ]
)
confs = st.builds(
    lambda base, changed: CONF | base | changed,
    st.dictionaries(st.text(max_size=8), json_values, max_size=2),
    st.dictionaries(known_fields, json_values, max_size=3),
)
commands = st.sampled_from(["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"])


@given(commands, confs | json_values)
def test_arbitrary_json_gives_a_request_or_a_flock_error(command: str, conf: object) -> None:
    code, result = outcome(parse_request, raw(command, msgspec.json.encode(conf)))
    assert code in {0, 1, 2, 4, 6, 7, 8}
    assert "\n" not in str(result)


@given(commands, st.binary(max_size=200))
def test_arbitrary_bytes_as_configuration_are_code_6_or_7(command: str, stdin: bytes) -> None:
    code, result = outcome(parse_request, raw(command, stdin))
    assert code in {1, 6, 7} or result == VersionRequest()


@given(
    st.dictionaries(
        st.sampled_from(["CNI_COMMAND", *ENV, "FLOCK_NETNS_ERROR", "FLOCK_NETNS_INODE"]),
        st.text(max_size=30) | st.sampled_from(["ADD", "DEL", "CHECK"]),
    )
)
def test_arbitrary_environments_give_a_request_or_a_flock_error(env: dict[str, str]) -> None:
    request = RawRequest(ENV | {"CNI_COMMAND": "ADD"} | env, json.dumps(CONF).encode())
    for parse in (parse_request, parse_del_frame):
        assert outcome(parse, request)[0] in {0, 1, 4, 7, 8}
