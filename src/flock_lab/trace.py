"""Which hosts a packet passes, seen with ``ping`` alone: the hop limit is raised until the target itself answers.

Invariant: a hop is named only by a host that said so in an ICMP message; a silent one is a gap, never a guess.

If the process dies on any line: a ping that runs ends by its own deadline.
"""

import re
import subprocess
from dataclasses import dataclass

from flock.model.family import Address, family_of, parse_address
from flock_lab.host import Host

LONGEST = 8
_FROM = re.compile(r"[Ff]rom ([0-9a-f.:]+?):? icmp_seq=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """What a series of echo requests came to."""

    sent: int
    received: int
    text: str

    @property
    def lost(self) -> int:
        return self.sent - self.received

    @property
    def milliseconds(self) -> float | None:
        """The median-ish round trip that ping prints as its average."""
        match = re.search(r"rtt [a-z/]+ = [0-9.]+/([0-9.]+)/", self.text)
        return float(match[1]) if match else None


def ping_argv(target: Address, *, count: int, interval: float = 0.2, wait: float = 2.0,
              hops: int | None = None) -> list[str]:
    """The command line of iputils' ping: numeric, quiet where many are sent."""
    limit = ["-t", str(hops)] if hops else []
    quiet = ["-q"] if count > 1 else []
    return ["ping", f"-{family_of(target).suffix}", "-n", *quiet, "-c", str(count), "-i", f"{interval:g}",
            "-W", f"{wait:g}", *limit, str(target)]


def parse_ping(text: str) -> Ping:
    """Read the summary; no summary is nothing sent and nothing received."""
    match = re.search(r"(\d+) packets transmitted, (\d+) received", text)
    return Ping(sent=int(match[1]) if match else 0, received=int(match[2]) if match else 0, text=text)


def ping(host: Host, target: Address, netns: str | None = None, count: int = 1) -> Ping:
    """Ping from a host, or from one of its pods."""
    done = host.run(*ping_argv(target, count=count, interval=0.05), netns=netns, check=False, timeout=30.0)
    return parse_ping(done.stdout + done.stderr)


class Stream:
    """Echo requests at a steady rate; ``finish`` waits for the last and counts."""

    def __init__(self, host: Host, target: Address, netns: str | None = None, *, count: int, interval: float) -> None:
        self._host = host
        self._process = host.pipe(*ping_argv(target, count=count, interval=interval, wait=1.0), netns=netns)
        self._limit = count * interval * 5 + 20.0

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def finish(self) -> Ping:
        """What it came to, once all are sent and answered."""
        try:
            out, _ = self._process.communicate(timeout=self._limit)
        except subprocess.TimeoutExpired:
            self._process.kill()
            out, _ = self._process.communicate()
        return parse_ping(out.decode(errors="replace"))


def trace(host: Host, target: Address, netns: str | None = None) -> list[Address | None]:
    """The addresses that a packet passes, the target last; None for one that kept silent."""
    path: list[Address | None] = []
    for hops in range(1, LONGEST + 1):
        argv = ping_argv(target, count=1, wait=1.0, hops=hops)
        match = _FROM.search(host.run(*argv, netns=netns, check=False).stdout)
        path.append(parse_address(match[1]) if match else None)
        if path[-1] == target:
            break
    return path
