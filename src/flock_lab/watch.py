"""What the kernel of a host announces, with the time of each notice: ``ip monitor``, an observer that isn't flock.

Invariant: the watch is known to listen before it is handed out, so no notice after that is missed.

If the process dies on any line: ``ip`` ends with its host.
"""

import os
import re
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from flock_lab.host import Host, Popen
from flock_lab.state import LabError

_STAMP = re.compile(r"\[([0-9T:.\-]+)\] ?(.*)")
_PROBE = "192.0.2.255/32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One line of the watch; ``at`` is when it was read, in seconds."""

    at: float
    text: str

    @property
    def deletion(self) -> bool:
        return self.text.startswith("Deleted ")

    @property
    def subject(self) -> str:
        """What it is about: the same text for a thing that goes and for the same thing that comes."""
        return self.text.removeprefix("Deleted ").strip()


class Watch:
    """Notices of one host; made by ``watching``."""

    def __init__(self, process: Popen) -> None:
        assert process.stdout is not None
        self._process = process
        self._descriptor = process.stdout.fileno()
        self._left = b""

    def await_notice(self, pattern: str, *, deleted: bool, deadline: float = 5.0) -> Notice:
        """The next notice whose text holds the pattern; those before it are passed over."""
        end = time.monotonic() + deadline
        seen = []
        while (line := self._line(end)) is not None:
            if (match := _STAMP.match(line)) is None:
                continue
            notice = Notice(at=datetime.fromisoformat(match[1]).timestamp(), text=match[2])
            if notice.deletion is deleted and re.search(pattern, notice.subject):
                return notice
            seen.append(notice.text)
        verb = "deletion" if deleted else "arrival"
        raise LabError(f"no {verb} of {pattern!r} within {deadline:g} s", f"seen: {seen[-10:]}")

    def _line(self, end: float) -> str | None:
        while b"\n" not in self._left:
            ready, _, _ = select.select([self._descriptor], [], [], max(end - time.monotonic(), 0))
            chunk = os.read(self._descriptor, 65536) if ready else b""
            if not chunk:
                return None
            self._left += chunk
        line, _, self._left = self._left.partition(b"\n")
        return line.decode(errors="replace")


@contextmanager
def watching(host: Host) -> Iterator[Watch]:
    """Watch routes, neighbours and addresses of a host for the length of a block."""
    process = host.pipe("ip", "-ts", "-o", "monitor", "route", "neigh", "address")
    try:
        watch = Watch(process)
        _await_listening(host, watch)
        yield watch
    finally:
        process.kill()
        process.wait(10.0)
        assert process.stdout is not None
        process.stdout.close()


def _await_listening(host: Host, watch: Watch) -> None:
    """Make routes of nobody's until one is seen."""
    for _ in range(50):
        host.run("ip", "route", "add", "blackhole", _PROBE, "proto", "99")
        host.run("ip", "route", "del", "blackhole", _PROBE, "proto", "99")
        try:
            watch.await_notice(re.escape(_PROBE.partition("/")[0]), deleted=True, deadline=0.1)
        except LabError:
            continue
        return
    raise LabError(f"ip monitor in {host.name} never listened")
