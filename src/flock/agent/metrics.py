"""The agent's Prometheus metrics, defined once, children looked up once (a cached child costs 0.6 µs)."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from flock.routing.bird_protocol import SessionState

if TYPE_CHECKING:
    from flock.cluster.informer import InformerState

NOTED_LIMIT = 1000
"""Requests that are counted together at most."""

_SECONDS = (0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)


class Metrics:
    """Every metric of one agent, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._noted: deque[tuple[str, int, float]] = deque()
        r = self.registry
        self.requests = Counter("flock_cni_requests", "CNI requests by verb and code.", ["verb", "code"], registry=r)
        self.duration = Histogram(
            "flock_cni_duration_seconds", "From arrival to reply.", ["verb"], buckets=_SECONDS, registry=r
        )
        self.attachments = Gauge("flock_attachments", "Committed allocations.", registry=r)
        self.quarantined = Gauge("flock_quarantined_allocations", "Released allocations in quarantine.", registry=r)
        self.damaged = Counter("flock_store_damaged_files", "Store files moved aside as unreadable.", registry=r)
        self.rebuilt = Counter("flock_store_rebuilt", "Allocations rebuilt from the kernel's marks.", registry=r)
        self.healed = Counter("flock_kernel_healed", "Things that a stranger took away, put back.", ["how"], registry=r)
        self.orphans = Counter("flock_orphans_removed", "Allocations that outlived their pods.", registry=r)
        self.ready = Gauge("flock_ready", "1 while the agent serves CNI.", registry=r)
        self.bird_up = Gauge("flock_bird_up", "1 while BIRD answers its control socket.", registry=r)
        self.bird_reloads = Counter("flock_bird_reloads", "Configurations that BIRD took.", registry=r)
        self.peer_up = Gauge("flock_bgp_peer_established", "1 while the session is Established.", ["peer"], registry=r)
        self.peers_refused = Gauge("flock_bgp_peers_refused", "Peers left out of BIRD's configuration.", registry=r)
        self.source_problems = Gauge("flock_source_problems", "Problems in the manifests now.", registry=r)
        self.events_dropped = Counter("flock_events_dropped", "Events that found no place to wait in.", registry=r)
        self.api_lists = Gauge("flock_api_lists", "Whole lists read since the start.", ["resource"], registry=r)
        self.api_watches = Gauge("flock_api_watches", "Watches begun since the start.", ["resource"], registry=r)
        self.api_failures = Gauge(
            "flock_api_failures", "Failures in a row; 0 while the resource is followed.", ["resource"], registry=r)
        self._followed: Callable[[], Sequence[InformerState]] = tuple
        self.loop_failures = Counter("flock_loop_failures", "Failed runs of a loop.", ["loop"], registry=r)

    def observe(self, verb: str, code: int, seconds: float) -> None:
        """Note one CNI request that is through; it is counted when somebody looks, not while pods wait."""
        self._noted.append((verb, code, seconds))
        if len(self._noted) > NOTED_LIMIT:
            self.fold()

    def follow(self, followed: "Callable[[], Sequence[InformerState]]") -> None:
        """``followed`` is asked before the metrics are read."""
        self._followed = followed

    def fold(self) -> None:
        """Count what was noted. From any thread, before the metrics are read."""
        for state in self._followed():
            self.api_lists.labels(state.name).set(state.lists)
            self.api_watches.labels(state.name).set(state.watches)
            self.api_failures.labels(state.name).set(state.failures)
        # Two threads may fold at once: each takes what it gets.
        with contextlib.suppress(IndexError):
            while True:
                verb, code, seconds = self._noted.popleft()
                self.requests.labels(verb, str(code)).inc()
                self.duration.labels(verb).observe(seconds)

    def show_sessions(self, sessions: Iterable[SessionState], running: bool) -> None:
        """Show BIRD's sessions as they are; peers that went leave the metric."""
        self.bird_up.set(running)
        self.peer_up.clear()
        for session in sessions:
            self.peer_up.labels(session.description or session.protocol).set(session.established)
