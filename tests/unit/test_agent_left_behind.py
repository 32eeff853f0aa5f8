"""R14: pods whose CIDR is no longer the node's are announced one by one, and nothing is withdrawn before that."""

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.agent.left_behind import PATIENCE, LeftBehind, find_left_behind
from flock.agent.metrics import Metrics
from flock.agent.state import NodeState
from flock.agent.worker import Worker
from flock.api.node_config import NodeConfig, NodeConfigSpec
from flock.cluster.view import Snapshot, View
from flock.ipam.allocator import Allocator
from flock.ipam.random import CryptoRandom
from flock.ipam.store import Store
from flock.model.attachment import Attachment
from flock.model.family import Network
from flock.model.ids import ContainerID, IfName
from flock.pods.plan import NodeFacts
from flock.pods.wiring import PodWiring
from flock.testing.clock import ManualClock

NODE = "node-1"
OLD, NEW = ("2001:db8:0:1::/64", "10.64.1.0/24"), ("2001:db8:0:2::/64", "10.64.2.0/24")


def entry(number: int, net: int = 1) -> Attachment:
    return Attachment(container_id=ContainerID(f"c{number}"), ifname=IfName("eth0"), host_ifname=f"flk{number}",
                      ip6=f"2001:db8:0:{net}::{number}", ip4=f"10.64.{net}.{number}")


class World:
    """An agent's state with pods in a store, whose links no kernel has."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.state = NodeState(
            node=NODE, view=View(), store=Store(folder / "a", folder / "r", folder / "d"),
            allocator=Allocator(cidrs={}, random=CryptoRandom()), wiring=PodWiring(), worker=Worker("test"),
            clock=self.clock, metrics=Metrics(), facts=NodeFacts(mtu=1500, source={}))
        self.state.store.load(0.0)
        self.left = LeftBehind(self.state)
        self.settled: list[str] = []
        self.left.settled = self.settled.append

    def configure(self, *cidrs: str, host_routes: Sequence[str] = ()) -> None:
        spec = NodeConfigSpec(cidr6=tuple(IPv6Network(text) for text in cidrs if ":" in text),
                              cidr4=tuple(IPv4Network(text) for text in cidrs if ":" not in text),
                              host_routes=tuple(map(ip_network, host_routes)))
        self.state.view.replace(Snapshot(node_configs={NODE: NodeConfig(name=NODE, spec=spec)}, complete=True))

    def remove_config(self) -> None:
        self.state.view.replace(Snapshot(complete=True))

    def add(self, attachment: Attachment) -> None:
        self.state.store.write_pending(attachment)
        self.state.store.commit(attachment.key)

    def names(self, networks: Sequence[Network]) -> list[str]:
        return list(map(str, networks))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.state.worker.start()
    yield made
    made.state.worker.stop()


async def test_R14_pods_of_a_former_CIDR_are_announced_one_by_one_and_its_summary_stands_until_BIRD_does_so(
        world: World) -> None:
    world.configure(*OLD)
    world.add(entry(7))
    await world.left.announce()
    assert world.names(world.left.hosts) + world.names(world.left.former) == []
    world.configure(*NEW)
    world.add(entry(8, net=2))
    await world.left.announce()
    assert world.names(world.left.hosts) == ["2001:db8:0:1::7/128", "10.64.1.7/32"]
    assert world.names(world.left.former) == list(OLD)
    assert world.state.announced(ip_address("10.64.1.7"))
    assert not world.state.announced(ip_address("10.64.2.8"))
    world.left.exported(())
    assert world.names(world.left.former) == list(OLD), "BIRD has a configuration from before"
    world.left.exported(world.left.hosts)
    assert not world.left.former
    assert len(world.settled) == 1


async def test_R14_a_BIRD_that_cannot_be_told_keeps_a_former_CIDR_for_a_moment_alone(world: World) -> None:
    world.configure(*OLD)
    world.add(entry(7))
    await world.left.announce()
    world.configure(*NEW)
    await world.left.announce()
    await world.clock.advance(PATIENCE)
    assert not world.left.former
    assert len(world.left.hosts) == 2


async def test_R14_a_former_CIDR_without_pods_goes_at_once_and_pods_that_go_are_announced_no_more(
        world: World) -> None:
    world.configure(*OLD)
    await world.left.announce()
    world.configure(*NEW)
    await world.left.announce()
    assert not world.left.former
    world.add(entry(7))
    await world.left.announce()
    assert len(world.left.hosts) == 2
    world.state.store.release(entry(7).key, 1.0)
    await world.left.announce()
    assert not world.left.hosts


async def test_R14_a_pod_that_was_under_way_at_the_change_is_found_too(world: World) -> None:
    world.configure(*OLD)
    await world.left.announce()
    world.configure(*NEW)
    await world.left.announce()
    await world.clock.advance(50)
    world.add(entry(7))
    await world.left.announce()
    assert len(world.left.hosts) == 2


async def test_without_a_NodeConfig_what_was_announced_stays_so(world: World) -> None:
    world.configure(*OLD, host_routes=["10.64.1.0/28"])
    world.add(entry(7))
    world.add(entry(9, net=2))
    await world.left.announce()
    announced = [ip_address(text) for text in ("10.64.1.7", "10.64.2.9", "2001:db8:0:2::9")]
    assert all(map(world.state.announced, announced))
    world.remove_config()
    await world.left.announce()
    assert all(map(world.state.announced, announced))


@given(st.lists(st.integers(1, 5), max_size=5), st.sets(st.integers(1, 5)))
def test_R14_every_address_has_a_summary_or_is_announced_by_itself(pods: list[int], nets: set[int]) -> None:
    cidrs = [ip_network(f"10.64.{net}.0/24") for net in nets] + [ip_network(f"2001:db8:0:{net}::/64") for net in nets]
    entries = [entry(number + 2, net) for number, net in enumerate(pods)]
    left = find_left_behind(entries, cidrs)
    for one in entries:
        for address in one.addresses():
            assert (address in left) != any(address in cidr for cidr in cidrs)
