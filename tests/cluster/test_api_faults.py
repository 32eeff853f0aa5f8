"""The source against a real kube-apiserver that dies, freezes, forgets, and comes back."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import aiohttp
import pytest
import pytest_asyncio

from flock.api.crd import node_config_crd
from flock.cluster.client import MERGE_PATCH, ApiClient, Params, Patience
from flock.cluster.errors import ApiGone
from flock.cluster.kube import KubeSource
from flock.cluster.view import Snapshot
from flock.errors import FlockError
from flock.system.clock import SystemClock
from flock.testing.wait import await_until
from flock_lab import real_api

pytestmark = pytest.mark.cluster

NODE = "n1"
PODS = "/api/v1/namespaces/default/pods"
CONFIGS = "/apis/flock.fritzlab.net/v1alpha1/nodeconfigs"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class World:
    """A real API server and a source that follows it."""

    def __init__(self, real: real_api.RealApi) -> None:
        self.real = real
        self.client = ApiClient(real.access, SystemClock(), Patience(answer=3.0, whole=5.0, watch=3.0))
        self.source = KubeSource(self.client, NODE, asyncio.get_running_loop())
        self.view = self.source.view

    async def make(self, path: str, thing: dict[str, object]) -> None:
        """Create, once the server takes it: a new kind's storage, and a starting server, take a moment."""
        await await_until(lambda: self.client.create(path, json.dumps(thing).encode()), 60, f"POST {path}",
                          forgive=(FlockError,))

    async def pod(self, name: str) -> None:
        await self.make(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                               "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]}})

    async def config(self, name: str) -> None:
        await self.make(CONFIGS, {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig",
                                  "metadata": {"name": name}, "spec": {"cidr6": ["2001:db8:0:1::/64"]}})

    async def remove(self, name: str) -> None:
        async with aiohttp.ClientSession() as session, session.delete(
            f"{self.real.access.server}{PODS}/{name}?gracePeriodSeconds=0",
            ssl=self.real.access.tls.context() if self.real.access.tls else True,
            headers={"Authorization": f"Bearer {real_api.TOKEN}"},
        ) as answer:
            assert answer.status == 200

    async def compact(self) -> None:
        """Let etcd forget everything but what is now."""
        await self.pod("last")
        version = json.loads(await self.client.get(f"{PODS}/last"))["metadata"]["resourceVersion"]
        await self.remove("last")
        async with aiohttp.ClientSession() as session, session.post(
            f"{self.real.etcd}/v3/kv/compaction", json={"revision": version, "physical": True}
        ) as answer:
            assert answer.status == 200

    async def answers(self) -> None:
        await await_until(lambda: self.client.get("/api/v1/namespaces/default"), 60, "the API server answers",
                          forgive=(FlockError,))

    async def until(self, true: Callable[[Snapshot], bool], deadline: float = 60) -> None:
        await await_until(lambda: true(self.view.snapshot), deadline, "the view")

    def lists(self) -> dict[str, int]:
        return {state.name: state.lists for state in self.source.states}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_api.RealApi]:
    with real_api.running(tmp_path_factory.mktemp("api")) as one:
        yield one


async def opened(real: real_api.RealApi) -> AsyncIterator[World]:
    world = World(real)
    await world.answers()
    found = json.loads(await world.client.get(CRDS))
    if not found["items"]:
        await world.make(CRDS, node_config_crd())
        await world.config(NODE)
    await world.source.start()
    async with asyncio.timeout(60):
        await world.source.listed()
    yield world
    world.source.close()
    await world.client.close()


@pytest_asyncio.fixture
async def world(real: real_api.RealApi) -> AsyncIterator[World]:
    async for one in opened(real):
        yield one


async def test_a_NodeConfig_is_read_as_it_was_applied(world: World) -> None:
    found = world.view.node_config(NODE)
    assert found is not None
    assert (found.generation, found.unknown) == (1, ())
    assert found.uid
    await world.client.patch(f"{CONFIGS}/{NODE}", b'{"spec":{"mtu":1400}}', MERGE_PATCH)
    await world.until(lambda now: now.node_configs[NODE].spec.mtu == 1400)
    assert world.view.problems == ()


async def test_an_API_server_that_is_killed_and_comes_back_is_followed_again(world: World) -> None:
    await world.pod("before")
    await world.until(lambda now: ("default", "before") in now.pods)
    world.real.apiserver.kill()
    await await_until(lambda: all(state.failures for state in world.source.states), 30, "every informer has noticed")
    assert ("default", "before") in world.view.snapshot.pods
    assert world.view.complete
    world.real.apiserver.start()
    await world.answers()
    await world.pod("after")
    await world.until(lambda now: {("default", "before"), ("default", "after")} <= set(now.pods))
    await world.remove("before")
    await world.until(lambda now: ("default", "before") not in now.pods)


async def test_watches_outlive_a_frozen_API_server_without_a_new_list(world: World) -> None:
    lists = world.lists()
    world.real.apiserver.freeze()
    with pytest.raises(FlockError):
        await world.source.live_pod("default", "x")
    began = time.monotonic()
    with pytest.raises(FlockError, match="not known yet"):
        await world.source.await_pod("default", "x", "", time.monotonic() + 2)
    assert time.monotonic() - began < 3
    world.real.apiserver.thaw()
    await world.answers()
    await world.pod("thawed")
    await world.until(lambda now: ("default", "thawed") in now.pods)
    assert world.lists() == lists


async def test_a_pod_is_waited_for(world: World) -> None:
    wait = asyncio.ensure_future(world.source.await_pod("default", "late", "", time.monotonic() + 30))
    await world.pod("late")
    assert (await wait).name == "late"


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_api.RealApi]:
    """An API server that answers from etcd alone: what that has forgotten, it has too."""
    with real_api.running(tmp_path_factory.mktemp("forgetful"), "--watch-cache=false") as one:
        yield one


@pytest_asyncio.fixture
async def forgetful_world(forgetful: real_api.RealApi) -> AsyncIterator[World]:
    async for one in opened(forgetful):
        yield one


async def test_what_went_while_etcd_forgot_is_found_by_a_new_list(
        forgetful_world: World) -> None:
    world = forgetful_world
    for name in ("a", "b"):
        await world.pod(name)
    await world.until(lambda now: len(now.pods) == 2)
    lists = world.lists()["pods"]
    world.source.close()
    await world.remove("a")
    await world.pod("c")
    await world.compact()
    await world.source.start()
    await world.until(lambda now: {name for _, name in now.pods} == {"b", "c"})
    assert world.lists()["pods"] == lists + 1


class Interrupted(ApiClient):
    """Reads pods one by one; after the first page of the first list etcd forgets that list."""

    def __init__(self, real: real_api.RealApi) -> None:
        super().__init__(real.access, SystemClock())
        self.forget: Callable[[], Awaitable[None]] | None = None
        self.refused: list[str] = []

    async def page(self, path: str, params: Params, limit: int = 500, continue_: str = "") -> bytes:
        if self.forget is None or path != "/api/v1/pods":
            return await super().page(path, params, limit, continue_)
        try:
            answer = await super().page(path, params, 1, continue_)
        except ApiGone as error:
            self.refused.append(str(error))
            self.forget = None
            raise
        await self.forget()
        return answer


async def test_410_in_the_middle_of_a_list_begins_it_anew(
        forgetful: real_api.RealApi, forgetful_world: World) -> None:
    world = forgetful_world
    for name in ("x", "y", "z"):
        await world.pod(name)
    client = Interrupted(forgetful)

    async def forget() -> None:
        if ("default", "x") in world.view.snapshot.pods:
            await world.remove("x")
            await world.until(lambda now: ("default", "x") not in now.pods)
            await world.compact()

    await world.until(lambda now: ("default", "x") in now.pods)
    client.forget = forget
    source = KubeSource(client, NODE, asyncio.get_running_loop())
    await source.start()
    async with asyncio.timeout(60):
        await source.listed()
    assert len(client.refused) == 1, "the server forgot the list between two of its pages"
    names = {name for _, name in source.view.snapshot.pods}
    assert {"y", "z"} <= names
    assert "x" not in names
    source.close()
    await client.close()
