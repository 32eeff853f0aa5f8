"""What containerd does on a node, seen and broken from outside: processes of a pod, and the calls of the shim."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath

from tests.kube.flocks import allocations
from tests.kube.namespaces import RunningPod

from flock.model.ownership import CNI_BIN_DIR, SHIM_NAME
from flock.system.files import write_atomic
from flock_lab.node import Node

_REAL = CNI_BIN_DIR / "flock-itself"
_CALLS = "/run/.lab/calls"
_SPY = f"""#!/bin/sh
{_REAL}
code=$?
echo "$CNI_COMMAND $code" >>{_CALLS}
exit $code
"""


def kill(node: Node, pod: RunningPod, program: str) -> None:
    """End a program of a pod as a crash would: the container's, or ``pause``, which is the sandbox."""
    entry, = [one for one in allocations(node) if one["pod"] == pod.name]
    pids = node.run("ip", "netns", "pids", PurePath(entry["netns"]).name).stdout.split()
    found = [pid for pid in pids if node.path(f"/proc/{pid}/comm").read_text().strip() == program]
    assert found, f"{pod.name} runs no {program}"
    node.run("kill", "-9", *found)


@contextmanager
def calls_seen(node: Node) -> Iterator[Callable[[], list[str]]]:
    """The runtime's calls of the shim from here on, a verb and its exit code each; no agent is started meanwhile."""
    shim, real, calls = (node.path(path) for path in (CNI_BIN_DIR / SHIM_NAME, _REAL, _CALLS))
    shutil.copy(shim, real)
    calls.write_text("")
    write_atomic(shim, _SPY.encode(), 0o755)
    try:
        yield lambda: calls.read_text().splitlines()
    finally:
        shutil.copy(real, shim.with_name("flock-again"))
        shim.with_name("flock-again").rename(shim)
        real.unlink()
