"""Ten thousand pods in a real API server: how long until an agent has them in view, what that keeps, what changes cost.

The agent is all of its code in a process that follows every pod, which policy needs; it is compared with its own
client reading the same pages and keeping nothing. Nothing else of a cluster runs.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from bench.pause import pause
from bench.report import Figure, median
from bench.sides import NotBuilt
from flock.api.crd import node_config_crd
from flock.cluster.client import MERGE_PATCH, ApiClient
from flock.errors import FlockError
from flock.system.clock import SystemClock
from flock.testing.wait import await_until
from flock_lab import real_api

PODS = 10_000
NODES = 200
AT_ONCE = 16
RAW_READS = 3
RATE = 20
SECONDS = 20
_NODE = "node-1"
_NAMESPACE = "/api/v1/namespaces/default"
_PATH = f"{_NAMESPACE}/pods"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
Counts = dict[str, float]


class Follower:
    """The program whose memory and time are measured."""

    def __init__(self, real: real_api.RealApi) -> None:
        argv = [sys.executable, str(Path(__file__).with_name("follower.py")), real.access.server, str(real.ca),
                real_api.TOKEN, _NODE]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         env={**os.environ, "PYTHONWARNINGS": ""})

    def ask(self, word: str) -> Counts:
        """One word, one answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n".encode())
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise NotBuilt("the program that follows the pods ended; its words are above")
        found: Counts = json.loads(answer)
        return found

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10.0)


def name(number: int) -> str:
    return f"app-{number % 200}-7d9f8b6c5d-{number:05d}"


def pod(number: int) -> dict[str, object]:
    """One of two hundred Deployments' pods, as large as pods are."""
    app = f"app-{number % 200}"
    probe = {"httpGet": {"path": "/", "port": 8080}}
    labels = {"app.kubernetes.io/name": app, "app.kubernetes.io/instance": f"{app}-prod", "hash": app[::-1]}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name(number), "labels": labels, "annotations": {"note": "x" * 400}},
        "spec": {"nodeName": f"node-{number % NODES}", "containers": [{
            "name": "main", "image": f"registry.example/{app}:1.2.3", "livenessProbe": probe, "readinessProbe": probe,
            "ports": [{"name": "http", "containerPort": 8080}],
            "env": [{"name": f"VARIABLE_{index}", "value": "v" * 30} for index in range(15)],
        }]},
    }


def status(number: int, ready: str = "True") -> dict[str, object]:
    conditions = [{"type": kind, "status": ready} for kind in ("Initialized", "Ready", "ContainersReady")]
    return {"status": {
        "phase": "Running", "conditions": conditions,
        "podIPs": [{"ip": f"2001:db8::{number:x}"}, {"ip": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"}],
    }}


async def _fill(client: ApiClient, numbers: Iterator[int]) -> None:
    for number in numbers:
        await client.create(_PATH, json.dumps(pod(number)).encode())
        await client.patch(f"{_PATH}/{name(number)}/status", json.dumps(status(number)).encode(), MERGE_PATCH)


async def _create_all(client: ApiClient) -> None:
    await await_until(lambda: client.create(_CRDS, json.dumps(node_config_crd()).encode()), 60, "the API server",
                      forgive=(FlockError,))
    # The API server makes it by itself, a moment after it has begun to answer.
    await await_until(lambda: client.get(_NAMESPACE), 60, "the namespace default", forgive=(FlockError,))
    numbers = iter(range(PODS))
    await asyncio.gather(*[_fill(client, numbers) for _ in range(AT_ONCE)])


async def _change_all(client: ApiClient) -> None:
    """What happens to pods all the time: readiness that no peer needs to know of, and labels that each must."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(RATE * SECONDS):
        path = f"{_PATH}/{name(number * 37 % PODS)}"
        if number % 2:
            body: dict[str, object] = {"metadata": {"labels": {"turn": str(number)}}}
            await client.patch(path, json.dumps(body).encode(), MERGE_PATCH)
        else:
            await client.patch(f"{path}/status", json.dumps(status(number * 37 % PODS, "False")).encode(), MERGE_PATCH)
        await asyncio.sleep(max(0.0, began + (number + 1) / RATE - loop.time()))


def _with_client(real: real_api.RealApi, work: Callable[[ApiClient], Awaitable[None]]) -> None:
    async def run() -> None:
        client = ApiClient(real.access, SystemClock())
        try:
            await work(client)
        finally:
            await client.close()
    asyncio.run(run())


def scale_figures() -> list[Figure]:
    """All pods are created, read, followed, and then changed at a steady rate."""
    with tempfile.TemporaryDirectory() as folder, real_api.running(Path(folder)) as real:
        _with_client(real, _create_all)
        follower = Follower(real)
        try:
            return _measure(real, follower)
        finally:
            follower.end()


def _measure(real: real_api.RealApi, follower: Follower) -> list[Figure]:
    raw = [follower.ask("raw")["seconds"] for _ in range(RAW_READS)]
    followed = follower.ask("follow")
    if (followed["peers"], followed["pods"]) != (PODS, PODS // NODES):
        raise NotBuilt(f"{followed['peers']:g} pods are in view, {followed['pods']:g} of the node's own")
    pause(1.0)
    before = follower.ask("count")
    _with_client(real, _change_all)
    after = follower.ask("count")
    what = f"{PODS:,} pods"
    return [
        Figure(name=f"{what} in view / read in pages", group="kube", ours=followed["seconds"] * 1000,
               theirs=median(raw) * 1000, unit="ms", bar=2),
        Figure(name=f"agent's peak resident memory, {what} in view", group="kube", ours=after["peak"], unit="MiB",
               bar=90),
        Figure(name=f"agent's CPU at {RATE} changes a second, {what} in view", group="kube",
               ours=100 * (after["cpu"] - before["cpu"]) / (after["time"] - before["time"]), unit="%", bar=1),
    ]
