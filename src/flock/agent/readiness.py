"""Whether the agent serves, and how its loops are: what /readyz, /healthz and flockctl say."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from flock.agent.metrics import Metrics
from flock.loops.runner import Runner
from flock.system.clock import Clock

if TYPE_CHECKING:
    from flock.cluster.informer import InformerState

STUCK_AFTER = 120.0
"""Seconds after which one run of a loop counts as stuck."""


class Readiness:
    """Written in the loop's thread, read in any."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._serving = False
        self._runners: Mapping[str, Runner] = {}
        self._followed: Callable[[], Sequence[InformerState]] = tuple

    def follow(self, followed: "Callable[[], Sequence[InformerState]]") -> None:
        """``followed`` says how the API server is followed; its silence is shown, and is no illness of the agent."""
        self._followed = followed
        self._metrics.follow(followed)

    def watch(self, runners: Mapping[str, Runner]) -> None:
        self._runners = runners

    def serving(self) -> None:
        self._serving = True
        self._metrics.ready.set(1)

    def stopped(self) -> None:
        self._serving = False
        self._metrics.ready.set(0)

    def ready(self) -> tuple[bool, str]:
        return self._serving, "ready" if self._serving else "not serving yet"

    def health(self) -> tuple[bool, dict[str, object]]:
        """Bad only where a loop is stuck: a failing one tries again by itself, and a restart would not help it."""
        now = self._clock.monotonic()
        states = {name: runner.state for name, runner in self._runners.items()}
        stuck = [name for name, state in states.items()
                 if state.running_since is not None and now - state.running_since > STUCK_AFTER]
        loops: dict[str, object] = {
            name: {"runs": state.runs, "failures": state.failures, "error": state.error}
            for name, state in states.items()
        }
        api: dict[str, object] = {
            state.name: {"complete": state.complete, "items": state.items, "lists": state.lists,
                         "watches": state.watches, "failures": state.failures, "error": state.error}
            for state in self._followed()
        }
        return not stuck, {"serving": self._serving, "stuck": stuck, "loops": loops, "api": api}
