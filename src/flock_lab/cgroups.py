"""The one thing of a container that doesn't end with a lab node: its folder among the machine's cgroups.

Invariant: only below a folder whose name is a lab node's, and only by rmdir, which refuses one that is in use.

If the process dies on any line: the folders stay, empty, and ``remove_all`` finds them by the lab's name.
"""

import os
from pathlib import Path

from flock_lab.host import Host

_ROOT = Path("/sys/fs/cgroup")


def parent(host: Host) -> str:
    """The cgroup that all containers of a lab node are put in, as a runtime is told it."""
    return f"/{_prefix(host.record.name)}{host.name}"


def remove(host: Host) -> list[str]:
    """Remove what a lab node's containers left, in every hierarchy (one of version 2, or many); what can't be."""
    return _remove(parent(host).lstrip("/"))


def remove_all(lab: str) -> list[str]:
    """The same for every node that a lab has or had."""
    return _remove(f"{_prefix(lab)}node-*")


def _prefix(lab: str) -> str:
    return f"flock-{lab}-"


def _remove(pattern: str) -> list[str]:
    left = []
    for top in [*_ROOT.glob(pattern), *_ROOT.glob(f"*/{pattern}")]:
        for folder, _, _ in os.walk(top, topdown=False):
            try:
                Path(folder).rmdir()
            except OSError as error:
                left.append(f"{folder}: {error.strerror}")
    return left
