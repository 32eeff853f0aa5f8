"""The loops that write to the API, against the fake API server that is held to a real one."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from flock.agent.event_log import LIMIT, Subject
from flock.agent.metrics import Metrics
from flock.agent.state import NodeState
from flock.agent.telling import Telling
from flock.agent.upkeep import COUNTS_GAP, PATIENCE, Upkeep
from flock.agent.worker import Worker
from flock.api.bgp import Bgp
from flock.api.node_config import NodeConfig, NodeConfigSpec
from flock.api.objects import NodeView
from flock.cluster.access import ClusterAccess
from flock.cluster.client import ApiClient, Patience
from flock.cluster.errors import ApiForbidden, ApiUnavailable
from flock.cluster.view import Snapshot, View
from flock.cluster.writes import ApiWrites
from flock.cni.requests import PodArgs
from flock.errors import InvalidConfig, PoolExhausted
from flock.ipam.allocator import Allocator
from flock.ipam.random import CryptoRandom
from flock.ipam.store import Store
from flock.loops.backoff import Backoff
from flock.loops.runner import Runner
from flock.model.family import Family
from flock.pods.plan import NodeFacts
from flock.pods.wiring import PodWiring
from flock.routing.bird_protocol import SessionState
from flock.system.clock import SystemClock
from flock.testing.api_server import ApiServer
from flock.testing.api_store import KINDS
from flock.testing.clock import ManualClock
from flock.testing.wait import await_until

NODE = "n1"
POD = PodArgs(namespace="default", name="web-0", uid="uid-1")
CIDR = IPv6Network("2001:db8:0:1::/64")
CIDR4 = IPv4Network("10.0.0.0/29")


def objects(api: ApiServer, plural: str) -> list[dict[str, Any]]:
    """All of one resource of the core, or of flock."""
    kind = next(kind for kind in KINDS if kind.plural == plural)
    return [dict(stored.object) for stored in api.store.all(kind)]


class Peers:
    """BIRD as a test wants it."""

    def __init__(self) -> None:
        self.sessions: tuple[SessionState, ...] = ()
        self.refused: Mapping[str, str] = {}
        self.trouble: str | None = ""


class World:
    """An API server with a Node and its NodeConfig, and an agent's upkeep whose view a test sets."""

    def __init__(self, api: ApiServer, folder: Path) -> None:
        self.api = api
        self.clock = ManualClock()
        self.client = ApiClient(ClusterAccess(api.url), SystemClock(), Patience(answer=2.0, whole=2.0))
        self.state = NodeState(
            node=NODE, view=View(), store=Store(folder / "a", folder / "r", folder / "d"),
            allocator=Allocator(cidrs={Family.IPV6: [CIDR], Family.IPV4: [CIDR4]}, random=CryptoRandom()),
            wiring=PodWiring(), worker=Worker("none"), clock=self.clock, metrics=Metrics(),
            facts=NodeFacts(mtu=1500, source={}))
        self.peers = Peers()
        self.upkeep = Upkeep(self.state, self.peers, ApiWrites(self.client, NODE))
        self.see()

    def see(self, *, unavailable: str | None = None, config: bool = True, uid: str = "nc-uid",
            refusal: str = "", bgp: bool = False, others: Mapping[str, NodeConfig] | None = None) -> None:
        """Set the view: the Node as the API server has it, unless its condition is given."""
        status = unavailable or self.conditions().get("NetworkUnavailable", {}).get("status", "")
        configs = {NODE: NodeConfig(name=NODE, uid=uid, generation=1, spec=NodeConfigSpec(
            cidr6=(CIDR,), cidr4=(CIDR4,), bgp=Bgp(asn=64513) if bgp else None))} if config else {}
        self.state.view.replace(Snapshot(nodes={NODE: NodeView(name=NODE, network_unavailable=status)},
                                         node_configs={**configs, **(others or {})}, refusal=refusal, complete=True))

    async def tell(self) -> None:
        """One run of the loop that writes Events."""
        await self.upkeep.loops()["events"].action()

    def conditions(self) -> dict[str, dict[str, Any]]:
        return {one["type"]: one for one in objects(self.api, "nodes")[0]["status"]["conditions"]}

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = objects(self.api, "nodeconfigs")[0].get("status", {})
        return found

    def events(self) -> list[dict[str, Any]]:
        return objects(self.api, "events")

    def writes(self) -> int:
        return sum(seen.method in {"PATCH", "POST"} for seen in self.api.seen)


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with ApiServer() as api:
        api.put({"kind": "Node", "metadata": {"name": NODE}, "status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "KubeletReady"},
            {"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated"}]}})
        api.put({"kind": "NodeConfig", "metadata": {"name": NODE}, "spec": {"cidr6": [str(CIDR)]}})
        made = World(api, tmp_path)
        yield made
        await made.client.close()


# R6


async def test_R6_the_condition_is_set_false_and_nobody_elses_is_touched(world: World) -> None:
    await world.upkeep.keep_condition()
    found = world.conditions()
    assert (found["NetworkUnavailable"]["status"], found["NetworkUnavailable"]["reason"]) == ("False", "FlockIsServing")
    assert found["Ready"] == {"type": "Ready", "status": "True", "reason": "KubeletReady"}


async def test_R6_it_is_set_false_again_whoever_sets_it_true(world: World) -> None:
    await world.upkeep.keep_condition()
    world.see(unavailable="True")
    await world.upkeep.keep_condition()
    assert world.conditions()["NetworkUnavailable"]["status"] == "False"
    assert world.writes() == 2


async def test_R6_a_condition_that_is_right_costs_no_write(world: World) -> None:
    await world.upkeep.keep_condition()
    world.see()
    for _ in range(3):
        await world.upkeep.keep_condition()
    assert world.writes() == 1


async def test_R6_a_removed_node_config_is_told_and_the_condition_stays_false(world: World) -> None:
    await world.upkeep.keep_condition()
    world.see(config=False)
    await world.upkeep.keep_condition()
    found = world.conditions()["NetworkUnavailable"]
    assert (found["status"], found["reason"]) == ("False", "NodeConfigMissing")


async def test_R6_an_api_server_that_fails_for_minutes_is_asked_for_ever(world: World) -> None:
    """Field report F1: a condition that was given up in a slow minute was never set again."""
    world.api.fail(503, path="/nodes/", times=20)
    runner = Runner("node-condition", world.upkeep.keep_condition, world.clock, retry=Backoff(), longest_gap=30.0)
    task = asyncio.create_task(runner.run())
    while world.conditions()["NetworkUnavailable"]["status"] != "False":
        await await_until(lambda: world.clock.sleepers > 0, what="the end of a try")
        await world.clock.advance(30.0)
    assert runner.state.runs == 21
    task.cancel()


# Status


async def test_the_status_says_that_all_is_well(world: World) -> None:
    await world.upkeep.keep_status()
    found = world.status()
    assert {one["type"]: one["status"] for one in found["conditions"]} == dict.fromkeys(
        ("Ready", "SpecAccepted", "FieldsKnown", "FieldsEffective", "BirdConfigured", "PeersValid", "CIDRsDisjoint",
         "AddressesAvailable"), "True")
    assert found["observedGeneration"] == 1
    assert found["addresses"] == [{"family": "ipv6", "used": 0, "resting": 0},
                                  {"family": "ipv4", "used": 0, "resting": 0, "free": 5}]


async def test_a_status_that_is_right_costs_no_write(world: World) -> None:
    for _ in range(3):
        await world.upkeep.keep_status()
    assert world.writes() == 1


async def test_a_restarted_agent_keeps_the_times_of_conditions(world: World) -> None:
    await world.upkeep.keep_status()
    before = world.status()["conditions"]
    await world.clock.advance(1000)
    other = Upkeep(world.state, world.peers, ApiWrites(world.client, NODE))
    await other.keep_status()
    assert world.status()["conditions"] == before
    assert world.writes() == 1


async def test_a_peer_that_is_left_out_is_in_status_and_has_one_event(world: World) -> None:
    world.peers.refused = {"tor": "password is too long"}
    for _ in range(2):
        await world.upkeep.keep_status()
        await world.tell()
    conditions = {one["type"]: one for one in world.status()["conditions"]}
    assert conditions["PeersValid"]["status"] == "False"
    (event,) = world.events()
    assert (event["involvedObject"]["kind"], event["involvedObject"]["uid"]) == ("NodeConfig", "nc-uid")
    assert (event["reason"], event["message"]) == ("PeersLeftOut", "tor: password is too long")


async def test_a_node_config_that_was_deleted_and_made_anew_gets_its_status(world: World) -> None:
    await world.upkeep.keep_status()
    world.api.remove("NodeConfig", NODE)
    world.api.put({"kind": "NodeConfig", "metadata": {"name": NODE}, "spec": {"cidr6": [str(CIDR)]}})
    world.see(uid="another")
    await world.upkeep.keep_status()
    assert world.status()["observedGeneration"] == 1


async def test_counts_alone_wait_and_conditions_dont(world: World) -> None:
    """Every write of a NodeConfig is told to every agent of the cluster."""
    await world.upkeep.keep_status()
    world.state.allocator.mark_in_use(CIDR4[2])
    await world.upkeep.keep_status()
    assert world.writes() == 1, "nobody waits for a count"
    world.peers.refused = {"tor": "password is too long"}
    await world.upkeep.keep_status()
    assert world.writes() == 2
    assert world.status()["addresses"][1]["used"] == 1
    world.state.allocator.mark_in_use(CIDR4[3])
    await world.clock.advance(COUNTS_GAP)
    await world.upkeep.keep_status()
    assert world.status()["addresses"][1]["used"] == 2


async def test_nothing_is_said_of_peers_before_bird_was_looked_at(world: World) -> None:
    world.peers.trouble = None
    await world.upkeep.keep_status()
    assert world.writes() == 0


async def test_a_bird_that_fell_silent_and_a_refused_spec_are_told(world: World) -> None:
    world.peers.trouble = "BIRD doesn't answer"
    world.see(refusal="spec.mtu -1 must be at least 1280")
    await world.upkeep.keep_status()
    conditions = {one["type"]: one for one in world.status()["conditions"]}
    assert (conditions["BirdConfigured"]["status"], conditions["SpecAccepted"]["status"]) == ("True", "False")
    assert "spec.mtu -1" in conditions["SpecAccepted"]["message"]


async def test_a_bird_that_isnt_there_yet_is_no_event_and_one_that_stays_away_is(world: World) -> None:
    world.see(bgp=True)
    world.peers.trouble = "BIRD isn't running"
    for passed in (0.0, PATIENCE["BirdConfigured"] - 1):
        await world.clock.advance(passed)
        await world.upkeep.keep_status()
        await world.tell()
        assert world.events() == []
    await world.clock.advance(1.0)
    for _ in range(2):
        await world.upkeep.keep_status()
        await world.tell()
    (event,) = world.events()
    assert (event["reason"], event["count"]) == ("BirdNotConfigured", 1)


async def test_a_restarted_agent_tells_no_event_twice(world: World) -> None:
    world.peers.refused = {"tor": "password is too long"}
    await world.upkeep.keep_status()
    await world.tell()
    other = Upkeep(world.state, world.peers, ApiWrites(world.client, NODE))
    await other.keep_status()
    await other.loops()["events"].action()
    assert len(world.events()) == 1


async def test_a_family_that_an_older_node_gives_out_takes_ready_away(world: World) -> None:
    world.see(others={"a": NodeConfig(name="a", spec=NodeConfigSpec(cidr4=(CIDR4,)))})
    world.state.allocator.reconfigure({Family.IPV6: [CIDR]})
    await world.upkeep.keep_status()
    conditions = {one["type"]: one for one in world.status()["conditions"]}
    assert (conditions["Ready"]["status"], conditions["CIDRsDisjoint"]["status"]) == ("False", "False")
    assert "IPv4" in conditions["AddressesAvailable"]["message"]


async def test_a_family_that_is_only_just_configured_takes_nothing_away(world: World) -> None:
    world.state.allocator.reconfigure({Family.IPV6: [CIDR]})
    await world.upkeep.keep_status()
    assert {one["type"]: one["status"] for one in world.status()["conditions"]}["Ready"] == "True"


def test_an_agent_without_a_cluster_pays_for_none_of_it() -> None:
    """aiohttp alone is 20 MiB."""
    program = ("import sys, flock.agent.main; print([name for name in sys.modules "
               "if name in {'aiohttp', 'flock.agent.upkeep', 'flock.cluster.client'}])")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_a_deleted_node_config_is_no_failure(world: World) -> None:
    await world.upkeep.keep_status()
    world.api.remove("NodeConfig", NODE)
    world.peers.refused = {"tor": "x"}
    await world.upkeep.keep_status()
    world.see(config=False)
    await world.upkeep.keep_status()


# Events


async def test_I19_a_refused_annotation_becomes_an_event_on_its_pod(world: World) -> None:
    assert world.upkeep.refused(POD, InvalidConfig("ipv4 'maybe' must be true or false"))
    await world.tell()
    (event,) = world.events()
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "web-0",
                                       "uid": "uid-1"}
    assert event["message"] == "ipv4 'maybe' must be true or false"


async def test_the_same_refusal_again_raises_the_count(world: World) -> None:
    for _ in range(3):
        world.upkeep.refused(POD, PoolExhausted("no free address in 10.0.0.0/29"))
        await world.tell()
        await world.clock.advance(20)
    (event,) = world.events()
    assert event["count"] == 3


async def test_events_wait_while_the_api_server_is_away(world: World) -> None:
    world.api.fail(503, path="/events", times=1)
    world.upkeep.refused(POD, PoolExhausted("full"))
    runner = Runner("events", world.tell, world.clock, retry=Backoff(), longest_gap=10.0)
    task = asyncio.create_task(runner.run())
    await await_until(lambda: runner.state.failures == 1, what="the first try")
    await await_until(lambda: world.clock.sleepers > 0, what="the pause")
    await world.clock.advance(60.0)
    await await_until(lambda: len(world.events()) == 1, what="the Event")
    task.cancel()


async def test_an_event_that_is_refused_doesnt_stop_the_next(world: World) -> None:
    world.upkeep.refused(PodArgs(namespace="nowhere", name="a", uid="u"), PoolExhausted("full"))
    world.upkeep.refused(POD, PoolExhausted("full"))
    await world.tell()
    assert [event["involvedObject"]["name"] for event in world.events()] == ["web-0"]


async def test_an_event_that_cant_be_taken_now_waits_behind_the_others(world: World) -> None:
    """Another namespace's webhook that fails must not silence a whole node."""
    for name in ("a", "b"):
        world.upkeep.refused(PodArgs(namespace="default", name=name, uid=name), PoolExhausted("full"))
    world.api.fail(500, path="/events", times=1)
    with pytest.raises(ApiUnavailable):
        await world.tell()
    await world.tell()
    names = [event["involvedObject"]["name"] for event in world.events()]
    assert sorted(names) == ["a", "b"]


async def test_an_api_server_that_takes_ten_seconds_for_each_is_no_stuck_loop(world: World) -> None:
    """A loop that runs for two minutes counts as stuck, and the agent would be restarted for it."""
    class Slow(ApiWrites):
        async def create_event(self, namespace: str, event: Mapping[str, object]) -> None:
            await super().create_event(namespace, event)
            await world.clock.advance(10.0)

    telling = Telling(NODE, Slow(world.client, NODE), world.clock, world.state.metrics)
    for number in range(8):
        telling.note(Subject(api_version="v1", kind="Pod", namespace="default", name=f"p{number}", uid="u"), "R", "m")
    await telling.run()
    assert len(world.events()) == 3
    await telling.run()
    assert len(world.events()) == 6


async def test_an_event_is_not_given_up_for_an_expired_token(world: World) -> None:
    world.upkeep.refused(POD, PoolExhausted("full"))
    world.api.fail(401, path="/events", times=1)
    with pytest.raises(ApiForbidden):
        await world.tell()
    await world.tell()
    assert len(world.events()) == 1


async def test_an_agent_that_may_write_no_events_says_so_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.api.fail(403, path="/events", times=5)
    for number in range(5):
        world.upkeep.refused(PodArgs(namespace="default", name=f"pod-{number}", uid="u"), PoolExhausted("full"))
    await world.tell()
    assert world.events() == []
    assert sum(record.name == "flock.events" for record in caplog.records) == 1


async def test_events_without_a_place_are_counted_and_nobody_waits(world: World) -> None:
    for number in range(LIMIT + 3):
        world.upkeep.refused(PodArgs(namespace="default", name=f"pod-{number}", uid="u"), PoolExhausted("full"))
    assert world.state.metrics.registry.get_sample_value("flock_events_dropped_total") == 3


async def test_who_may_not_write_is_told_so(world: World) -> None:
    world.api.fail(403, path="/nodes/", times=1)
    with pytest.raises(ApiForbidden, match="/nodes/"):
        await world.upkeep.keep_condition()
