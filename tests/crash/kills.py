"""How and when an agent is killed: from outside after a time, or by itself at its Nth system call that writes."""

import random
from dataclasses import dataclass

HOWS = ("before", "after", "half")
LONGEST = 0.35
"""Seconds after its exec; a start takes about a quarter of a second, so some kills fall into it."""

EARLY_CALL = 60
LATEST_CALL = 900
"""Calls of a start and of a third of a second under load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """SIGKILL from outside, so many seconds after the exec, or after it serves."""

    seconds: float
    serving: bool

    @property
    def label(self) -> str:
        return "at a random moment" if self.serving else "at a random moment of its start"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtCall:
    """At the ``number``-th call that writes, counted from the exec; ``how`` as killer.c has it."""

    number: int
    how: str

    @property
    def label(self) -> str:
        return f"{self.how} a call"

    def env(self) -> dict[str, str]:
        return {"FLOCK_KILL_AT": str(self.number), "FLOCK_KILL_HOW": self.how}


Kill = Timed | AtCall


def choose_kill(rng: random.Random) -> Kill:
    """Half of each; of the calls half are early ones, which are those of a start with pods in the store."""
    if rng.random() < 0.5:
        return Timed(seconds=rng.uniform(0, LONGEST), serving=rng.random() < 0.8)
    latest = EARLY_CALL if rng.random() < 0.5 else LATEST_CALL
    return AtCall(number=rng.randint(1, latest), how=rng.choice(HOWS))
