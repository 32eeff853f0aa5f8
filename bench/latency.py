"""Single calls, exec to exit, all kinds interleaved in random order behind a gate: STATUS, ADD, DEL."""

import random
from collections import defaultdict
from collections.abc import Callable

from bench.driver import Call
from bench.report import Figure, median, percentile
from bench.sides import Flock, Reference, Side, Slot

ROUNDS = 200
WARM_UP = 10

_TRUE = Call(path="/bin/true", env={"PATH": "/bin"})
Samples = dict[str, list[float]]


class Singles:
    """Takes samples of both sides; the names are those of its own figures."""

    def __init__(self, ours: Flock, theirs: Reference, slot: Slot, spare: Slot) -> None:
        self._ours = ours
        self._theirs = theirs
        self._slot = slot
        self._spare = spare
        self._samples: Samples = defaultdict(list)

    def run(self, rounds: int = ROUNDS) -> Samples:
        """``rounds`` of each kind, in an order that is new each time."""
        kinds: list[Callable[[], object]] = [
            self._our_pod, self._their_pod, lambda: self._note("status", self._ours, "STATUS"),
            lambda: self._note("version", self._theirs, "VERSION"), self._true,
        ]
        for done in range(WARM_UP + rounds):
            if done == WARM_UP:
                self._samples.clear()
            random.shuffle(kinds)
            for kind in kinds:
                kind()
        return self._samples

    def _note(self, name: str, side: Side, verb: str) -> None:
        slot = self._slot if side is self._ours else self._spare
        self._samples[name].append(side.driver.one(side.call(verb, slot)).elapsed)

    def _true(self) -> None:
        self._samples["true"].append(self._ours.driver.one(_TRUE).elapsed)

    def _our_pod(self) -> None:
        self._note("our ADD", self._ours, "ADD")
        self._note("our DEL", self._ours, "DEL")

    def _their_pod(self) -> None:
        self._note("their ADD", self._theirs, "ADD")
        self._note("their DEL", self._theirs, "DEL")


def shim_figures(samples: Samples) -> list[Figure]:
    """What an exec of the shim costs, through the agent and back."""
    status = _ms(median(samples["status"]))
    return [
        Figure(name="STATUS / reference VERSION", group="cni", ours=status, theirs=_ms(median(samples["version"])),
               unit="ms", bar=0.35),
        Figure(name="STATUS / true", group="cni", ours=status, theirs=_ms(median(samples["true"])), unit="ms", bar=1.0),
    ]


def pod_figures(samples: Samples, pods: int) -> list[Figure]:
    """ADD and DEL with that many pods on the node."""
    add = _ms(median(samples["their ADD"]))

    def figure(name: str, ours: float, theirs: float, bar: float) -> Figure:
        return Figure(name=f"{name}, {pods} pods", group="cni", ours=ours, theirs=theirs, unit="ms", bar=bar)

    return [
        figure("ADD median", _ms(median(samples["our ADD"])), add, 0.30),
        figure("ADD p99 / reference median", _ms(percentile(samples["our ADD"], 99)), add, 0.6),
        figure("DEL median", _ms(median(samples["our DEL"])), _ms(median(samples["their DEL"])), 0.12),
    ]


def growth_figure(empty: Samples, full: Samples, pods: int) -> Figure:
    """Our ADD on a node with pods, over ours on an empty one."""
    return Figure(name=f"ADD with {pods} pods / with 0, both ours", group="cni", ours=_ms(median(full["our ADD"])),
                  theirs=_ms(median(empty["our ADD"])), unit="ms", bar=1.7)


def _ms(seconds: float) -> float:
    return seconds * 1000
