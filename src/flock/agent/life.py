"""The life sign: a file whose time says when the agent last served, for the shim's STATUS between two agents.

Its modification time is set to seconds since the machine's start, not to the date: the wall clock is set by hours,
just after a boot above all, and STATUS would then lie in one direction or the other (shim/flock.c,
``status_without_agent``).

If the process dies on any line: the sign is as old as the agent's last look, or it is new.
"""

import os
from pathlib import Path

from flock.model.ownership import ALIVE_FILE


def give_life_sign(now: float, path: Path = ALIVE_FILE) -> None:
    """``now`` is the clock's uptime. OSError where the file can't be kept."""
    path.touch(mode=0o600)
    os.utime(path, (now, now))


def last_life_sign(path: Path = ALIVE_FILE) -> float | None:
    """The uptime at which an agent last served; None where none has since the machine's start."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None
