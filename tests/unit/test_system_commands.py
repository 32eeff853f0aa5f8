"""Programs end, one way or the other: by themselves, at their deadline, with their caller."""

import asyncio
import os
from pathlib import Path

import pytest

from flock.system.commands import OUTPUT_LIMIT, ProgramMissing, ProgramTimeout, run
from flock.testing.wait import await_until


async def test_what_a_program_says_and_how_it_ended() -> None:
    done = await run(["sh", "-c", "cat; echo no >&2; exit 3"], 5, b"in")
    assert (done.code, done.stdout, done.stderr) == (3, b"in", b"no\n")
    assert (done.ok, done.text, done.ended) == (False, "no\nin", "exit 3")


async def test_a_crash_is_told_by_its_signal() -> None:
    done = await run(["sh", "-c", "kill -SEGV $$"], 5)
    assert done.ended == "SIGSEGV"


async def test_a_missing_program_and_a_broken_argument_are_one_error() -> None:
    with pytest.raises(ProgramMissing, match="no-such-program can't be run: No such file or directory"):
        await run(["no-such-program"], 5)
    with pytest.raises(ProgramMissing):
        await run(["true", "a\0b"], 5)
    with pytest.raises(ProgramMissing):
        await run([], 5)


async def test_a_late_program_is_killed_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(ProgramTimeout, match=r"sh didn't end within 0\.2 s"):
        await run(["sh", "-c", f"sleep 60 & echo $! > {pid}; wait"], 0.2)
    await _gone(int(pid.read_text()))


async def test_a_child_that_keeps_the_pipes_open_doesnt_hold_the_caller(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(ProgramTimeout):
        await run(["sh", "-c", f"sleep 60 & echo $! > {pid}; exit 0"], 0.2)
    await _gone(int(pid.read_text()))


async def test_a_cancelled_caller_takes_the_program_with_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    task = asyncio.create_task(run(["sh", "-c", f"echo $$ > {pid}; sleep 60"], 60))
    await await_until(lambda: pid.exists() and pid.read_text().endswith("\n"), what="the program runs")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _gone(int(pid.read_text()))


async def test_a_flood_is_read_and_cut() -> None:
    done = await run(["sh", "-c", f"head -c {3 * OUTPUT_LIMIT} /dev/zero"], 10)
    assert done.ok
    assert len(done.stdout) == OUTPUT_LIMIT


async def test_a_program_that_never_reads_its_input_is_no_error() -> None:
    assert (await run(["true"], 5, b"x" * (1 << 20))).ok


async def _gone(pid: int) -> None:
    def gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        state = Path(f"/proc/{pid}/stat")
        return not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"

    await await_until(gone, what=f"process {pid} is gone")
