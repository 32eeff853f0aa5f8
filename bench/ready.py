"""A pod from its creation to Ready, through a real kubelet: flock, and ptp with host-local, in one cluster.

Two nodes; one gives its pods flock's network, the other the reference's, one pod after the other in an order that is
drawn anew for each pair. After half of the pairs the nodes change sides, so that what one node is worse at both sides
pay. A pair that began on a machine that wasn't quiet is taken again, up to three times as many in all. The same
plugins are chained behind both, portmap and bandwidth, as flock is installed. The reference does IPv4 alone, flock does
both families. flock's agents run on both nodes all the time: which configuration comes first by name is all that
differs.

The time is from before the request to the moment at which the watch's line with Ready arrives; the API's own times
have seconds only.
"""

import json
import os
import random
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Network, ip_address
from pathlib import Path
from time import monotonic

from bench.quiet import Gate
from bench.report import Figure, median, percentile
from bench.sides import REFERENCE_DIR, NotBuilt
from flock.cni.install import CHAINED
from flock.model.family import Family
from flock.model.ownership import CNI_BIN_DIR, CNI_CONF_DIR
from flock.testing.wait import wait_until
from flock_lab.kube.api import Api, Document
from flock_lab.kube.cluster import Cluster, condition
from flock_lab.kube.control import ControlPlane
from flock_lab.kube.networks import Flock
from flock_lab.kube.plan import PAUSE, ClusterOptions
from flock_lab.kube.worker import Worker
from flock_lab.lab import Lab

PODS = 30
HALVES = 2
TRIES = 3
WARM_UP = 2
SIDES = ("flock", "reference")
LIMIT = 60.0
BAR = 1.05
NAMESPACE = "bench"
FIRST = CNI_CONF_DIR / "00-reference.conflist"
"""Runtimes take the first by name: while this is there the node's pods are the reference's."""

_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_SUBNETS = IPv4Network("10.90.0.0/16")


class Both(Flock):
    """Flock, and the reference's programs beside it."""

    def prepare(self, lab: Lab, control: ControlPlane) -> None:
        super().prepare(lab, control)
        for node in lab.nodes:
            for name in ("ptp", "host-local"):
                shutil.copy(REFERENCE_DIR / name, node.path(CNI_BIN_DIR / name))


def conflist(number: int) -> str:
    """The reference for one node."""
    ipam = {"type": "host-local", "dataDir": "/run/host-local", "ranges": [[{"subnet": str(_subnet(number))}]],
            "routes": [{"dst": "0.0.0.0/0"}]}
    chained = [{"type": name, "capabilities": {capability: True}} for name, capability in CHAINED.items()]
    return json.dumps({"cniVersion": "1.0.0", "name": "reference", "plugins": [
        {"type": "ptp", "ipMasq": False, "ipam": ipam}, *chained]})


def _subnet(number: int) -> IPv4Network:
    return list(_SUBNETS.subnets(new_prefix=24))[number]


@dataclass(slots=True)
class Ready:
    """When each pod became Ready, as a watch saw it."""

    api: Api
    at: dict[str, float] = field(default_factory=dict)
    pods: dict[str, Document] = field(default_factory=dict)
    ended: bool = False
    _news: threading.Condition = field(default_factory=threading.Condition)

    def follow(self) -> None:
        """In a thread of its own, until ``ended``."""
        self.api.watch(_PODS, self._see, LIMIT)

    def wait_for(self, name: str) -> float:
        with self._news:
            if not self._news.wait_for(lambda: name in self.at, LIMIT):
                raise NotBuilt(f"{name} isn't Ready after {LIMIT:g} s: {json.dumps(self.pods.get(name))[:2000]}")
            return self.at[name]

    def _see(self, moment: float, event: Document) -> bool:
        pod = event["object"]
        with self._news:
            self.pods[pod["metadata"]["name"]] = pod
            if condition(pod, "Ready") == "True":
                self.at.setdefault(pod["metadata"]["name"], moment)
                self._news.notify_all()
        return not self.ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Seconds of two pods that were made one after the other; ``quiet``: both found the machine quiet."""

    flock: float
    reference: float
    quiet: bool


@dataclass(slots=True)
class Race:
    """The pods of both sides."""

    cluster: Cluster
    ready: Ready
    gate: Gate = field(default_factory=Gate)
    _number: int = 0

    def run(self, pods: int) -> list[Pair]:
        """Both halves: so many quiet pairs, or all that there were."""
        pairs = [pair for half in range(HALVES) for pair in self._half(half, pods // HALVES)]
        quiet = [pair for pair in pairs if pair.quiet]
        return quiet if len(quiet) >= pods // HALVES * HALVES else pairs

    def _half(self, half: int, pods: int) -> list[Pair]:
        workers = self.cluster.workers[::-1] if half else self.cluster.workers
        placed = dict(zip(SIDES, workers, strict=True))
        for side, worker in placed.items():
            self._choose(side, worker)
            for _ in range(WARM_UP):
                self._one(side, worker)
        pairs: list[Pair] = []
        while len(pairs) < TRIES * pods and sum(pair.quiet for pair in pairs) < pods:
            loud = self.gate.loud
            times = {side: self._one(side, placed[side]) for side in random.sample(SIDES, len(SIDES))}
            pairs.append(Pair(**times, quiet=self.gate.loud == loud))
        self._empty()
        return pairs

    def _choose(self, side: str, worker: Worker) -> None:
        """Give a node's next pods this network; the runtime sees a change of the folder a moment later."""
        first = worker.node.path(FIRST)
        if side == "reference":
            first.write_text(conflist(worker.node.plan.number))
        else:
            first.unlink(missing_ok=True)
        wait_until(lambda: self._network_of(worker, side), LIMIT, f"a pod of {side} on {worker.name}")

    def _network_of(self, worker: Worker, side: str) -> bool:
        name, _ = self._create(worker)
        self.ready.wait_for(name)
        return self._side(name) == side

    def _side(self, name: str) -> str:
        address = ip_address(self.ready.pods[name]["status"]["podIP"])
        return "reference" if address in _SUBNETS else "flock"

    def _one(self, side: str, worker: Worker) -> float:
        self.gate.wait()
        name, began = self._create(worker)
        elapsed = self.ready.wait_for(name) - began
        if self._side(name) != side:
            raise NotBuilt(f"{name} on {worker.name} should have the network of {side}")
        return elapsed

    def _create(self, worker: Worker) -> tuple[str, float]:
        self._number += 1
        name = f"pod-{self._number}"
        document = pod(name, worker.name)
        began = monotonic()
        self.cluster.api.create(_PODS, document)
        return name, began

    def _empty(self) -> None:
        """All pods end, in peace, under the network that they were made in."""
        for name in self.ready.pods:
            self.cluster.api.delete(f"{_PODS}/{name}")
        self.ready.pods.clear()
        wait_until(lambda: not self.cluster.api.items(_PODS), LIMIT, "no pod any more")


def pod(name: str, node: str) -> Mapping[str, object]:
    """Bound already, and Ready once its one container runs: nobody but the kubelet takes part."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeName": node, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False,
        "enableServiceLinks": False, "containers": [{"name": "main", "image": PAUSE}]}}


@contextmanager
def _race() -> Iterator[Race]:
    options = ClusterOptions(nodes=HALVES, primary=Family.IPV4)
    with Cluster.up(f"bench-{os.getpid()}", options, network=Both()) as cluster:
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
        wait_until(lambda: cluster.api.find(account), LIMIT, "the service account")
        ready = Ready(cluster.api)
        follower = threading.Thread(target=ready.follow, name="ready", daemon=True)
        follower.start()
        yield Race(cluster, ready)
        ready.ended = True


def ready_figures(pods: int = PODS) -> list[Figure]:
    """So many of each side."""
    if not Path(REFERENCE_DIR / "ptp").exists():
        raise NotBuilt(f"no reference plugins in {REFERENCE_DIR}: scripts/setup cluster-packages")
    with _race() as race:
        pairs = race.run(pods)
    ours, theirs = [pair.flock for pair in pairs], [pair.reference for pair in pairs]
    loud = sum(not pair.quiet for pair in pairs)
    what = f"pod created to Ready through kubelet, {len(pairs)} each{f', {loud} on a loud machine' if loud else ''}"
    return [
        Figure(name=f"{what}, median", group="kube", ours=median(ours) * 1000, theirs=median(theirs) * 1000, unit="ms",
               bar=BAR),
        Figure(name=f"{what}, p90", group="kube", ours=percentile(ours, 90) * 1000,
               theirs=percentile(theirs, 90) * 1000, unit="ms"),
    ]
