"""R5, R11: how orphans are removed: two sightings, a live read, and what isn't certain stays."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from flock.agent.collector import BETWEEN_SIGHTINGS, Collector
from flock.agent.metrics import Metrics
from flock.agent.state import NodeState
from flock.agent.worker import Worker
from flock.api.objects import PodView
from flock.cluster.view import Snapshot, View
from flock.errors import FlockError, TryAgain
from flock.ipam.allocator import Allocator
from flock.ipam.random import CryptoRandom
from flock.ipam.store import Store
from flock.model.attachment import Attachment
from flock.model.ids import AttachmentKey, ContainerID, IfName
from flock.pods.plan import NodeFacts
from flock.pods.wiring import PodWiring
from flock.testing.clock import ManualClock

NODE = "node-1"
UID = "0b5a2c1e-1111-4222-8333-44445555666{}"


def entry(number: int = 1) -> Attachment:
    return Attachment(container_id=ContainerID(f"c{number}"), ifname=IfName("eth0"), host_ifname="flkx",
                      namespace="ns", pod=f"web-{number}", uid=UID.format(number), ip6=f"2001:db8::{number}",
                      netns="/run/netns/x", network="flock")


def pod(number: int = 1, **more: object) -> PodView:
    known = PodView(namespace="ns", name=f"web-{number}", uid=UID.format(number), node_name=NODE,
                    pod_ips=(f"2001:db8::{number}",))
    return msgspec.structs.replace(known, **more)


class World:
    """An agent an hour after its pods' ADDs, its API server, and what it removes."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(monotonic=3600.0)
        self.state = NodeState(
            node=NODE, view=View(), store=Store(folder / "a", folder / "r", folder / "d"),
            allocator=Allocator(cidrs={}, random=CryptoRandom()), wiring=PodWiring(), worker=Worker("test"),
            clock=self.clock, metrics=Metrics(), facts=NodeFacts(mtu=1500, source={}))
        self.state.store.load(0.0)
        self.collector = Collector(self.state, self, self)
        self.live: dict[str, PodView] = {}
        self.unreachable = False
        self.stuck: set[AttachmentKey] = set()
        self.removals: list[AttachmentKey] = []

    def add(self, *entries: Attachment) -> None:
        for one in entries:
            self.state.store.write_pending(one)
            self.state.store.commit(one.key)

    def see(self, *pods: PodView, complete: bool = True) -> None:
        self.state.view.replace(Snapshot(pods={(one.namespace, one.name): one for one in pods}, complete=complete))

    async def listed(self) -> None:
        while not self.state.view.complete:
            await self.clock.sleep(0.1)

    async def live_pod(self, namespace: str, name: str) -> PodView | None:
        if self.unreachable:
            raise TryAgain("the API server can't be reached")
        return self.live.get(name) if namespace == "ns" else None

    async def removed(self, key: AttachmentKey, why: str) -> FlockError | None:
        assert why.startswith("orphan: ")
        if key in self.stuck:
            return FlockError("the link stays")
        self.removals.append(key)
        self.state.store.release(key, self.clock.uptime())
        return None

    def begin(self) -> "asyncio.Task[None]":
        return asyncio.create_task(self.collector.run())

    async def run(self) -> None:
        """One whole run."""
        task = self.begin()
        await self.clock.advance(BETWEEN_SIGHTINGS)
        await task


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.state.worker.start()
    yield made
    made.state.worker.stop()


async def test_R11_an_orphan_is_removed_after_two_sightings_and_a_live_read(world: World) -> None:
    world.add(entry(1), entry(2))
    world.see(pod(2))
    task = world.begin()
    await world.clock.advance(BETWEEN_SIGHTINGS - 0.1)
    assert world.removals == []
    await world.clock.advance(0.1)
    await task
    assert world.removals == [entry(1).key]


async def test_R5_nothing_is_removed_before_the_view_is_complete(world: World) -> None:
    world.add(entry())
    world.see(complete=False)
    task = world.begin()
    await world.clock.advance(600)
    assert world.removals == []
    assert not task.done()
    world.see(pod())
    await world.clock.advance(BETWEEN_SIGHTINGS + 1)
    await task
    assert world.removals == []


async def test_R11_a_pod_that_is_seen_again_is_no_orphan(world: World) -> None:
    world.add(entry())
    world.see()
    task = world.begin()
    await world.clock.advance(1)
    world.see(pod())
    await world.clock.advance(BETWEEN_SIGHTINGS)
    await task
    assert world.removals == []


async def test_R5_a_live_read_that_knows_the_pod_or_fails_keeps_it(world: World) -> None:
    world.add(entry())
    world.see()
    world.live["web-1"] = pod()
    await world.run()
    world.live.clear()
    world.unreachable = True
    await world.run()
    assert world.removals == []
    world.unreachable = False
    await world.run()
    assert world.removals == [entry().key]


@pytest.mark.parametrize("now", [pod(node_name="node-2"), pod(uid=UID.format(9)), pod(phase="Failed")])
async def test_R5_a_live_read_of_a_pod_elsewhere_of_another_life_or_ended_confirms_it(
        world: World, now: PodView) -> None:
    world.add(entry())
    world.see()
    world.live["web-1"] = now
    await world.run()
    assert world.removals == [entry().key]


async def test_R5_a_container_that_is_added_anew_meanwhile_is_not_cut(world: World) -> None:
    world.add(entry())
    world.see()
    task = world.begin()
    await world.clock.advance(1)
    world.state.store.release(entry().key, 1.0)
    world.add(msgspec.structs.replace(entry(), created=3601.0))
    await world.clock.advance(BETWEEN_SIGHTINGS)
    await task
    assert world.removals == []


async def test_R15_one_that_can_not_be_removed_keeps_no_other(world: World) -> None:
    world.add(entry(1), entry(2))
    world.see()
    world.stuck = {entry(1).key}
    await world.run()
    assert world.removals == [entry(2).key]


@pytest.mark.parametrize("jump", [-10 * 365 * 86400.0, 10 * 365 * 86400.0])
async def test_R11_a_clock_that_is_set_makes_no_orphan_and_keeps_none(world: World, jump: float) -> None:
    world.add(entry(1), msgspec.structs.replace(entry(2), created=3590.0))
    world.see()
    world.clock.jump(jump)
    await world.run()
    assert world.removals == [entry(1).key], "the other is too young"


async def test_R5_a_rebuilt_allocation_is_its_pods_and_ends_with_it(world: World) -> None:
    lost = msgspec.structs.replace(entry(), namespace="", pod="", uid="", netns="", network="")
    world.add(lost)
    world.see(pod())
    await world.run()
    world.state.worker.stop()
    known = world.state.store.get(lost.key)
    assert known is not None
    assert (known.owner, known.uid) == ("ns/web-1", UID.format(1))
    world.see()
    await world.run()
    assert world.removals == [lost.key]
