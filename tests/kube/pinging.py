"""Echo requests that go on while something happens, from a pod or a host: what was sent, and whether any is missing.

Each request has a number, so a packet that was lost is a number without an answer; the last ones, which may still be
under way when it is stopped, don't count.

If the process dies on any line: ``ping`` ends with its host or its pod.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.kube.namespaces import Namespace, RunningPod

from flock.model.family import Address
from flock.testing.wait import wait_until
from flock_lab.host import Host, Popen
from flock_lab.kube import programs
from flock_lab.kube.plan import FOLDER

GAP = "0.01"
_UNDER_WAY = 5
_ANSWER = re.compile(r"(?:icmp_)?seq=(\d+)")
_numbers = itertools.count(1)


@dataclass(slots=True, kw_only=True)
class Pinging:
    """One stream of requests. ``must_have_lost_none`` after it was stopped."""

    name: str
    log: Path
    process: Popen
    answers: list[int] = field(default_factory=list)

    def answered(self) -> int:
        return len(_ANSWER.findall(self.log.read_text(errors="replace")))

    def stop(self) -> None:
        """Read what was answered; the program is about to end."""
        self.process.wait(10.0)
        self.answers = [int(number) for number in _ANSWER.findall(self.log.read_text(errors="replace"))]

    def must_have_lost_none(self) -> None:
        first, last = self.answers[0], self.answers[-1]
        missing = sorted(set(range(first, last - _UNDER_WAY)) - set(self.answers))
        assert not missing, f"{self.name} lost {len(missing)} of {last - first + 1} packets: {missing[:20]}"


@contextmanager
def from_pod(namespace: Namespace, pod: RunningPod, target: Address) -> Iterator[Pinging]:
    """Pings of a pod, until the block ends."""
    router = namespace.cluster.lab.router
    name = f"ping-{next(_numbers)}"
    process = router.spawn(
        programs.kubectl(), "--kubeconfig", f"{FOLDER}/admin.kubeconfig", "exec", "--namespace", namespace.name,
        pod.name, "--", "ping", "-i", GAP, "-W", "2", str(target), log=name, env={"HOME": "/run"})
    yield from _until_stopped(
        Pinging(name=f"{pod.name} to {target}", log=router.log(name), process=process),
        lambda: namespace.execute(pod, "pkill", "-INT", "-f", f"ping .*{target}", check=False))


@contextmanager
def from_host(host: Host, target: Address) -> Iterator[Pinging]:
    """Pings of a node or the router."""
    name = f"ping-{next(_numbers)}"
    process = host.spawn("ping", "-i", GAP, "-W", "2", str(target), log=name)
    yield from _until_stopped(Pinging(name=f"{host.name} to {target}", log=host.log(name), process=process),
                              process.terminate)


def _until_stopped(pinging: Pinging, stop: Callable[[], object]) -> Iterator[Pinging]:
    wait_until(lambda: pinging.answered() > 10 or pinging.process.poll() is not None, 20.0, f"{pinging.name}, answered")
    try:
        yield pinging
    finally:
        stop()
        pinging.stop()


@contextmanager
def all_pairs(namespace: Namespace, pods: list[RunningPod]) -> Iterator[list[Pinging]]:
    """Every pod to the next one, and the router to every pod, on both families."""
    router = namespace.cluster.lab.router
    with ExitStack() as stack:
        streams = []
        for here, there in zip(pods, [*pods[1:], pods[0]], strict=True):
            for address in there.addresses:
                streams.append(stack.enter_context(from_pod(namespace, here, address)))
                streams.append(stack.enter_context(from_host(router, address)))
        yield streams
