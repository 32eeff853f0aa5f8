"""What a lab leaves on the machine, written down before it is made, so that anybody can take it away.

A lab is a folder here and processes that carry its token in their environment; every namespace, mount and link of it
lives in those processes alone and ends with them. Invariant: the token is on disk before the first process starts, so
whatever was made can be found. A process is named by PID and start time: a PID alone may have become a stranger's.

If the process dies on any line: ``take_down`` finds the rest by the token.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from flock.errors import IOFailure
from flock.model.text import shown
from flock.system.files import write_atomic

LABS_DIR = Path("/run/flock-lab")
TOKEN_VARIABLE = "FLOCK_LAB"
_STEP = 0.05
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}\Z")


class LabError(IOFailure):
    """The lab can't do what it was asked for; the message says what to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMark:
    """A process, named so that no later one can be taken for it: ``started`` is in ticks since boot."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> "ProcessMark | None":
        """The mark of a living process; a zombie isn't one."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in "ZX" else cls(pid=pid, started=int(fields[19]))

    @property
    def alive(self) -> bool:
        return ProcessMark.of(self.pid) == self

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal exactly this process: the descriptor is taken first and the start time looked at after."""
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.alive:
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)

    def await_end(self, seconds: float) -> bool:
        """Whether it ended in time; reaps it where it is a child of ours, or its PID namespace could never end."""
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)
            if not self.alive:
                return True
            if time.monotonic() >= end:
                return False
            self._pause(min(_STEP, end - time.monotonic()))

    def _pause(self, seconds: float) -> None:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                select.select([descriptor], [], [], max(seconds, 0))
            finally:
                os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRecord:
    """A lab as its folder names it. ``owner`` is the process that takes it down at its end; None: it is to stay."""

    name: str
    token: str
    nodes: int
    owner: ProcessMark | None

    @property
    def folder(self) -> Path:
        return folder_of(self.name)

    @property
    def permit(self) -> Path:
        """A file without which no holder goes on: ``take_down`` removes it first and looks for holders after.

        So a holder that was forked before and shows itself later ends by itself.
        """
        return self.folder / f"alive-{self.token}"

    def save(self) -> None:
        write_atomic(self.folder / "lab.json", json.dumps(asdict(self)).encode())

    def environment(self) -> dict[str, str]:
        """What every process of the lab carries, and by which it is found."""
        return {TOKEN_VARIABLE: self.token}

    def note_holder(self, host: str, mark: ProcessMark) -> None:
        write_atomic(self.folder / f"{host}.json", json.dumps(asdict(mark)).encode())

    def holder(self, host: str) -> ProcessMark:
        """The process that holds a host of the lab; LabError where there is none."""
        try:
            mark = ProcessMark(**json.loads((self.folder / f"{host}.json").read_bytes()))
        except FileNotFoundError as error:
            raise LabError(f"the lab {self.name} has no host {host!r}", f"it has {self.hosts()}") from error
        if not mark.alive:
            raise LabError(f"{host} of the lab {self.name} is gone", f"flockctl lab down {self.name}")
        return mark

    def hosts(self) -> str:
        return ", ".join(sorted(file.stem for file in self.folder.glob("*.json") if file.stem != "lab"))


def folder_of(name: str) -> Path:
    """A lab's folder; LabError for a name that isn't one, since the folder is going to be removed one day."""
    if not _NAME.match(name):
        raise LabError(f"{shown(name)} is no name for a lab", "lower-case letters, digits and '-', at most 40")
    return LABS_DIR / name


def create(name: str, nodes: int, owner: ProcessMark | None) -> LabRecord:
    """Claim a name: the folder is the claim, and the token is in it before anything is made."""
    record = LabRecord(name=name, token=f"{name}-{secrets.token_hex(12)}", nodes=nodes, owner=owner)
    with _claiming():
        try:
            record.folder.mkdir(mode=0o700)
        except FileExistsError as error:
            raise LabError(f"there is a lab {name} already", f"flockctl lab down {name}") from error
        record.permit.touch()
        record.save()
    return record


@contextlib.contextmanager
def _claiming() -> Iterator[None]:
    """Names are claimed and freed one at a time, or one process could free what another has just claimed.

    The lock is the folder of all labs itself; who locked one that was removed meanwhile locks its successor.
    """
    while (lock := _lock_folder()) is None:
        pass
    try:
        yield
    finally:
        os.close(lock)


def _lock_folder() -> int | None:
    LABS_DIR.mkdir(mode=0o755, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        lock = os.open(LABS_DIR, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock).st_ino == LABS_DIR.stat().st_ino:
                undo.pop_all()
                return lock
    return None


def load(name: str) -> LabRecord | None:
    """The lab of that name, or None; one whose token was never written has made nothing, and counts as None."""
    try:
        raw = json.loads((folder_of(name) / "lab.json").read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    raw["owner"] = ProcessMark(**raw["owner"]) if raw["owner"] else None
    return LabRecord(**raw)


def names() -> list[str]:
    """The labs that there are, or that a crash left."""
    return sorted(folder.name for folder in LABS_DIR.iterdir()) if LABS_DIR.is_dir() else []


def marked(token: str) -> list[ProcessMark]:
    """Every living process that carries the token, but the caller."""
    wanted = f"{TOKEN_VARIABLE}={token}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0") and (mark := ProcessMark.of(int(entry.name))):
                found.append(mark)
    return found


def take_down(name: str, seconds: float = 20.0, reap: Callable[[], None] = lambda: None) -> bool:
    """End every process of a lab and remove its folder; False where there is no such lab.

    A host's first process is PID 1 of its namespace, so the kernel ends all others with it, marked or not. It ends
    only after each of them is collected, so whoever started some of them says by ``reap`` how.
    """
    record = load(name)
    if record is not None:
        record.permit.unlink(missing_ok=True)
        _end_all(record, seconds, reap)
    elif not folder_of(name).is_dir():
        return False
    with _claiming():
        now = load(name)
        ours = now is None or (record is not None and now.token == record.token)
        existed = ours and folder_of(name).is_dir()
        if ours:
            shutil.rmtree(folder_of(name), ignore_errors=True)
        with contextlib.suppress(OSError):
            LABS_DIR.rmdir()
    return existed


def _end_all(record: LabRecord, seconds: float, reap: Callable[[], None]) -> None:
    end = time.monotonic() + seconds
    seen: set[ProcessMark] = set()
    while True:
        seen.update(marked(record.token))
        # One that is ending shows no environment any more: it is waited for by its mark.
        left = [mark for mark in seen if not mark.await_end(0)]
        if not left:
            return
        if time.monotonic() > end:
            pids = [mark.pid for mark in left]
            raise LabError(f"the lab {record.name} can't be taken down", f"still there: {pids}")
        for mark in left:
            mark.kill()
        reap()
        left[0].await_end(_STEP)
