"""What flock relies on in an API server, asked of the fake that the tests use and of a real kube-apiserver.

The real one runs where its programs are built (``real_api``); one with its watch cache and one without, which forgets
as soon as its etcd is compacted.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from flock.cluster.access import ClusterAccess, StaticToken
from flock.cluster.client import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, ApiClient
from flock.cluster.errors import ApiConflict, ApiForbidden, ApiGone, ApiNotFound, ApiRefused
from flock.cluster.lines import Oversized
from flock.cluster.transport import Request, Transport
from flock.errors import FlockError
from flock.system.clock import SystemClock
from flock.testing.api_server import ApiServer
from flock.testing.wait import await_until
from flock_lab import real_api

NUMBERS = itertools.count(1)
CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"


class Server:
    """One API server under test, and a namespace of its own for each test."""

    def __init__(self, access: ClusterAccess, real: real_api.RealApi | None, fake: ApiServer | None) -> None:
        self.access = access
        self.client = ApiClient(access, SystemClock())
        self.namespace = f"test-{next(NUMBERS)}"
        self._transport = Transport(access, SystemClock(), 10.0)
        self._real = real
        self._fake = fake

    @property
    def maps(self) -> str:
        return CONFIG_MAPS.format(self.namespace)

    async def make_map(self, name: str, **data: str) -> dict[str, Any]:
        return await self.create(self.maps, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                                             "data": data})

    async def create(self, path: str, thing: Mapping[str, object]) -> dict[str, Any]:
        return decode(await self.client.create(path, json.dumps(thing).encode()))

    async def send(self, method: str, path: str, thing: object = None, **params: str) -> dict[str, Any]:
        body = None if thing is None else json.dumps(thing).encode()
        request = Request(method=method, path=path, params=params, body=body, content_type="application/json")
        async with self._transport.open(request) as answer:
            return decode(await answer.read())

    async def patch(self, path: str, kind: str, thing: object, **params: str) -> dict[str, Any]:
        return decode(await self.client.patch(path, json.dumps(thing).encode(), kind, params))

    async def page(self, limit: int, continue_: str = "", path: str = "") -> tuple[list[str], str, str]:
        """Names, version and token of one page."""
        found = decode(await self.client.page(path or self.maps, {}, limit, continue_))
        names = [item["metadata"]["name"] for item in found["items"]]
        return names, found["metadata"]["resourceVersion"], found["metadata"].get("continue", "")

    async def compact(self, version: str) -> None:
        if self._fake is not None:
            self._fake.compact()
        if self._real is not None:
            async with aiohttp.ClientSession() as session, session.post(
                f"{self._real.etcd}/v3/kv/compaction", json={"revision": version, "physical": True}
            ) as answer:
                assert answer.status == 200

    async def close(self) -> None:
        await self.client.close()
        await self._transport.close()


def decode(data: bytes) -> dict[str, Any]:
    found = json.loads(data)
    assert isinstance(found, dict)
    return found


class Watch:
    """A watch whose events are taken one by one."""

    def __init__(self, lines: AsyncGenerator[bytes | Oversized, None]) -> None:
        self._lines = lines

    async def next(self) -> tuple[str, dict[str, Any]]:
        async with asyncio.timeout(10):
            line = await anext(self._lines)
        assert isinstance(line, bytes)
        event = decode(line)
        return event["type"], event["object"]

    async def named(self, *but: str) -> tuple[str, str]:
        """Kind and name of the next event that is neither a bookmark nor one of ``but``."""
        while True:
            kind, thing = await self.next()
            if kind not in {"BOOKMARK", *but}:
                return kind, thing["metadata"]["name"]


@contextlib.asynccontextmanager
async def watching(server: Server, version: str, path: str = "", seconds: float = 30,
                   **params: str) -> AsyncIterator[Watch]:
    async with contextlib.aclosing(server.client.watch(path or server.maps, params, version, seconds)) as lines:
        yield Watch(lines)


def real_server(folder: Path, *flags: str) -> Iterator[real_api.RealApi | None]:
    if not real_api.available():
        yield None
        return
    with real_api.running(folder, *flags) as real:
        yield real


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_api.RealApi | None]:
    yield from real_server(tmp_path_factory.mktemp("cached"))


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_api.RealApi | None]:
    yield from real_server(tmp_path_factory.mktemp("forgetful"), "--watch-cache=false")


async def opened(kind: str, real: real_api.RealApi | None) -> AsyncIterator[Server]:
    async with contextlib.AsyncExitStack() as stack:
        if kind == "fake":
            fake = await stack.enter_async_context(ApiServer())
            fake.tokens = {"admin-token": "admin"}
            server = Server(ClusterAccess(fake.url, tokens=StaticToken("admin-token")), None, fake)
        elif real is None:
            pytest.skip("no kube-apiserver: run .venv/bin/python -m flock_lab.gobuild kubernetes")
        else:
            server = Server(real.access, real, None)
        stack.push_async_callback(server.close)
        await await_until(lambda: server.client.get("/api/v1/namespaces/default"), 60, "the API server answers",
                          forgive=(FlockError,))
        await server.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace",
                                                   "metadata": {"name": server.namespace}})
        yield server


@pytest_asyncio.fixture(params=["fake", "real"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    real = request.getfixturevalue("cached") if request.param == "real" else None
    async for one in opened(request.param, real):
        yield one


@pytest_asyncio.fixture(params=["fake", "real"])
async def forgets(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    real = request.getfixturevalue("forgetful") if request.param == "real" else None
    async for one in opened(request.param, real):
        yield one


# Lists


async def test_a_list_comes_in_pages_of_one_moment(server: Server) -> None:
    for number in range(5):
        await server.make_map(f"m{number}")
    names, version, token = await server.page(2)
    assert names == ["m0", "m1"]
    await server.make_map("m15")
    await server.send("DELETE", f"{server.maps}/m4")
    second, same, token = await server.page(2, token)
    third, last, token = await server.page(2, token)
    assert second + third == ["m2", "m3", "m4"]
    assert (same, last, token) == (version, version, "")


async def test_a_page_says_how_many_are_left(server: Server) -> None:
    for number in range(3):
        await server.make_map(f"m{number}")
    found = decode(await server.client.page(server.maps, {}, 1))
    assert found["metadata"]["remainingItemCount"] == 2
    assert "kind" not in found["items"][0]
    assert found["kind"] == "ConfigMapList"


@pytest.mark.parametrize("params", [{"continue": "zzz"}, {"limit": "x"}, {"fieldSelector": "spec.foo=1"},
                                    {"fieldSelector": "nonsense"}])
async def test_a_list_that_makes_no_sense_is_refused(server: Server, params: dict[str, str]) -> None:
    with pytest.raises(ApiRefused) as caught:
        await server.client.get(server.maps, params)
    assert (caught.value.status, caught.value.reason) == (400, "BadRequest")


async def test_a_page_after_a_compaction_is_gone(forgets: Server) -> None:
    for number in range(3):
        await forgets.make_map(f"m{number}")
    _, version, token = await forgets.page(1)
    last = await forgets.make_map("m3")
    await forgets.compact(last["metadata"]["resourceVersion"])
    with pytest.raises(ApiGone):
        await forgets.page(1, token)
    names, newer, _ = await forgets.page(10)
    assert len(names) == 4
    assert newer != version


@pytest.mark.parametrize("selector", ["spec.nodeName=n1", "spec.nodeName==n1"])
async def test_pods_are_selected_by_their_node(server: Server, selector: str) -> None:
    pods = f"/api/v1/namespaces/{server.namespace}/pods"
    for name, node in (("a", "n1"), ("b", "n2"), ("c", "n1")):
        await server.create(pods, pod(name, node))
    found = decode(await server.client.page(pods, {"fieldSelector": selector}))
    assert [item["metadata"]["name"] for item in found["items"]] == ["a", "c"]


def pod(name: str, node: str = "") -> dict[str, object]:
    spec: dict[str, object] = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {**spec, "nodeName": node} if node else spec}


# Watches


async def test_a_watch_tells_what_happened_since_a_version_and_goes_on(server: Server) -> None:
    _, version, _ = await server.page(10)
    made = await server.make_map("a", x="1")
    await server.patch(f"{server.maps}/a", MERGE_PATCH, {"data": {"x": "2"}})
    async with watching(server, version) as watch:
        kind, thing = await watch.next()
        assert (kind, thing["metadata"]["name"]) == ("ADDED", "a")
        assert thing["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        assert (await watch.next())[0] == "MODIFIED"
        await server.make_map("b")
        assert await watch.named() == ("ADDED", "b")
        await server.send("DELETE", f"{server.maps}/a")
        kind, thing = await watch.next()
        assert (kind, thing["metadata"]["name"], thing["data"]) == ("DELETED", "a", {"x": "2"})
        assert int(thing["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


async def test_a_watch_is_resumed_from_the_version_of_its_last_event(server: Server) -> None:
    made = await server.make_map("a")
    await server.make_map("b")
    async with watching(server, made["metadata"]["resourceVersion"]) as watch:
        assert await watch.named() == ("ADDED", "b")


async def test_a_watch_without_a_version_begins_with_what_is_there(server: Server) -> None:
    await server.make_map("a")
    async with watching(server, "") as watch:
        assert await watch.named() == ("ADDED", "a")
        await server.make_map("b")
        assert await watch.named() == ("ADDED", "b")


async def test_a_write_that_changes_nothing_is_no_event(server: Server) -> None:
    made = await server.make_map("a", x="1")
    same = await server.patch(f"{server.maps}/a", MERGE_PATCH, {"data": {"x": "1"}})
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    async with watching(server, made["metadata"]["resourceVersion"]) as watch:
        await server.make_map("b")
        assert await watch.named() == ("ADDED", "b")


async def test_a_watch_ends_when_it_was_asked_to(server: Server) -> None:
    _, version, _ = await server.page(10)
    async with watching(server, version, seconds=1) as watch:
        with pytest.raises(StopAsyncIteration):
            await watch.named()


async def test_a_watch_from_before_a_compaction_is_an_error_in_the_stream(forgets: Server) -> None:
    first = await forgets.make_map("a")
    await forgets.make_map("b")
    last = await forgets.make_map("c")
    await forgets.compact(last["metadata"]["resourceVersion"])
    async with watching(forgets, first["metadata"]["resourceVersion"]) as watch:
        kind, thing = await watch.next()
    assert (kind, thing["kind"], thing["code"], thing["reason"]) == ("ERROR", "Status", 410, "Expired")


async def test_what_leaves_a_selection_is_deleted_from_it(server: Server) -> None:
    made = await server.create(server.maps, {"apiVersion": "v1", "kind": "ConfigMap",
                                             "metadata": {"name": "a", "labels": {"in": "yes"}}})
    async with watching(server, made["metadata"]["resourceVersion"], labelSelector="in=yes") as watch:
        changed = await server.patch(f"{server.maps}/a", MERGE_PATCH, {"metadata": {"labels": {"in": "no"}}})
        kind, thing = await watch.next()
        assert (kind, thing["metadata"]["labels"]) == ("DELETED", {"in": "yes"})
        assert thing["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]
        await server.patch(f"{server.maps}/a", MERGE_PATCH, {"metadata": {"labels": {"in": "yes"}}})
        assert await watch.named() == ("ADDED", "a")


# Single objects


async def test_an_object_gets_its_uid_version_and_time(server: Server) -> None:
    metadata = (await server.make_map("a"))["metadata"]
    assert all(metadata[key] for key in ("uid", "resourceVersion", "creationTimestamp"))
    assert metadata["namespace"] == server.namespace
    assert decode(await server.client.get(f"{server.maps}/a"))["metadata"]["uid"] == metadata["uid"]


async def test_a_name_can_be_generated(server: Server) -> None:
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}}
    made = await server.create(server.maps, wanted)
    assert made["metadata"]["name"].startswith("x-")


async def test_an_object_is_made_once(server: Server) -> None:
    await server.make_map("a")
    with pytest.raises(ApiConflict) as caught:
        await server.make_map("a")
    assert caught.value.reason == "AlreadyExists"


@pytest.mark.parametrize(("metadata", "status"), [({"name": "A_b"}, 422), ({}, 422),
                                                  ({"name": "a", "namespace": "elsewhere"}, 400)])
async def test_a_wrong_object_is_refused(server: Server, metadata: dict[str, str], status: int) -> None:
    with pytest.raises(ApiRefused) as caught:
        await server.create(server.maps, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    assert caught.value.status == status


async def test_what_is_no_json_is_refused(server: Server) -> None:
    with pytest.raises(ApiRefused) as caught:
        await server.client.create(server.maps, b"{nope")
    assert caught.value.status == 400


@pytest.mark.parametrize("path", ["/api/v1/nothing", "/apis/none.example/v1/things",
                                  "/api/v1/namespaces/default/configmaps/none"])
async def test_what_is_not_there_is_not_found(server: Server, path: str) -> None:
    with pytest.raises(ApiNotFound):
        await server.client.get(path)


async def test_nothing_is_made_in_a_namespace_that_is_not_there(server: Server) -> None:
    with pytest.raises(ApiNotFound):
        await server.create(CONFIG_MAPS.format("nowhere"),
                            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})


async def test_an_update_of_an_older_version_is_a_conflict(server: Server) -> None:
    made = await server.make_map("a", x="1")
    await server.patch(f"{server.maps}/a", MERGE_PATCH, {"data": {"x": "2"}})
    with pytest.raises(ApiConflict) as caught:
        await server.send("PUT", f"{server.maps}/a", made)
    assert caught.value.reason == "Conflict"


async def test_an_object_is_deleted_only_under_its_uid(server: Server) -> None:
    made = await server.make_map("a")
    with pytest.raises(ApiConflict):
        await server.send("DELETE", f"{server.maps}/a", {"preconditions": {"uid": "other"}})
    await server.send("DELETE", f"{server.maps}/a", {"preconditions": {"uid": made["metadata"]["uid"]}})
    with pytest.raises(ApiNotFound):
        await server.client.get(f"{server.maps}/a")


async def test_a_pod_on_a_node_is_deleted_in_two_steps(server: Server) -> None:
    pods = f"/api/v1/namespaces/{server.namespace}/pods"
    await server.create(pods, pod("a", "n1"))
    made = await server.create(pods, pod("b"))
    async with watching(server, made["metadata"]["resourceVersion"], pods) as watch:
        await server.send("DELETE", f"{pods}/a")
        kind, thing = await watch.next()
        assert kind == "MODIFIED"
        assert thing["metadata"]["deletionTimestamp"]
        await server.send("DELETE", f"{pods}/a", gracePeriodSeconds="0")
        assert await watch.named("MODIFIED") == ("DELETED", "a")
        await server.send("DELETE", f"{pods}/b")
        assert await watch.named("MODIFIED") == ("DELETED", "b")


async def test_who_is_unknown_is_refused(server: Server) -> None:
    stranger = ApiClient(ClusterAccess(server.access.server, tls=server.access.tls, tokens=StaticToken("no")),
                         SystemClock())
    with pytest.raises(ApiForbidden) as caught:
        await stranger.get("/api/v1/namespaces/default")
    assert caught.value.status == 401
    await stranger.close()


# Patches


async def node(server: Server, status: Mapping[str, object]) -> str:
    name = f"node-{next(NUMBERS)}"
    await server.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                                          "status": status})
    return f"/api/v1/nodes/{name}"


def condition(kind: str, status: str, **more: str) -> dict[str, str]:
    return {"type": kind, "status": status, **more}


async def test_a_strategic_merge_patch_changes_one_condition_and_leaves_the_others(server: Server) -> None:
    path = await node(server, {"conditions": [condition("Ready", "True", reason="a"),
                                              condition("NetworkUnavailable", "True", reason="b", message="c")]})
    found = await server.patch(f"{path}/status", STRATEGIC_MERGE_PATCH, {"status": {"conditions": [
        condition("NetworkUnavailable", "False", reason="d")]}})
    by_type = {one["type"]: one for one in found["status"]["conditions"]}
    assert by_type["Ready"]["reason"] == "a"
    changed = by_type["NetworkUnavailable"]
    assert (changed["status"], changed["reason"], changed["message"]) == ("False", "d", "c")


async def test_a_merge_patch_replaces_a_list(server: Server) -> None:
    path = await node(server, {"conditions": [condition("Ready", "True"), condition("NetworkUnavailable", "True")]})
    found = await server.patch(f"{path}/status", MERGE_PATCH, {"status": {"conditions": [
        condition("NetworkUnavailable", "False")]}})
    assert [one["type"] for one in found["status"]["conditions"]] == ["NetworkUnavailable"]


async def test_applying_one_condition_leaves_the_others(server: Server) -> None:
    path = await node(server, {"conditions": [condition("Ready", "True")]})
    name = path.rsplit("/", 1)[-1]
    found = await server.patch(f"{path}/status", APPLY_PATCH, {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"conditions": [condition("NetworkUnavailable", "False")]}}, fieldManager="flock", force="true")
    assert {one["type"] for one in found["status"]["conditions"]} == {"Ready", "NetworkUnavailable"}


async def test_applying_makes_what_is_not_there_and_needs_a_manager(server: Server) -> None:
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
    with pytest.raises(ApiRefused) as caught:
        await server.patch(f"{server.maps}/a", APPLY_PATCH, wanted)
    assert caught.value.status == 422
    found = await server.patch(f"{server.maps}/a", APPLY_PATCH, wanted, fieldManager="flock")
    assert found["data"] == {"x": "1"}


async def test_the_status_of_a_pod_is_changed_through_its_own_path_alone(server: Server) -> None:
    pods = f"/api/v1/namespaces/{server.namespace}/pods"
    await server.create(pods, pod("a"))
    found = await server.patch(f"{pods}/a", MERGE_PATCH,
                               {"status": {"message": "no"}, "metadata": {"labels": {"x": "y"}}})
    assert "message" not in found.get("status", {})
    assert found["metadata"]["labels"] == {"x": "y"}
    found = await server.patch(f"{pods}/a/status", MERGE_PATCH, {"status": {"message": "yes"}})
    assert found["status"]["message"] == "yes"
    assert found["metadata"]["labels"] == {"x": "y"}


async def test_a_json_patch_tests_before_it_changes(server: Server) -> None:
    await server.make_map("a", x="1")
    change = {"op": "replace", "path": "/data/x", "value": "2"}
    with pytest.raises(ApiRefused) as caught:
        await server.patch(f"{server.maps}/a", JSON_PATCH, [{"op": "test", "path": "/data/x", "value": "9"}, change])
    assert caught.value.status == 422
    found = await server.patch(f"{server.maps}/a", JSON_PATCH,
                               [{"op": "test", "path": "/data/x", "value": "1"}, change])
    assert found["data"] == {"x": "2"}


async def test_a_patch_under_an_older_version_is_a_conflict(server: Server) -> None:
    await server.make_map("a")
    with pytest.raises(ApiConflict):
        await server.patch(f"{server.maps}/a", MERGE_PATCH, {"metadata": {"resourceVersion": "1"}, "data": {"x": "1"}})


async def test_a_patch_of_an_unknown_kind_is_refused(server: Server) -> None:
    await server.make_map("a")
    with pytest.raises(ApiRefused) as caught:
        await server.client.patch(f"{server.maps}/a", b"{}", "text/plain")
    assert caught.value.status == 415


async def test_a_patch_of_nothing_is_not_found(server: Server) -> None:
    with pytest.raises(ApiNotFound):
        await server.patch(f"{server.maps}/none", MERGE_PATCH, {"data": {}})
