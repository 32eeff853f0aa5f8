"""What is on a node before a pod comes, so that it can be compared with what is there when the pod is gone.

Invariant: the kernel and the file system are read with the tools of others, never through flock.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flock.model.family import Address
from flock.model.ownership import ALIVE_FILE, CNI_BIN_DIR, CNI_CONF_DIR, RELEASED_DIR, RUN_DIR
from flock.testing.wait import WaitTimeout, wait_until
from flock_lab.host import Host

_FOLDERS = (RUN_DIR, CNI_BIN_DIR, CNI_CONF_DIR, Path("/var/lib/cni/results"), Path("/run/netns"))
# Released addresses rest there for a while, by design; the agent touches the other all the time.
_MOVING = (RELEASED_DIR, ALIVE_FILE)
_RIB = ("show", "table", "all")
_QUESTIONS = {
    "links": ("link", "show"), "addresses": ("address", "show"),
    "neighbours": ("neighbour", "show", "nud", "permanent"), "IPv4 rules": ("-4", "rule", "show"),
    "IPv6 rules": ("-6", "rule", "show"),
    "IPv4 routes": ("-4", "route", *_RIB), "IPv6 routes": ("-6", "route", *_RIB),
}
_VOLATILE = ("expires", "valid_life_time", "preferred_life_time", "cache", "stats", "operstate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Everything of a node that a pod could leave a trace in, as sorted lines."""

    lines: tuple[str, ...]

    @classmethod
    def seen(cls, host: Host) -> "Ground":
        lines = [f"{name} {line}" for name, words in _QUESTIONS.items() for line in _kernel(host, words)]
        lines += [f"file {name}" for folder in _FOLDERS for name in _files(host, folder)]
        return cls(lines=tuple(sorted(lines)))

    def must_be_as_before(self, host: Host) -> None:
        """Wait until nothing is there that wasn't, and nothing is missing."""
        with contextlib.suppress(WaitTimeout):
            wait_until(lambda: Ground.seen(host) == self, 10.0)
        now, before = set(Ground.seen(host).lines), set(self.lines)
        assert now == before, f"{host.name} has more: {sorted(now - before)}; and less: {sorted(before - now)}"


def must_not_be_named(host: Host, addresses: Sequence[Address]) -> None:
    """No nft rule and no set (of flock, or of portmap) names one of these."""
    ruleset = host.run("nft", "list", "ruleset").stdout.split()
    assert not {str(address) for address in addresses} & set(ruleset)


def must_have_no_flows(host: Host, addresses: Sequence[Address]) -> None:
    """No connection tracking entry is about one of these."""
    flows = "".join(host.run("conntrack", "-L", "-f", family).stdout for family in ("ipv6", "ipv4"))
    assert not [address for address in addresses if f"={address} " in flows]


def _kernel(host: Host, words: Sequence[str]) -> Iterator[str]:
    for entry in json.loads(host.run("ip", "-json", "-details", *words).stdout or "[]"):
        yield json.dumps(_stable(entry), sort_keys=True)


def _stable(value: object) -> object:
    if isinstance(value, dict):
        return {key: _stable(inner) for key, inner in value.items() if key not in _VOLATILE}
    return [_stable(inner) for inner in value] if isinstance(value, list) else value


def _files(host: Host, folder: Path) -> Iterator[str]:
    for path, _, names in os.walk(host.path(folder)):
        inside = Path("/") / Path(path).relative_to(host.path("/"))
        for name in names:
            if not any((inside / name).is_relative_to(moving) for moving in _MOVING):
                yield str(inside / name)
