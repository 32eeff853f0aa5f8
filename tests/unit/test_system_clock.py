"""The clocks: nothing that is decided on a node may depend on the date, which anybody sets to anything."""

import time
from pathlib import Path

import flock
from flock.system.clock import SystemClock
from flock.testing.clock import ManualClock

SOURCE = Path(flock.__file__).parent

FOR_OTHERS = {
    # Kubernetes' timestamps, which people and controllers read.
    "agent/upkeep.py", "agent/api_source.py", "agent/telling.py",
    # A plugin's token ends at a date; a wrong one is refused, and the plugin run again.
    "cluster/exec_plugin.py",
    # Retry-After may be a date; the wait is bounded.
    "cluster/transport.py",
    # Files' own times: at the worst BIRD reads its file once more, and the queue of DELs is read each time.
    "routing/bird.py", "cni/queue.py", "testing/bird.py",
    "system/clock.py", "testing/clock.py",
}


DATES = (".wall()", "time.time()", "time.time_ns()", "datetime.now(")


def test_the_date_is_only_for_what_others_read() -> None:
    asking = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")
              if any(word in path.read_text() for word in DATES)}
    assert asking <= FOR_OTHERS


def test_uptime_counts_on_from_one_process_to_the_next() -> None:
    clock = SystemClock()
    told = float(Path("/proc/uptime").read_text().split()[0])
    assert abs(clock.uptime() - told) < 5
    assert abs(clock.wall() - time.time()) < 5


async def test_a_jump_moves_the_date_alone() -> None:
    clock = ManualClock()
    before = clock.uptime(), clock.monotonic(), clock.wall()
    clock.jump(-3600)
    assert (clock.uptime(), clock.monotonic(), clock.wall() + 3600) == before
    await clock.advance(5)
    assert clock.uptime() == before[0] + 5
