"""The Kubernetes API as the source of the view: whole snapshots, problems, an ADD that is quicker than the watch."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import pytest_asyncio

from flock.api.named_ports import NamedPort
from flock.api.network_policy import Rule
from flock.api.objects import NamespaceView, PodView
from flock.api.peer_pod import PeerPod
from flock.cluster.access import ClusterAccess
from flock.cluster.client import ApiClient, Patience
from flock.cluster.errors import ApiUnreachable
from flock.cluster.informer import InformerState
from flock.cluster.kube import KubeSource
from flock.cluster.pod_wait import PodWait
from flock.cluster.view import Snapshot, View
from flock.cluster.watch import Change
from flock.errors import FlockError, IOFailure, TryAgain
from flock.system.clock import SystemClock
from flock.testing.api_server import ApiServer
from flock.testing.clock import ManualClock
from flock.testing.wait import await_until

NODE = "n1"


def pod(name: str, node: str = NODE, namespace: str = "default", **more: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, **more.pop("metadata", {})}
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}], **more.pop("spec", {})}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, **more}


def config(name: str = NODE, **spec: object) -> dict[str, Any]:
    return {"kind": "NodeConfig", "metadata": {"name": name}, "spec": {"cidr6": ["2001:db8:0:1::/64"], **spec}}


class World:
    """An API server and a source that follows it."""

    def __init__(self, api: ApiServer, *, with_policy: bool = False) -> None:
        self.api = api
        self.client = ApiClient(ClusterAccess(api.url), SystemClock(), Patience(answer=2.0, whole=2.0))
        self.states: list[tuple[InformerState, FlockError | None]] = []
        self.source = KubeSource(self.client, NODE, asyncio.get_running_loop(), with_policy=with_policy,
                                 on_state=lambda state, error: self.states.append((state, error)))
        self.view = self.source.view

    async def start(self) -> None:
        await self.source.start()
        async with asyncio.timeout(5):
            await self.source.listed()
        await self.watching("pods", "namespaces", "nodes", "nodeconfigs")

    async def watching(self, *plurals: str) -> None:
        await await_until(lambda: all(self.api.watching(plural) for plural in plurals), what="watches are open")

    async def until(self, true: Callable[[Snapshot], bool]) -> None:
        await await_until(lambda: true(self.view.snapshot), what="the view")

    async def close(self) -> None:
        self.source.close()
        await self.client.close()


@pytest_asyncio.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        server.put({"kind": "Node", "metadata": {"name": NODE}})
        server.put(config())
        yield server


@pytest_asyncio.fixture
async def world(api: ApiServer) -> AsyncIterator[World]:
    one = World(api)
    yield one
    await one.close()


async def test_R4_the_view_holds_this_nodes_pods_and_nothing_is_judged_before_the_first_list_is_whole(
    api: ApiServer, world: World
) -> None:
    api.put(pod("mine"))
    api.put(pod("other", "n2"))
    api.fail(500, path="/pods", times=1)
    await world.source.start()
    await world.until(lambda now: NODE in now.node_configs and "default" in now.namespaces)
    assert not world.view.complete
    assert world.view.snapshot.pods == {}
    await world.source.listed()
    assert set(world.view.snapshot.pods) == {("default", "mine")}
    asked = next(seen for seen in api.seen if seen.path.endswith("/pods"))
    assert asked.query["fieldSelector"] == f"spec.nodeName={NODE}"


async def test_R14_a_changed_NodeConfig_is_in_the_view_and_a_removed_one_is_not(api: ApiServer, world: World) -> None:
    await world.start()
    api.put(config(mtu=1400))
    await world.until(lambda now: now.node_configs[NODE].spec.mtu == 1400)
    api.remove("NodeConfig", NODE)
    await world.until(lambda now: NODE not in now.node_configs)


async def test_a_NodeConfig_that_cannot_be_used_is_a_problem_and_its_last_good_state_stays(
    api: ApiServer, world: World
) -> None:
    await world.start()
    api.put(config(mtu="no"))
    await world.until(lambda now: bool(now.problems))
    (problem,) = world.view.problems
    assert problem.file == f"NodeConfig {NODE}"
    assert "spec.mtu" in problem.message
    found = world.view.node_config(NODE)
    assert found is not None
    assert found.spec.mtu is None
    api.put(config(mtu=1400))
    await world.until(lambda now: not now.problems and now.node_configs[NODE].spec.mtu == 1400)


async def test_unknown_fields_and_bad_peers_of_this_nodes_NodeConfig_are_told_and_left_out(
    api: ApiServer, world: World
) -> None:
    bad = {"name": "bad", "address": "ff02::1", "asn": 64512}
    api.put(config(newer=1, bgp={"asn": 64513, "peers": [bad]}))
    api.put(config("n2", newer=1))
    await world.start()
    texts = [str(problem) for problem in world.view.problems]
    assert len(texts) == 2
    assert "spec.newer" in texts[0]
    assert "spec.bgp.peers[0].address" in texts[1]
    assert world.view.node_config(NODE) is not None


async def test_nodes_and_namespaces_are_followed(api: ApiServer, world: World) -> None:
    await world.start()
    api.put({"kind": "Node", "metadata": {"name": "n2"}, "status": {
        "addresses": [{"type": "Hostname", "address": "n2"}, {"type": "InternalIP", "address": "2001:db8::2"}],
        "conditions": [{"type": "NetworkUnavailable", "status": "True"}, {"type": "Ready", "status": "True"}]}})
    api.put({"kind": "Namespace", "metadata": {"name": "web", "labels": {"a": "b"}}})
    await world.until(lambda now: "n2" in now.nodes and "web" in now.namespaces)
    node = world.view.node("n2")
    assert node is not None
    assert (node.addresses, node.network_unavailable, node.ready) == (("2001:db8::2",), "True", True)
    api.remove("Node", "n2")
    await world.until(lambda now: "n2" not in now.nodes)


async def test_changes_that_come_together_make_one_snapshot(api: ApiServer, world: World) -> None:
    await world.start()
    count = 0

    def note() -> None:
        nonlocal count
        count += 1

    world.view.subscribe(note)
    for number in range(100):
        api.put(pod(f"p{number}"))
    await world.until(lambda now: len(now.pods) == 100)
    assert count <= 5


async def test_a_hostile_object_stops_nothing(api: ApiServer, world: World) -> None:
    await world.start()
    deep = b"[" * 3000 + b"]" * 3000
    raw = b'{"metadata":{"name":"deep","namespace":"default","resourceVersion":"1"},"spec":{"nodeName":"n1"},"x":%s}'
    api.put(pod("deep"), raw % deep)
    api.put(pod("big", metadata={"annotations": {"x": "y" * 1_000_000}}))
    api.put(pod("after"))
    await world.until(lambda now: {name for _, name in now.pods} == {"big", "after"})
    big = world.view.pod("default", "big")
    assert big is not None
    assert big.annotations == {}
    (problem,) = world.view.problems
    assert (problem.file, problem.message) == ("Pod default/deep", "it is nested too deeply")


async def test_an_object_larger_than_a_line_may_be_stops_nothing(api: ApiServer, world: World) -> None:
    await world.start()
    api.put(pod("huge", metadata={"annotations": {"x": "y" * 9_000_000}}))
    api.put(pod("after"))
    await world.until(lambda now: ("default", "after") in now.pods)
    assert [problem.file for problem in world.view.problems] == ["Pod default/huge"]


# What fails, and heals


async def test_a_server_that_dies_leaves_the_view_and_its_watches_are_resumed_without_a_list(
    api: ApiServer, world: World
) -> None:
    api.put(pod("a"))
    await world.start()
    before, lists = world.view.snapshot, api.asked("pods", watch=False)
    await api.stop()
    await await_until(lambda: len(world.states) >= 4, what="every informer has noticed")
    assert world.view.snapshot == before
    assert all(state.complete and state.failures for state in world.source.states)
    api.put(pod("b"))
    await api.start()
    await world.until(lambda now: ("default", "b") in now.pods)
    await world.watching("namespaces", "nodes", "nodeconfigs")
    api.bookmark()
    await await_until(lambda: all(state.healthy for state in world.source.states), what="every informer is well")
    assert api.asked("pods", watch=False) == lists


async def test_a_server_that_forgot_is_listed_anew_and_what_went_meanwhile_is_gone(
    api: ApiServer, world: World
) -> None:
    api.put(pod("a"))
    api.put(pod("b"))
    await world.start()
    await api.stop()
    api.remove("Pod", "a", "default")
    api.put(pod("c"))
    api.compact()
    await api.start()
    await world.until(lambda now: set(now.pods) == {("default", "b"), ("default", "c")})


async def test_a_silent_server_loses_nothing_for_ever(api: ApiServer, world: World) -> None:
    await world.start()
    api.withhold = True
    api.put(pod("a"))
    api.cut()
    api.withhold = False
    await world.until(lambda now: ("default", "a") in now.pods)


async def test_trouble_is_told_with_its_reason(api: ApiServer, world: World) -> None:
    api.fail(403, path="/nodeconfigs", times=1)
    await world.source.start()
    await world.source.listed()
    (state, error), (over, nothing) = world.states
    assert (state.name, state.failures) == ("nodeconfigs", 1)
    assert "403" in str(error)
    assert (over.failures, nothing) == (0, None)


# One pod


async def test_a_pod_that_comes_is_waited_for_by_its_uid(api: ApiServer, world: World) -> None:
    await world.start()
    wait = asyncio.ensure_future(world.source.await_pod("default", "a", "u2", time.monotonic() + 5))
    await asyncio.sleep(0)
    api.put(pod("a", metadata={"uid": "u1"}))
    await world.until(lambda now: ("default", "a") in now.pods)
    assert not wait.done()
    assert not world.source.knows("default", "a", "u2")
    assert world.source.knows("default", "a", "u1")
    api.remove("Pod", "a", "default")
    api.put(pod("a", metadata={"uid": "u2"}))
    assert (await wait).uid == "u2"


async def test_a_static_pod_is_known_by_its_mirrors_hash(api: ApiServer, world: World) -> None:
    api.put(pod("a", metadata={"uid": "u1", "annotations": {"kubernetes.io/config.hash": "h"}}))
    await world.start()
    assert world.source.knows("default", "a", "h")
    found = await world.source.await_pod("default", "a", "h", time.monotonic() + 1)
    assert found.mirror_hash == "h"


async def test_a_pod_that_the_watch_does_not_tell_of_is_read_live_and_then_in_the_view(
    api: ApiServer, world: World
) -> None:
    await world.start()
    api.withhold = True
    api.put({"kind": "Namespace", "metadata": {"name": "web", "annotations": {"flock.fritzlab.net/ipv4": "false"}}})
    api.put(pod("a", namespace="web"))
    found = await world.source.await_pod("web", "a", "", time.monotonic() + 5)
    assert found.name == "a"
    assert world.view.pod("web", "a") is found
    namespace = world.view.namespace("web")
    assert namespace is not None
    assert namespace.annotations == {"flock.fritzlab.net/ipv4": "false"}
    api.withhold = False
    api.remove("Pod", "a", "web")
    await world.until(lambda now: ("web", "a") not in now.pods and "web" in now.namespaces)


async def test_what_was_read_live_does_not_outlive_a_new_list(api: ApiServer, world: World) -> None:
    await world.start()
    api.withhold = True
    api.put(pod("a"))
    await world.source.await_pod("default", "a", "", time.monotonic() + 5)
    api.remove("Pod", "a", "default")
    api.compact()
    api.cut()
    api.withhold = False
    await world.until(lambda now: ("default", "a") not in now.pods)


@pytest.mark.parametrize(("there", "text"), [
    (pod("a", "n2"), "the API server has it on node n2"),
    (None, "the API server has no such pod"),
])
async def test_a_pod_that_is_not_on_this_node_is_not_it(
    api: ApiServer, world: World, there: dict[str, Any] | None, text: str
) -> None:
    await world.start()
    if there is not None:
        api.put(there)
    with pytest.raises(TryAgain, match=f"pod default/a is not known yet: {text}"):
        await world.source.await_pod("default", "a", "", time.monotonic() + 2.5)
    assert world.view.pod("default", "a") is None


async def test_a_pod_of_another_uid_is_refused_at_the_deadline(api: ApiServer, world: World) -> None:
    api.put(pod("a", metadata={"uid": "u1"}))
    await world.start()
    with pytest.raises(TryAgain, match="pod default/a is known with another UID: u1, not u2"):
        await world.source.await_pod("default", "a", "u2", time.monotonic() + 0.1)


async def test_a_live_read_tells_absence_from_ignorance(api: ApiServer, world: World) -> None:
    api.put(pod("a", "n2"))
    found = await world.source.live_pod("default", "a")
    assert found is not None
    assert found.node_name == "n2"
    assert await world.source.live_pod("default", "b") is None
    assert await world.source.live_pod("..", "nodes") is None
    api.fail(500, path="/pods/")
    with pytest.raises(ApiUnreachable):
        await world.source.live_pod("default", "a")
    api.put(pod("a"), b'{"metadata":{"name":"a","namespace":"default","labels":1}}')
    with pytest.raises(IOFailure, match="Pod default/a can't be used"):
        await world.source.live_pod("default", "a")


class Waiting:
    """A wait on a clock that a test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.view = View()
        self.looks: list[float] = []
        self.answer: Callable[[], str] = lambda: "no reason"
        wait = PodWait(self.view, self.clock, self._look, namespace="default", name="a", uid="")
        self.task = asyncio.ensure_future(wait.until(1000 + 50))

    async def _look(self, namespace: str, name: str) -> str:
        self.looks.append(self.clock.monotonic() - 1000)
        return self.answer()


async def test_the_watch_has_a_moment_before_the_first_live_read_and_reads_grow_rare() -> None:
    waiting = Waiting()
    await waiting.clock.advance(0.9)
    assert waiting.looks == []
    await waiting.clock.advance(49.2)
    assert waiting.looks == [1, 3, 7, 15, 23, 31, 39, 47]
    with pytest.raises(TryAgain, match="no reason"):
        await waiting.task


async def test_a_live_read_that_hangs_does_not_hold_up_what_the_watch_tells() -> None:
    waiting = Waiting()
    hang = asyncio.Event()

    async def look(_namespace: str, _name: str) -> str:
        await hang.wait()
        return ""

    wait = asyncio.ensure_future(PodWait(waiting.view, waiting.clock, look, namespace="default", name="b", uid="")
                                 .until(1050))
    await waiting.clock.advance(10)
    waiting.view.replace(Snapshot(pods={("default", "b"): PodView(namespace="default", name="b")},
                                  namespaces={"default": NamespaceView(name="default")}))
    await waiting.clock.settle()
    assert wait.result().name == "b"
    waiting.task.cancel()


# All pods


async def test_all_pods_are_followed_only_where_policy_needs_them(api: ApiServer) -> None:
    api.put(pod("a", "n2", metadata={"labels": {"app": "x"}}, status={"podIPs": [{"ip": "10.0.0.1"}]},
                spec={"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 80}]}]}))
    world = World(api)
    await world.start()
    assert world.source.peers == {}
    await world.close()
    world = World(api, with_policy=True)
    told: list[Change[PeerPod]] = []

    def hear(changes: Sequence[Change[PeerPod]]) -> None:
        told.extend(changes)

    world.source.subscribe_peers(hear)
    await world.start()
    found = world.source.peers["default", "a"]
    assert (found.labels, found.pod_ips, found.node_name) == ({"app": "x"}, ("10.0.0.1",), "n2")
    assert found.ports == (NamedPort("http", 80, "TCP"),)
    assert world.view.snapshot.pods == {}
    api.put(pod("a", "n2", status={"phase": "Succeeded"}))
    await await_until(lambda: len(told) == 2)
    assert told[1].after is not None
    assert told[1].after.finished
    await world.close()


async def test_policies_are_followed_where_policy_needs_them(api: ApiServer) -> None:
    spec = {"podSelector": {}, "policyTypes": ["Ingress"]}
    api.put({"kind": "NetworkPolicy", "metadata": {"name": "deny", "namespace": "default"}, "spec": spec})
    world = World(api, with_policy=True)
    await world.start()
    found = world.view.snapshot.policies["default", "deny"]
    assert (found.namespace, found.name, found.ingress, found.egress) == ("default", "deny", (), None)
    await world.close()


async def test_a_rule_that_can_t_be_understood_allows_nothing_and_is_told(api: ApiServer) -> None:
    rule = {"from": [{"ipBlock": {"cidr": "10.0.0.0/99"}}]}
    spec = {"podSelector": {}, "ingress": [rule]}
    api.put({"kind": "NetworkPolicy", "metadata": {"name": "odd", "namespace": "default"}, "spec": spec})
    world = World(api, with_policy=True)
    await world.start()
    assert world.view.snapshot.policies["default", "odd"].ingress == (Rule(()),)
    (problem,) = world.view.problems
    assert str(problem) == ('NetworkPolicy default/odd: spec.ingress[0].from[0].ipBlock.cidr "10.0.0.0/99" '
                            "is not a CIDR (address/length); it allows nothing")
    await world.close()
