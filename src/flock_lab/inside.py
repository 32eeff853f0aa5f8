"""A thread that lives in another process's namespaces: what it calls and starts happens there.

A process started from it is a direct child of the caller, with no nsenter between: its PID is known, its exit code is
its own, and starting it costs one vfork. Invariant: only this thread is inside; it starts processes, never threads
(pthread_create fails once the thread's children belong to another PID namespace).

If the process dies on any line: the thread dies with it, and nothing was made.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

CLONE_FS = 0x200
NAMESPACES = ("uts", "net", "pid", "mnt")

_T = TypeVar("_T")
_libc = ctypes.CDLL(None, use_errno=True)


class Entrance:
    """One worker thread inside the namespaces of ``pid``; it leaves when it is closed."""

    def __init__(self, pid: int) -> None:
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=f"inside {pid}")
        self._worker.submit(_enter, Path(f"/proc/{pid}")).result()

    def call(self, function: Callable[[], _T]) -> _T:
        """Call a function inside; its result or its exception is the caller's."""
        return self._worker.submit(function).result()

    def close(self) -> None:
        """End the thread: while it lives, so do the namespaces."""
        self._worker.shutdown(wait=True)


def _enter(process: Path) -> None:
    root = os.open(process / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    handles = [os.open(process / "ns" / name, os.O_RDONLY | os.O_CLOEXEC) for name in NAMESPACES]
    try:
        # fs/namespace.c, mntns_install: a mount namespace can't be entered with a shared fs_struct, and entering one
        # moves root and working directory to its outermost root, which in a chroot isn't the one that is meant.
        _check(_libc.unshare(CLONE_FS), "unshare")
        for handle in handles:
            _check(_libc.setns(handle, 0), "setns")
        os.fchdir(root)
        os.chroot(".")
        os.chdir("/")
    finally:
        for handle in (root, *handles):
            os.close(handle)


def _check(result: int, call: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), call)
