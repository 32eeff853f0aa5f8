"""The Python side of driver.c: hands it calls, reads back how long each took and what it said.

If the process dies on any line: the driver sees the end of its stdin and ends.
"""

import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flock_lab.bare import BareNode
from flock_lab.native import build

_HEAD = struct.Struct("<II")
_CALL = struct.Struct("<III")
_BATCH = struct.Struct("<IIQ")
_OUTCOME = struct.Struct("<QQII")
_NANO = 1e-9


class CallFailed(RuntimeError):
    """A plugin that was to succeed didn't: its own words say why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One exec of a plugin."""

    path: str
    env: Mapping[str, str]
    stdin: bytes = b""

    def packed(self) -> bytes:
        path = self.path.encode() + b"\0"
        env = b"".join(f"{key}={value}\0".encode() for key, value in self.env.items())
        return _CALL.pack(len(path), len(env), len(self.stdin)) + path + env + self.stdin


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it; ``elapsed`` and ``cpu`` (of the process and its children) in seconds."""

    elapsed: float
    cpu: float
    status: int
    stdout: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What came of calls that started together; ``quiet`` says whether the machine was."""

    quiet: bool
    wall: float
    outcomes: tuple[Outcome, ...]

    def checked(self) -> "Batch":
        """Itself, or CallFailed with what the first that failed had to say."""
        for outcome in self.outcomes:
            if outcome.status != 0:
                raise CallFailed(f"wait status {outcome.status}: {outcome.stdout.decode(errors='replace')[:600]}")
        return self


class Driver:
    """A driver inside one node. ``loud`` counts the gated calls that ran though the machine wasn't quiet."""

    def __init__(self, node: BareNode) -> None:
        program = build(Path(__file__).with_name("driver.c"))
        self._process = node.start([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.gated = 0
        self.loud = 0

    def run(self, calls: Sequence[Call], *, gate: bool = True) -> Batch:
        """Start the calls together, once the machine is quiet if ``gate`` says so, and wait for all."""
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(_HEAD.pack(len(calls), gate) + b"".join(call.packed() for call in calls))
        stdin.flush()
        quiet, _, wall = _BATCH.unpack(self._read(_BATCH.size))
        outcomes = tuple(self._read_outcome() for _ in calls)
        self.gated += gate
        self.loud += gate and not quiet
        return Batch(quiet=bool(quiet), wall=wall * _NANO, outcomes=outcomes)

    def one(self, call: Call, *, gate: bool = True) -> Outcome:
        """One call that must succeed."""
        return self.run([call], gate=gate).checked().outcomes[0]

    def _read_outcome(self) -> Outcome:
        elapsed, cpu, status, length = _OUTCOME.unpack(self._read(_OUTCOME.size))
        return Outcome(elapsed=elapsed * _NANO, cpu=cpu * _NANO, status=status, stdout=self._read(length))

    def _read(self, length: int) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        data = stdout.read(length)
        if len(data) != length:
            raise CallFailed("the driver died; its reason is above")
        return data


def process_cpu(pid: int) -> float:
    """Seconds of CPU that a process has used, all threads, to the nanosecond (kernel/time/posix-cpu-timers.c)."""
    return time.clock_gettime((~pid << 3) | 2)
