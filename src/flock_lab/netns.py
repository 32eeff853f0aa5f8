"""Network namespaces for tests and the lab: make one, run a function or a command inside, delete it.

Named as ``ip netns`` names them (``/run/netns/NAME``), so that an operator can look inside with the usual tools.
Invariant: a function runs inside on a thread of its own, which ends with it, so no other thread ever changes namespace.

If the process dies on any line: a namespace stays under its name, and ``ip netns del NAME`` removes it.
"""

import contextlib
import ctypes
import os
import secrets
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

NETNS_DIR = Path("/run/netns")
CLONE_NEWNET = 0x40000000

_T = TypeVar("_T")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Netns:
    """A named network namespace that this process made."""

    name: str

    @classmethod
    def create(cls, name: str | None = None) -> "Netns":
        """Make a namespace; without a name, one that nobody else uses. Its ``lo`` is up."""
        netns = cls(name=name or f"flk-{secrets.token_hex(5)}")
        subprocess.run(["ip", "netns", "add", netns.name], check=True)
        netns.command("ip", "link", "set", "lo", "up")
        return netns

    @property
    def path(self) -> Path:
        """What CNI_NETNS would hold."""
        return NETNS_DIR / self.name

    def open(self) -> int:
        """A descriptor of the namespace, as the shim passes it; the caller closes it."""
        return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor of the namespace for the length of a block."""
        fd = self.open()
        try:
            yield fd
        finally:
            os.close(fd)

    def run(self, function: Callable[[], _T]) -> _T:
        """Call a function inside, on a thread of its own, and hand back its result or raise its exception."""
        return run_in(self.path, function)

    def command(self, *argv: str, check: bool = True, timeout: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Run a command inside and hand back its output as text."""
        return subprocess.run(self.argv(argv), check=check, timeout=timeout, capture_output=True, text=True)

    def argv(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs ``argv`` inside, without the private mounts of ``ip netns exec``."""
        return ["nsenter", f"--net={self.path}", "--", *argv]

    def delete(self) -> None:
        """Unname the namespace; the kernel removes it when nobody is inside any more. Doing it twice is fine."""
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()


def run_in(path: Path, function: Callable[[], _T]) -> _T:
    """Call a function on a fresh thread inside the namespace at ``path``."""
    results: list[_T] = []
    failures: list[BaseException] = []

    def body() -> None:
        try:
            enter(path)
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that called
            failures.append(error)

    thread = threading.Thread(target=body, name=f"netns {path.name}")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


def enter(path: Path) -> None:
    """Move the calling thread into a namespace, for good: only for threads that end there."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(fd, CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    finally:
        os.close(fd)
