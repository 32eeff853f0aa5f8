"""Pods and namespaces, read narrowly; I10's digest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.api.objects import NamespaceView, PodView, image_digest, parse_namespace, parse_pod
from flock.api.problems import InvalidObject

DIGEST = "0123456789abcdef" * 4
POD: dict[str, object] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-0",
        "namespace": "prod",
        "uid": "u1",
        "labels": {"app": "web"},
        "annotations": {"kubernetes.io/config.hash": "h1"},
        "deletionTimestamp": "2026-11-30T00:00:00Z",
    },
    "spec": {
        "nodeName": "node-1",
        "hostNetwork": True,
        "serviceAccountName": "runner",
        "initContainers": [{"name": "i", "image": "init"}],
        "containers": [{"name": "a", "image": "img-a"}, {"name": "b", "image": "img-b"}],
    },
    "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "False"}],
        "containerStatuses": [{"name": "b", "imageID": "id-b"}, {"name": "a", "imageID": "id-a"}],
        "podIPs": [{"ip": "2001:db8::1"}, {"ip": "10.0.0.1"}],
    },
}


def test_a_pod() -> None:
    found = parse_pod(POD)
    assert found == PodView(
        namespace="prod",
        name="web-0",
        uid="u1",
        labels={"app": "web"},
        annotations={"kubernetes.io/config.hash": "h1"},
        node_name="node-1",
        host_network=True,
        phase="Running",
        ready=True,
        deleting=True,
        image="img-a",
        image_id="id-a",
        mirror_hash="h1",
        pod_ips=("2001:db8::1", "10.0.0.1"),
        service_account="runner",
    )
    assert found.runtime_uid == "h1"


def test_a_pod_of_a_name_alone() -> None:
    found = parse_pod({"metadata": {"name": "web"}})
    assert (found.namespace, found.service_account, found.runtime_uid) == ("default", "default", "")
    assert not found.ready
    assert parse_pod({"metadata": {"name": "web"}, "spec": {"containers": []}, "status": {"podIPs": None}}) == found


def test_a_namespace_carries_the_label_of_its_name() -> None:
    found = parse_namespace({"metadata": {"name": "prod", "labels": {"a": "b"}, "annotations": {"c": "d"}}})
    assert found == NamespaceView(
        name="prod", labels={"a": "b", "kubernetes.io/metadata.name": "prod"}, annotations={"c": "d"}
    )


@pytest.mark.parametrize(
    ("image", "image_id", "expected"),
    [
        (f"registry/name@sha256:{DIGEST}", "", DIGEST),
        (f"registry:5000/name:tag@sha256:{DIGEST}", f"x@sha256:{'f' * 64}", DIGEST),
        ("name:tag", f"docker.io/library/name@sha256:{DIGEST}", DIGEST),
        ("name:tag", f"sha256:{DIGEST}", DIGEST),
        (f"sha256:{DIGEST}", "", None),
        ("name:tag", "", None),
        ("name@sha256:short", "", None),
        (f"name@sha256:{DIGEST}\n", "", None),
        (f"name@sha512:{DIGEST}", "", None),
    ],
)
def test_I10_the_digest_is_read_where_it_is_pinned_or_was_seen(image: str, image_id: str, expected: str | None) -> None:
    assert image_digest(PodView(namespace="n", name="p", image=image, image_id=image_id)) == expected


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ([], "a list must be a mapping"),
        ({}, "metadata is required"),
        ({"metadata": {"name": "a/b"}}, 'metadata.name "a/b" must be'),
        ({"metadata": {"name": "a", "namespace": "../x"}}, 'metadata.namespace "../x" must be'),
        (
            {"metadata": {"name": "a", "annotations": {"flock.fritzlab.net/ipv6": True}}},
            "metadata.annotations.flock.fritzlab.net/ipv6 true must be a string (quote it)",
        ),
        ({"metadata": {"name": "a", "labels": {1: "x"}}}, "metadata.labels 1 must be a string to be a key"),
        ({"metadata": {"name": "a", "labels": []}}, "metadata.labels a list must be a mapping"),
        ({"metadata": {"name": "a"}, "spec": {"hostNetwork": "yes"}}, "spec.hostNetwork is wrong: Expected `bool"),
        ({"metadata": {"name": "a"}, "spec": {"containers": [{"name": 1}]}}, "spec.containers[0].name is wrong"),
    ],
)
def test_a_bad_pod_is_named_with_field_and_rule(raw: object, problem: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        parse_pod(raw)
    assert any(problem in str(one) for one in caught.value.problems)


def test_what_is_not_read_may_be_anything() -> None:
    deep: object = {}
    for _ in range(50_000):
        deep = {"a": deep}
    assert (
        parse_pod({"metadata": {"name": "a", "managedFields": deep}, "spec": {"volumes": deep}, "x": deep}).name == "a"
    )
    while isinstance(deep, dict) and deep:
        deep = deep.pop("a")


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(
                    [
                        "metadata",
                        "name",
                        "labels",
                        "annotations",
                        "spec",
                        "status",
                        "containers",
                        "image",
                        "podIPs",
                        "ip",
                        "conditions",
                    ]
                ),
                inner,
            ),
        ),
    )
)
def test_anything_at_all_is_an_object_or_an_invalid_object(raw: object) -> None:
    for parse in (parse_pod, parse_namespace):
        for candidate in (raw, {"metadata": {"name": "a"}, "spec": raw, "status": raw}, {"metadata": raw}):
            try:
                parse(candidate)
            except InvalidObject as error:
                refusal = error.msg
            else:
                continue
            assert refusal.isprintable()
