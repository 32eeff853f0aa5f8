"""A configuration is tried, checked, handed over once, and never again unless its bytes change (R9)."""

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator, Callable, Coroutine
from ipaddress import IPv4Address, ip_address, ip_network
from pathlib import Path
from typing import Any, TypeVar

import pytest

from flock.api.bgp import Peer
from flock.errors import IOFailure
from flock.routing.bird import Bird, BirdState
from flock.routing.bird_config import BirdConfig, render_bird
from flock.routing.bird_socket import BirdHung, BirdRefused
from flock.routing.peers import BirdInputs
from flock.testing.bird import FakeBird
from flock.testing.clock import ManualClock

T = TypeVar("T")


def config_of(*names: str, drain: bool = False) -> BirdConfig:
    peers = tuple(Peer(name=name, address=ip_address(f"2001:db8::{number:x}"), asn=64512)
                  for number, name in enumerate(names, 2))
    return render_bird(BirdInputs(node="node-1", router_id=IPv4Address("192.0.2.1"), asn=64513, peers=peers,
                                  cidrs=(ip_network("2001:db8:0:1::/64"),), drain=drain))


class World:
    """A node: BIRD that may run, a ``bird -p`` that may be there, and the agent's side."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "etc" / "bird" / "bird.conf"
        self.tried = folder / "tried"
        self.program = folder / "bird"
        self.clock = ManualClock()
        self.fake = FakeBird(folder / "bird.ctl", self.config)
        self.bird = self.new_agent()

    def new_agent(self) -> Bird:
        return Bird(self.fake.socket, self.config, self.clock, program=str(self.program))

    def install(self, verdict: str) -> None:
        """A ``bird`` that counts its calls and judges; ``verdict`` sees the file as $3."""
        self.program.write_text(f"#!/bin/sh\necho . >> {self.tried}\n{verdict}\n")
        self.program.chmod(0o755)

    @property
    def trials(self) -> int:
        return len(self.tried.read_text().split()) if self.tried.exists() else 0

    def leftovers(self) -> list[str]:
        return [entry.name for entry in self.config.parent.iterdir() if entry != self.config]

    async def passing(self, coroutine: Coroutine[Any, Any, T], step: float = 1.0, steps: int = 60) -> T:
        """Await something while time passes."""
        task = asyncio.create_task(coroutine)
        for _ in range(steps):
            await asyncio.wait((task,), timeout=0.02)
            if task.done():
                break
            await self.clock.advance(step)
        return await task


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.install("exit 0")
    return made


@contextlib.asynccontextmanager
async def running(world: World) -> AsyncIterator[FakeBird]:
    async with world.fake.running() as fake:
        yield fake


BAD = 'grep -q "description \\"bad\\"" "$3" && { echo "bird: $3:61:3 Invalid thing" >&2; exit 1; }; exit 0'


async def test_R7_without_bird_the_file_is_written_for_its_start(world: World) -> None:
    report = await world.bird.apply(config_of())
    assert (report.state, report.written, report.reloaded, dict(report.refused)) == (BirdState.ABSENT, True, False, {})
    assert world.config.read_text() == config_of().text
    assert stat.S_IMODE(world.config.stat().st_mode) == 0o640
    assert world.leftovers() == []
    assert await world.bird.sessions() == ()
    assert await world.bird.status() is None
    async with running(world) as fake:
        report = await world.bird.apply(config_of())
        assert (report.state, report.written, report.reloaded) == (BirdState.RUNNING, False, False)
        assert fake.text == config_of().text
        assert fake.count("configure") == 0


async def test_R9_equal_bytes_mean_no_reload(world: World) -> None:
    async with running(world) as fake:
        first = await world.bird.apply(config_of("a"))
        assert (first.written, first.reloaded) == (True, True)
        before = list(fake.commands)
        for _ in range(5):
            again = await world.bird.apply(config_of("a"))
            assert (again.written, again.reloaded) == (False, False)
        assert fake.commands == before
        assert fake.count("configure") == 1
        assert world.trials == 1


async def test_R9_a_restarted_agent_reloads_nothing_that_bird_has_read(world: World) -> None:
    async with running(world) as fake:
        await world.bird.apply(config_of("a"))
        report = await world.new_agent().apply(config_of("a"))
        assert (report.written, report.reloaded) == (False, False)
        assert fake.count("configure") == 1


async def test_an_agent_that_died_before_configure_is_made_good_by_the_next(world: World) -> None:
    async with running(world) as fake:
        await world.bird.apply(config_of())
        world.config.write_text(config_of("a").text)
        assert fake.text == config_of().text
        report = await world.new_agent().apply(config_of("a"))
        assert (report.written, report.reloaded) == (False, True)
        assert fake.text == config_of("a").text


async def test_changes_within_one_tick_of_the_kernels_clock_are_all_handed_over(world: World) -> None:
    async with running(world) as fake:
        await world.bird.apply(config_of("a"))
        for number in range(20):
            report = await world.bird.apply(config_of("a", drain=number % 2 == 0))
            assert (report.written, report.reloaded) == (True, True)
            assert fake.text == world.config.read_text()
            assert not (await world.new_agent().apply(config_of("a", drain=number % 2 == 0))).reloaded


async def test_a_file_that_a_stranger_changed_is_put_right(world: World) -> None:
    async with running(world) as fake:
        await world.bird.apply(config_of("a"))
        world.config.write_text("# mine\n")
        report = await world.bird.apply(config_of("a"))
        assert (report.written, report.reloaded) == (True, True)
        assert world.config.read_text() == fake.text == config_of("a").text


async def test_one_configure_at_a_time_and_bird_lives(world: World) -> None:
    async with running(world) as fake:
        fake.settles_after = 4
        configs = [config_of("a"), config_of("a", "b"), config_of("a", drain=True)]
        await world.passing(asyncio.wait_for(asyncio.gather(*map(world.bird.apply, configs)), 10), step=0.02)
        assert not fake.crashed
        assert fake.count("configure") == 3
        assert fake.text == world.config.read_text()


async def test_a_configuration_that_bird_refuses_leaves_the_last_good_file(world: World) -> None:
    async with running(world) as fake:
        await world.bird.apply(config_of("a"))
        fake.refuses = lambda text: "syntax error, unexpected '}'" if "FLOCK_DRAIN = true" in text else ""
        with pytest.raises(BirdRefused, match="syntax error, unexpected '}'"):
            await world.bird.apply(config_of("a", drain=True))
        assert world.config.read_text() == fake.text == config_of("a").text
        assert world.leftovers() == []
        assert fake.count("configure") == 1


async def test_a_bad_peer_is_left_out_with_its_reason_and_the_others_stand(world: World) -> None:
    world.install(BAD)
    async with running(world) as fake:
        report = await world.bird.apply(config_of("a", "bad", "c"))
        assert dict(report.refused) == {"bad": "Invalid thing"}
        assert '"a"' in fake.text
        assert '"c"' in fake.text
        assert '"bad"' not in fake.text
        assert world.trials == 3
        report = await world.bird.apply(config_of("a", "bad", "c"))
        assert (dict(report.refused), report.reloaded) == ({"bad": "Invalid thing"}, False)
        assert world.trials == 3
        world.install("exit 0")
        assert not (await world.bird.apply(config_of("a", "bad", "c"))).refused
        assert '"bad"' in fake.text


async def test_without_the_program_the_daemon_judges_each_peer(world: World) -> None:
    world.program.unlink()
    async with running(world) as fake:
        fake.refuses = lambda text: "Invalid thing" if '"bad"' in text else ""
        report = await world.bird.apply(config_of("a", "bad"))
        assert (dict(report.refused), report.reloaded) == ({"bad": "Invalid thing"}, True)
        assert '"a"' in fake.text
        before = list(fake.commands)
        report = await world.bird.apply(config_of("a", "bad"))
        assert (dict(report.refused), report.written, report.reloaded) == ({"bad": "Invalid thing"}, False, False)
        assert fake.commands == before
        assert world.leftovers() == []


async def test_a_crash_of_the_trial_is_a_refusal_that_is_doubted_after_a_minute(world: World) -> None:
    world.install("kill -SEGV $$")
    async with running(world):
        report = await world.bird.apply(config_of("a"))
        assert report.refused["a"].endswith("bird -p crashed of it (SIGSEGV)")
        assert world.trials == 1
        await world.bird.apply(config_of("a"))
        assert world.trials == 1
        await world.clock.advance(61)
        await world.bird.apply(config_of("a"))
        assert world.trials == 2


async def test_nothing_at_all_is_a_state_and_the_file_is_written(world: World) -> None:
    world.program.unlink()
    report = await world.bird.apply(config_of("a"))
    assert (report.state, report.written) == (BirdState.ABSENT, True)
    assert world.config.read_text() == config_of("a").text


async def test_a_reconfiguration_without_end_is_told(world: World) -> None:
    async with running(world) as fake:
        fake.settles_after = 10**9
        with pytest.raises(BirdHung, match="doesn't finish its reconfiguration"):
            await world.passing(world.bird.apply(config_of("a")))
        assert world.bird.state is BirdState.HUNG
        assert not fake.crashed


SESSION = "1002-peer_x7    BGP        ---        {}   2026-11-30T23:50:22.172078+0000  {}\n1006-  \n \n"


async def test_a_session_that_could_not_bind_gets_another_configure(world: World) -> None:
    async with running(world) as fake:
        await world.bird.apply(config_of("a"))
        fake.protocols = SESSION.format("down", "Error: No listening socket")
        await world.bird.sessions()
        await world.bird.apply(config_of("a"))
        assert fake.count("configure") == 1
        await world.clock.advance(11)
        assert (await world.bird.apply(config_of("a"))).reloaded
        await world.bird.apply(config_of("a"))
        assert fake.count("configure") == 2
        fake.protocols = ""
        await world.bird.sessions()
        await world.clock.advance(11)
        await world.bird.apply(config_of("a"))
        assert fake.count("configure") == 2


async def test_a_session_in_flush_for_ever_is_a_bird_that_hangs(world: World) -> None:
    async with running(world) as fake:
        fake.protocols = SESSION.format("flush", "Flush         BGP Error: Optional attribute error")
        assert (await world.bird.sessions())[0].stuck
        states = [world.bird.state]
        await world.clock.advance(11)
        await world.bird.sessions()
        states.append(world.bird.state)
        fake.protocols = ""
        await world.bird.sessions()
        assert [*states, world.bird.state] == [BirdState.RUNNING, BirdState.HUNG, BirdState.RUNNING]


@pytest.mark.parametrize("break_it", [
    lambda world: world.config.parent.parent.write_text("a file"),
    lambda world: world.config.mkdir(parents=True),
])
async def test_a_broken_folder_is_one_clear_error(world: World, break_it: Callable[[World], None]) -> None:
    break_it(world)
    with pytest.raises(IOFailure, match=r"bird\.conf can't be|can't be made|can't be written"):
        await world.bird.apply(config_of())


async def test_the_file_can_be_read_by_the_bird_that_runs(world: World) -> None:
    group = 12345
    async with running(world) as fake:
        await world.bird.apply(config_of())
        with contextlib.suppress(PermissionError):
            os.chown(fake.socket, -1, group)
            report = await world.bird.apply(config_of())
            assert report.written
            assert world.config.stat().st_gid == group
