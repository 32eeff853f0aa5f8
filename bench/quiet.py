"""Waiting for a moment in which nobody else works: what is timed then is what is measured.

The gate of ``driver.c`` for what doesn't go through the driver. It looks at how many threads want a CPU, ours included.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from bench.pause import pause

LOOKS = 10
ENOUGH = 8
BETWEEN = 0.01
LONGEST = 3.0

_LOAD = Path("/proc/loadavg")


@dataclass(slots=True)
class Gate:
    """``loud`` of ``passed`` times there was no quiet moment in time."""

    passed: int = 0
    loud: int = 0

    def wait(self) -> bool:
        """Wait for a tenth of a second in which hardly anybody wanted a CPU, but not for ever; whether it came."""
        self.passed += 1
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            if sum(_alone() for _ in range(LOOKS)) >= ENOUGH:
                return True
        self.loud += 1
        return False


def _alone() -> bool:
    pause(BETWEEN)
    return int(_LOAD.read_text().split()[3].partition("/")[0]) <= 1
