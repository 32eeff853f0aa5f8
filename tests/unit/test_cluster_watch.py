"""Pages and watch lines: narrow, and never stopped by what an object holds."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.api.node_config import NodeConfig
from flock.api.objects import PodView
from flock.cluster import resources
from flock.cluster.lines import Oversized
from flock.cluster.resources import Reads
from flock.cluster.watch import Damaged, EventKind

PODS: Reads[PodView] = resources.pods_of("n1").reader
CONFIGS: Reads[NodeConfig] = resources.node_configs().reader


def pod(name: str = "web", **metadata: object) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": "u1", "resourceVersion": "7", **metadata},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "img"}]},
        "status": {"phase": "Running"},
    }


def line(kind: str, thing: object) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode()


def page(*items: bytes, version: str = "9", continue_: str = "") -> bytes:
    head = json.dumps({"kind": "PodList", "apiVersion": "v1",
                       "metadata": {"resourceVersion": version, "continue": continue_}}).encode()
    return head[:-1] + b',"items":[' + b",".join(items) + b"]}"


GOOD = json.dumps(pod("good")).encode()
HOSTILE = {
    "deep": b'{"metadata":{"name":"bad","namespace":"default"},"x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "lone surrogate": b'{"metadata":{"name":"bad","namespace":"default","labels":{"a":"\\ud800"}}}',
    "no UTF-8": b'{"metadata":{"name":"bad","namespace":"default","labels":{"a":"\xff"}}}',
    "wrong type": b'{"metadata":{"name":"bad","namespace":"default","labels":{"a":1}}}',
    "labels as a list": b'{"metadata":{"labels":["}"],"name":"bad","namespace":"default"}}',
}


def test_a_page_has_its_version_its_token_and_its_objects() -> None:
    found = PODS.page(page(GOOD, version="12", continue_="abc"))
    assert (found.resource_version, found.continue_) == ("12", "abc")
    (item,) = found.items
    assert item.key == ("default", "good")
    assert isinstance(item.value, PodView)
    assert (item.value.uid, item.value.node_name, item.value.phase) == ("u1", "n1", "Running")


def test_a_page_without_items_is_empty() -> None:
    assert list(PODS.page(b'{"metadata":{"resourceVersion":"1"},"items":null}').items) == []


@pytest.mark.parametrize("bad", HOSTILE.values(), ids=HOSTILE)
def test_a_damaged_object_in_a_page_leaves_the_others_whole(bad: bytes) -> None:
    found = PODS.page(page(GOOD, bad, json.dumps(pod("also")).encode(), version="12", continue_="abc"))
    assert (found.resource_version, found.continue_) == ("12", "abc")
    first, damaged, last = found.items
    assert [first.key, damaged.key, last.key] == [("default", name) for name in ("good", "bad", "also")]
    assert isinstance(damaged.value, Damaged)
    assert damaged.value.name == "Pod default/bad"
    assert damaged.value.reason
    assert isinstance(last.value, PodView)


@pytest.mark.parametrize("bad", HOSTILE.values(), ids=HOSTILE)
def test_a_damaged_object_in_a_watch_is_known_by_name(bad: bytes) -> None:
    event = PODS.line(b'{"type":"MODIFIED","object":' + bad + b"}")
    assert event.kind is EventKind.MODIFIED
    assert event.item is not None
    assert event.item.key == ("default", "bad")
    assert isinstance(event.item.value, Damaged)


def test_a_damaged_object_of_a_watch_still_moves_the_version_on() -> None:
    bad = b'{"metadata":{"name":"bad","resourceVersion":"44","labels":3}}'
    assert PODS.line(b'{"type":"ADDED","object":' + bad + b"}").resource_version == "44"


def test_an_oversized_line_is_known_by_the_name_in_its_head() -> None:
    meta = b'{"name":"big","namespace":"a","resourceVersion":"5","annotations":{"x":"' + b"y" * 100
    head = b'{"type":"ADDED","object":{"kind":"Pod","metadata":' + meta
    event = PODS.line(Oversized(head))
    assert event.item is not None
    assert event.item.key == ("a", "big")
    assert event.resource_version == "5"


def test_an_oversized_line_without_a_name_is_lost() -> None:
    assert PODS.line(Oversized(b'{"type":"ADDED","object":{"metadata":{"annotations":{"x":"yyy')).kind is EventKind.LOST


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_events_have_their_object_and_its_version(kind: str) -> None:
    event = PODS.line(line(kind, pod()))
    assert event.kind is EventKind(kind)
    assert event.resource_version == "7"
    assert event.item is not None
    assert isinstance(event.item.value, PodView)


def test_a_bookmark_has_a_version_alone() -> None:
    event = PODS.line(line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "88", "creationTimestamp": None},
                                        "spec": {"containers": None}, "status": {}}))
    assert (event.kind, event.item, event.resource_version) == (EventKind.BOOKMARK, None, "88")


@pytest.mark.parametrize(("code", "reason", "gone"), [(410, "Expired", True), (410, "Gone", True),
                                                      (500, "InternalError", False)])
def test_an_error_is_a_status_whatever_the_resource(code: int, reason: str, gone: bool) -> None:
    status = {"kind": "Status", "status": "Failure", "metadata": {}, "code": code, "reason": reason, "message": "no"}
    event = PODS.line(line("ERROR", status))
    assert event.kind is EventKind.ERROR
    assert event.status is not None
    assert (event.status.code, event.status.gone, event.status.message) == (code, gone, "no")


@pytest.mark.parametrize("bad", [b"", b"{", b"null", b"[]", b'{"type":"MOVED","object":{}}', b'{"type":"ADDED"}',
                                 b"\x00\xff", b'{"type":3,"object":{}}'])
def test_what_is_no_event_is_lost(bad: bytes) -> None:
    assert PODS.line(bad).kind is EventKind.LOST


@pytest.mark.parametrize("name", ["", "../x", "A", "a" * 254, "a/b", "a\nb"])
def test_a_name_that_no_object_may_have_is_damage_without_a_key(name: str) -> None:
    (item,) = PODS.page(page(json.dumps(pod(name)).encode())).items
    assert item.key is None
    assert isinstance(item.value, Damaged)
    assert "\n" not in item.value.reason


def test_only_flocks_own_annotations_are_kept() -> None:
    annotations = {"flock.fritzlab.net/ipv4": "false", "other/x": "y" * 1000, "kubernetes.io/config.hash": "h"}
    (item,) = PODS.page(page(json.dumps(pod(annotations=annotations)).encode())).items
    assert isinstance(item.value, PodView)
    assert item.value.annotations == {"flock.fritzlab.net/ipv4": "false", "kubernetes.io/config.hash": "h"}
    assert item.value.mirror_hash == "h"


def test_equal_labels_are_kept_once() -> None:
    labels = {"app": "x", "tier": "y"}
    first, second = PODS.page(page(*(json.dumps(pod(name, labels=labels)).encode() for name in ("a", "b")))).items
    assert isinstance(first.value, PodView)
    assert isinstance(second.value, PodView)
    assert first.value.labels == labels
    assert first.value.labels is second.value.labels


def config(spec: object) -> bytes:
    return json.dumps({"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig", "spec": spec,
                       "metadata": {"name": "n1", "uid": "u", "generation": 3,
                                    "creationTimestamp": "2026-12-01T00:00:00Z"}}).encode()


def test_a_NodeConfig_with_unknown_fields_is_used_without_them() -> None:
    found = CONFIGS.one(config({"cidr6": ["2001:db8::/64"], "newer": {"deep": [1]}})).value
    assert isinstance(found, NodeConfig)
    assert found.unknown == ("spec.newer",)
    assert (found.uid, found.generation, found.created) == ("u", 3, "2026-12-01T00:00:00Z")


def test_a_NodeConfig_with_a_bad_peer_is_used_without_it() -> None:
    found = CONFIGS.one(config({"cidr6": ["2001:db8::/64"], "bgp": {"asn": 64513, "peers": [
        {"name": "bad", "address": "ff02::1", "asn": 64512}, {"name": "good", "address": "2001:db8:1::1", "asn": 64512},
    ]}})).value
    assert isinstance(found, NodeConfig)
    assert found.spec.bgp is not None
    assert [peer.name for peer in found.spec.bgp.peers] == ["good"]
    assert [peer.name for peer in found.spec.bgp.bad_peers] == ["bad"]


@pytest.mark.parametrize("spec", [None, [], {"cidr6": ["10.0.0.0/8"]}, {"mtu": "x"}])
def test_a_NodeConfig_that_cannot_be_used_is_damage_that_says_why(spec: object) -> None:
    found = CONFIGS.one(config(spec))
    assert found.key == ("", "n1")
    assert isinstance(found.value, Damaged)
    assert "spec" in found.value.reason


@given(st.binary(max_size=300))
def test_no_bytes_stop_the_reader(data: bytes) -> None:
    list(PODS.page(data).items)
    PODS.one(data)
    PODS.line(data)
    PODS.line(Oversized(data))


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
                    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
                        st.sampled_from(["metadata", "name", "items", "spec", "labels", "status", "object", "type"]),
                        inner, max_size=4), max_leaves=20)


@given(JSON)
def test_no_json_stops_the_reader(thing: object) -> None:
    for kind in ("ADDED", "BOOKMARK", "ERROR", "x"):
        PODS.line(line(kind, thing))
        CONFIGS.line(line(kind, thing))
    list(PODS.page(json.dumps({"items": thing}).encode()).items)
    list(CONFIGS.page(page(json.dumps(thing).encode())).items)


def test_only_the_pods_of_other_nodes_may_come_late() -> None:
    assert resources.all_pods().pace > 0
    others = (resources.pods_of("n1"), resources.namespaces(), resources.nodes(), resources.node_configs(),
              resources.policies())
    assert {one.pace for one in others} == {0.0}
