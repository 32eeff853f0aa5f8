"""A hundred ADDs at once, and a hundred DELs: how many pods a second and at which cost, ours beside theirs in turn."""

import random
from collections import defaultdict
from collections.abc import Sequence

from bench.pause import pause
from bench.report import Figure, median
from bench.sides import Flock, Reference, Side, Slot

ROUNDS = 12
AFTERMATH = 0.1
"""Seconds after the last reply in which an agent may still work on what was asked."""

Samples = dict[tuple[str, str], list[float]]


def run_bursts(ours: Flock, theirs: Reference, slots: Sequence[Slot], rounds: int = ROUNDS) -> Samples:
    """By side: seconds from first start to last end of each verb, and of CPU for one ADD. One round warms up."""
    samples: Samples = defaultdict(list)
    sides: list[tuple[str, Side]] = [("ours", ours), ("theirs", theirs)]
    for number in range(rounds + 1):
        if number == 1:
            samples.clear()
        random.shuffle(sides)
        for name, side in sides:
            before = side.standing_cpu()
            batch = side.driver.run([side.call("ADD", slot) for slot in slots]).checked()
            pause(AFTERMATH)
            cpu = side.standing_cpu() - before + sum(outcome.cpu for outcome in batch.outcomes)
            samples[name, "CPU"].append(cpu / len(slots))
            samples[name, "ADD"].append(batch.wall)
            batch = side.driver.run([side.call("DEL", slot) for slot in slots]).checked()
            samples[name, "DEL"].append(batch.wall)
    return samples


def burst_figures(samples: Samples, count: int, pods: int) -> list[Figure]:
    """Rates, of which more is better, and CPU, of which less is."""
    rates = [
        Figure(name=f"{count} {verb}s at once, {pods} pods", group="cni", ours=count / median(samples["ours", verb]),
               theirs=count / median(samples["theirs", verb]), unit=f"{verb}/s", bar=bar, least=True)
        for verb, bar in (("ADD", 5.0), ("DEL", 4.0))
    ]
    return [*rates, Figure(name=f"CPU per ADD of {count}, {pods} pods", group="cni", unit="ms", bar=0.2,
                           ours=median(samples["ours", "CPU"]) * 1000, theirs=median(samples["theirs", "CPU"]) * 1000)]


def fill(side: Side, slots: Sequence[Slot], verb: str = "ADD", at_once: int = 25) -> None:
    """Add (or delete) pods that stay while others are measured."""
    for start in range(0, len(slots), at_once):
        side.driver.run([side.call(verb, slot) for slot in slots[start:start + at_once]], gate=False).checked()
