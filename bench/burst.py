"""A hundred ADDs at once, and a hundred DELs: how many pods a second, ours beside theirs in turn."""

import random
from collections.abc import Sequence

from bench.report import Figure, median
from bench.sides import Flock, Reference, Side, Slot

ROUNDS = 10
Walls = dict[tuple[str, str], list[float]]


def run_bursts(ours: Flock, theirs: Reference, slots: Sequence[Slot], rounds: int = ROUNDS) -> Walls:
    """Seconds from the first start to the last end, by side and verb; the first round warms up."""
    walls: Walls = {(side, verb): [] for side in ("ours", "theirs") for verb in ("ADD", "DEL")}
    sides: list[tuple[str, Side]] = [("ours", ours), ("theirs", theirs)]
    for number in range(rounds + 1):
        random.shuffle(sides)
        for name, side in sides:
            for verb in ("ADD", "DEL"):
                batch = side.driver.run([side.call(verb, slot) for slot in slots]).checked()
                if number:
                    walls[name, verb].append(batch.wall)
    return walls


def burst_figures(walls: Walls, count: int, pods: int) -> list[Figure]:
    """Rates: more is better."""
    return [
        Figure(name=f"{count} {verb}s at once, {pods} pods", group="cni", ours=count / median(walls["ours", verb]),
               theirs=count / median(walls["theirs", verb]), unit=f"{verb}/s", bar=bar, least=True)
        for verb, bar in (("ADD", 5.0), ("DEL", 4.0))
    ]


def fill(side: Side, slots: Sequence[Slot], verb: str = "ADD", at_once: int = 25) -> None:
    """Add (or delete) pods that stay while others are measured."""
    for start in range(0, len(slots), at_once):
        side.driver.run([side.call(verb, slot) for slot in slots[start:start + at_once]], gate=False).checked()
