"""When the table of masquerade4 is written, when it is left alone, and what a partial view may not do."""

import asyncio
import os
from collections.abc import AsyncIterator
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

import pytest
import pytest_asyncio

from flock.agent.masquerade_loop import FIELD, PLAN_GAP, MasqueradeLoop
from flock.agent.metrics import Metrics
from flock.agent.state import NodeState
from flock.agent.worker import Worker
from flock.api.node_config import NodeConfig, NodeConfigSpec
from flock.cluster.view import Snapshot, View
from flock.errors import IOFailure
from flock.ipam.allocator import Allocator
from flock.ipam.random import CryptoRandom
from flock.ipam.store import Store
from flock.model.attachment import Attachment
from flock.model.family import Family
from flock.model.ids import ContainerID, IfName
from flock.netlink import constants as nl
from flock.netlink.nftables import BaseChain, TableState
from flock.pods.plan import NodeFacts
from flock.pods.wiring import PodWiring
from flock.routing.masquerade import Masquerade
from flock.testing.clock import ManualClock
from flock.testing.wait import await_until

OWN, OTHER, THIRD = (IPv4Network(f"10.64.{number}.0/24") for number in (1, 4, 8))
HOOKED = BaseChain(kind="nat", hook=nl.NF_INET_POST_ROUTING, priority=nl.NF_IP_PRI_NAT_SRC, accepts=True)


class FakeTable:
    """A kernel with one table; each write gives it another handle, as the kernel does."""

    def __init__(self) -> None:
        self.now: TableState | None = None
        self.holds: Masquerade | None = None
        self.writes: list[Masquerade] = []
        self.anew: list[bool] = []
        self.reads = 0
        self.foreign = False
        self.foreign_after_write = False
        self.broken = ""
        self.broken_flows = False
        self.forgotten: list[Masquerade] = []

    def read(self) -> TableState | None:
        self.reads += 1
        return self.now

    def foreign_chains(self) -> bool:
        return self.foreign

    async def write(self, masquerade: Masquerade, *, anew: bool) -> None:
        if self.broken:
            raise IOFailure(self.broken)
        self.writes.append(masquerade)
        self.anew.append(anew)
        self.put(masquerade)
        self.foreign = self.foreign_after_write or (self.foreign and not anew)

    def put(self, masquerade: Masquerade) -> None:
        self.holds = masquerade
        self.now = TableState(flags=0, chain=HOOKED, comments=(masquerade.mark,), raw=f"{len(self.writes)}".encode())

    def forget_untranslated(self, masquerade: Masquerade) -> int:
        self.forgotten.append(masquerade)
        if self.broken_flows:
            raise IOFailure("no conntrack")
        return 3

    def remove(self) -> bool:
        there, self.now, self.holds = self.now is not None, None, None
        return there


class FakeNotices:
    """A pipe that is written to for each transaction."""

    def __init__(self) -> None:
        self.end, self.start = os.pipe()
        self.closed = False

    def fileno(self) -> int:
        return self.end

    def read(self) -> int:
        return len(os.read(self.end, 100))

    def close(self) -> None:
        self.closed = True
        os.close(self.end)
        os.close(self.start)


class World:
    """A node ``own``, its view, and the loop."""

    def __init__(self, folder: Path) -> None:
        self.view = View()
        self.clock = ManualClock()
        (folder / "a").mkdir()
        self.state = NodeState(
            node="own", view=self.view, store=Store(folder / "a", folder / "r", folder / "d"),
            allocator=Allocator(cidrs={Family.IPV6: [IPv6Network("2001:db8::/64")]}, random=CryptoRandom()),
            wiring=PodWiring(), worker=Worker("none"), clock=self.clock, metrics=Metrics(),
            facts=NodeFacts(mtu=1500, source={}))
        self.table = FakeTable()
        self.notices: list[FakeNotices] = []
        self.pokes: list[str] = []
        self.told: list[str] = []
        self.loop = self.start()

    def start(self) -> MasqueradeLoop:
        """A new process's loop: nothing remembered."""
        loop = MasqueradeLoop(self.state, self.table, self._listen)
        loop.watch(self.pokes.append)
        loop.changed = self.told.append
        return loop

    def _listen(self) -> FakeNotices:
        self.notices.append(FakeNotices())
        return self.notices[-1]

    def see(self, *others: IPv4Network, on: bool | None = True, complete: bool = True) -> None:
        """Set the view; ``on`` None: without this node's NodeConfig."""
        configs = {f"n{number}": NodeConfig(name=f"n{number}", spec=NodeConfigSpec(cidr4=(cidr,)))
                   for number, cidr in enumerate(others)}
        if on is not None:
            configs["own"] = NodeConfig(name="own", spec=NodeConfigSpec(cidr4=(OWN,), masquerade4=on))
        self.view.replace(Snapshot(node_configs=configs, complete=complete))

    async def runs(self, *others: IPv4Network, on: bool | None = True, complete: bool = True) -> Masquerade | None:
        """See and run; what the kernel has then."""
        self.see(*others, on=on, complete=complete)
        await self.loop.run()
        return self.table.holds


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    made.loop.close()


async def test_it_is_written_once_and_then_left_alone(world: World) -> None:
    held = await world.runs(OTHER)
    assert held is not None
    assert (held.sources, held.cluster) == ((OWN,), (OWN, OTHER))
    await world.loop.run()
    assert len(world.table.writes) == 1


async def test_pods_that_are_older_than_the_CIDRs_are_looked_for_now_and_then(world: World) -> None:
    await world.runs()
    world.state.store.adopt(Attachment(container_id=ContainerID("c1"), ifname=IfName("eth0"), host_ifname="flkx",
                                       ip4="10.99.0.5"))
    await world.loop.run()
    assert len(world.table.writes) == 1
    await world.clock.advance(PLAN_GAP)
    await world.loop.run()
    assert world.table.holds is not None
    assert IPv4Network("10.99.0.5/32") in world.table.holds.sources


@pytest.mark.parametrize("broken", [False, True])
async def test_flows_that_began_without_it_begin_anew_after_each_writing(world: World, broken: bool) -> None:
    world.table.broken_flows = broken
    await world.runs(OTHER)
    await world.loop.run()
    assert world.table.forgotten == world.table.writes
    world.table.now = None
    await world.loop.run()
    assert world.table.forgotten == world.table.writes
    assert world.loop.error == ""


async def test_a_restart_finds_it_right_and_writes_nothing(world: World) -> None:
    await world.runs(OTHER)
    world.loop.close()
    world.loop = world.start()
    await world.loop.run()
    assert len(world.table.writes) == 1


async def test_another_NodeConfig_changes_what_is_spared(world: World) -> None:
    await world.runs(OTHER)
    held = await world.runs(OTHER, THIRD)
    assert held is not None
    assert held.cluster == (OWN, OTHER, THIRD)
    held = await world.runs(THIRD)
    assert held is not None
    assert held.cluster == (OWN, THIRD)


async def test_what_a_stranger_did_is_undone_and_counted(world: World) -> None:
    held = await world.runs(OTHER)
    assert held is not None
    for damaged in (None, TableState(flags=0, chain=HOOKED, comments=(held.mark, ""), raw=b"x"),
                    TableState(flags=0, chain=HOOKED, comments=(held.mark,), raw=b"replaced under the same comment"),
                    TableState(flags=1, chain=HOOKED, comments=(held.mark,), raw=b"x"),
                    TableState(flags=0, chain=None, comments=(), raw=b"x")):
        before = len(world.table.writes)
        world.table.now = damaged
        await world.loop.run()
        assert len(world.table.writes) == before + 1
        assert world.table.now is not None
        assert world.table.now.comments == (held.mark,)
    assert world.state.metrics.registry.get_sample_value("flock_kernel_healed_total", {"how": "masquerade"}) == 5.0


async def test_a_table_with_foreign_chains_is_made_anew(world: World) -> None:
    await world.runs()
    world.table.foreign, world.table.now = True, TableState(flags=0, chain=HOOKED, comments=(), raw=b"x")
    await world.loop.run()
    assert world.table.anew == [False, True]


async def test_a_chain_that_came_between_writing_and_reading_is_not_taken_for_right(world: World) -> None:
    world.table.foreign_after_write = True
    await world.runs()
    assert world.table.foreign
    world.table.foreign_after_write = False
    await world.loop.run()
    assert (world.table.anew, world.table.foreign) == ([False, True], False)
    await world.loop.run()
    assert len(world.table.writes) == 2


async def test_off_takes_it_away_once_and_listens_no_more(world: World) -> None:
    await world.runs()
    (notices,) = world.notices
    assert await world.runs(on=False) is None
    assert notices.closed
    before = world.table.reads
    await world.loop.run()
    assert world.table.reads == before


async def test_off_from_the_start_takes_away_what_a_former_agent_left_and_never_listens(world: World) -> None:
    await world.runs()
    world.loop.close()
    world.notices.clear()
    world.loop = world.start()
    assert await world.runs(on=False) is None
    assert world.notices == []


async def test_on_again_after_off(world: World) -> None:
    await world.runs()
    await world.runs(on=False)
    assert await world.runs() is not None
    assert [one.closed for one in world.notices] == [True, False]


async def test_without_a_NodeConfig_it_stays_and_is_kept(world: World) -> None:
    held = await world.runs(OTHER)
    assert await world.runs(OTHER, on=None) == held
    world.table.now = None
    await world.loop.run()
    assert world.table.holds == held
    assert world.table.now is not None


async def test_without_a_NodeConfig_a_restart_leaves_it(world: World) -> None:
    held = await world.runs(OTHER)
    world.loop.close()
    world.loop = world.start()
    assert await world.runs(OTHER, on=None) == held
    assert len(world.table.writes) == 1


async def test_R4_a_partial_view_takes_nothing_from_the_cluster(world: World) -> None:
    await world.runs(OTHER, THIRD)
    held = await world.runs(complete=False)
    assert held is not None
    assert held.cluster == (OWN, OTHER, THIRD)
    held = await world.runs(OTHER)
    assert held is not None
    assert held.cluster == (OWN, OTHER)


async def test_R4_a_partial_view_at_a_restart_leaves_the_table_to_the_former(world: World) -> None:
    held = await world.runs(OTHER, THIRD)
    world.loop.close()
    world.loop = world.start()
    assert await world.runs(OTHER, complete=False) == held
    held = await world.runs(OTHER)
    assert held is not None
    assert held.cluster == (OWN, OTHER)


async def test_R4_a_partial_view_adds_and_creates(world: World) -> None:
    held = await world.runs(OTHER, complete=False)
    assert held is not None
    assert held.cluster == (OWN, OTHER)
    held = await world.runs(THIRD, complete=False)
    assert held is not None
    assert held.cluster == (OWN, OTHER, THIRD)


async def test_R4_a_partial_view_does_not_end_it(world: World) -> None:
    held = await world.runs()
    assert await world.runs(on=False, complete=False) == held
    assert await world.runs(on=False) is None


async def test_what_fails_is_told_and_forgotten_once_it_works(world: World) -> None:
    world.table.broken = "nft can't be run"
    world.see()
    with pytest.raises(IOFailure):
        await world.loop.run()
    assert world.state.failing == {FIELD: "nft can't be run"}
    assert world.loop.described() == {"sources": [str(OWN)], "outside": [str(OWN)], "error": "nft can't be run"}
    assert world.loop.differences() == ["the nft table ip flock_masquerade is missing"]
    world.table.broken = ""
    await world.loop.run()
    assert world.state.failing == {}
    assert world.told == ["masquerade4 fails", "masquerade4 works"]
    assert world.loop.differences() == []


async def test_it_is_poked_by_NodeConfigs_and_transactions_and_by_nothing_else(world: World) -> None:
    await world.runs(OTHER)
    world.pokes.clear()
    os.write(world.notices[0].start, b"g")
    await await_until(lambda: bool(world.pokes), 5.0, "a poke")
    assert world.pokes == ["nftables changed"]
    world.pokes.clear()
    snapshot = world.view.snapshot
    world.view.replace(Snapshot(node_configs=dict(snapshot.node_configs), nodes={}, refusal="else", complete=True))
    assert world.pokes == []
    world.see(THIRD)
    assert world.pokes == ["a NodeConfig changed"]


async def test_its_own_transaction_ends_in_one_look(world: World) -> None:
    await world.runs(OTHER)
    world.pokes.clear()
    os.write(world.notices[0].start, b"g")
    await await_until(lambda: bool(world.pokes), 5.0, "a poke")
    world.pokes.clear()
    await world.loop.run()
    await asyncio.sleep(0)
    assert (world.pokes, len(world.table.writes)) == ([], 1)
