"""The one thing of a container that doesn't end with a lab node: its folder among the machine's cgroups.

Invariant: only below a folder whose name is a lab node's, and only by rmdir, which refuses one that is in use.
"""

import os
from pathlib import Path

from flock_lab.host import Host

_ROOT = Path("/sys/fs/cgroup")


def parent(host: Host) -> str:
    """The cgroup that all containers of a lab node are put in, as a runtime is told it."""
    return f"/flock-{host.record.name}-{host.name}"


def remove(host: Host) -> list[str]:
    """Remove what a lab node's containers left, in every hierarchy (one of version 2, or many); what can't be."""
    left = []
    name = parent(host).lstrip("/")
    for top in [_ROOT / name, *_ROOT.glob(f"*/{name}")]:
        for folder, _, _ in os.walk(top, topdown=False):
            try:
                Path(folder).rmdir()
            except OSError as error:
                left.append(f"{folder}: {error.strerror}")
    return left
