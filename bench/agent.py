"""The agent itself with 250 pods in its store: from its exec to the first ADD, its memory, its rest."""

import time
from pathlib import Path

from bench.pause import pause
from bench.report import Figure, median
from bench.sides import Flock, NotBuilt, Slot

STARTS = 20
START_LIMIT = 20.0
REST_SECONDS = 10.0
SETTLE_SECONDS = 5.0


def start_figure(ours: Flock, slot: Slot, pods: int, starts: int = STARTS) -> Figure:
    """Killed and started again; an ADD is tried until one is answered with success."""
    times = [_one_start(ours, slot) for _ in range(starts)]
    return Figure(name=f"agent's exec to the first ADD answered, {pods} pods stored", group="store",
                  ours=median(times) * 1000, unit="ms", bar=400)


def _one_start(ours: Flock, slot: Slot) -> float:
    ours.kill()
    begin = time.monotonic()
    ours.start()
    while time.monotonic() - begin < START_LIMIT:
        if ours.driver.run([ours.call("ADD", slot)], gate=False).outcomes[0].status == 0:
            elapsed = time.monotonic() - begin
            ours.driver.one(ours.call("DEL", slot), gate=False)
            return elapsed
        pause(0.002)
    raise NotBuilt(f"no ADD was answered within {START_LIMIT:g} s of the agent's start")


def memory_figure(ours: Flock, pods: int) -> Figure:
    """What the agent holds of memory now: take it last, after all the work."""
    status = Path(f"/proc/{ours.pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    return Figure(name=f"agent's resident memory, {pods} pods, no cluster", group="store", ours=resident / 1024,
                  unit="MiB", bar=48)


def idle_figure(ours: Flock, pods: int) -> Figure:
    """How often any of its threads wakes while nothing happens."""
    pause(SETTLE_SECONDS)
    before = _wake_ups(ours.pid)
    pause(REST_SECONDS)
    return Figure(name=f"idle agent's wake-ups, {pods} pods", group="store",
                  ours=(_wake_ups(ours.pid) - before) / REST_SECONDS, unit="1/s", bar=2)


def _wake_ups(pid: int) -> int:
    texts = [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int(line.split()[1]) for text in texts for line in text.splitlines()
               if line.startswith("voluntary_ctxt_switches:"))
