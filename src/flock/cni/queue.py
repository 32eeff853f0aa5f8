"""The DELs that came while the agent didn't answer: a folder of frames that the shim leaves, ``CONTAINER:IFNAME`` each.

The agent drains it before it serves and while it runs; ``changed`` is one stat, cheap enough for every request.

Invariant: an entry goes away only by ``remove`` or ``forget``; a file that is no entry is moved aside, never executed.

If the process dies on any line: what was read is still there, and a DEL done twice is a DEL.
"""

import contextlib
import logging
import os
import stat
import time
from pathlib import Path

import msgspec

from flock.cni.frames import ENV_LIMIT, STDIN_LIMIT, decode_request
from flock.cni.requests import DelRequest
from flock.cni.wire import parse_del_frame
from flock.errors import DecodeFailure, FlockError, IOFailure
from flock.model.ids import AttachmentKey
from flock.model.text import shown
from flock.system.files import ensure_folder, read_bytes, remove

log = logging.getLogger(__name__)

_ENTRY_LIMIT = 1024 + ENV_LIMIT + STDIN_LIMIT

_GRAIN_NS = 50_000_000
"""A folder's mtime moves in ticks of up to 10 ms: one this young may hide a second change of the same tick."""

_LEFTOVER_NS = 60_000_000_000
"""A shim lives 15 s at most: older files that begin with a dot belong to nobody."""


class QueuedDelete(msgspec.Struct, frozen=True):
    """One DEL to do. ``request.netns_inode`` names the network namespace that it was for, 0 if that was gone."""

    request: DelRequest
    name: str
    identity: tuple[int, int]


class DeleteQueue:
    """The folder, read by one reader."""

    def __init__(self, folder: Path, damaged: Path) -> None:
        self._folder = folder
        self._prefix = f"{folder}/"
        self._damaged = damaged
        self._seen = -1
        self._open: set[str] = set()

    def changed(self) -> bool:
        """Whether there is something to do: entries that ``read`` may not have given yet, or that aren't done."""
        return bool(self._open) or self._mtime() != self._seen

    def read(self) -> tuple[QueuedDelete, ...]:
        """All entries, oldest first."""
        before = self._mtime()
        found: list[tuple[int, QueuedDelete]] = []
        for name in self._names():
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(self._folder / name)
                if name.startswith("."):
                    self._tidy(name, status)
                elif (entry := self._parse(name, status)) is not None:
                    found.append((status.st_mtime_ns, entry))
        self._seen = before if before == 0 or time.time_ns() - before > _GRAIN_NS else -1
        self._open = {entry.name for _, entry in found}
        return tuple(entry for _, entry in sorted(found, key=lambda pair: pair[0]))

    def remove(self, entry: QueuedDelete) -> None:
        """The DEL is done. A newer one of the same name stays."""
        self._open.discard(entry.name)
        path = self._folder / entry.name
        with contextlib.suppress(FileNotFoundError):
            if _identity(os.lstat(path)) == entry.identity:
                remove(path)

    def forget(self, key: AttachmentKey) -> bool:
        """A new attachment of this name begins: what is queued is about a former one. True if there was something."""
        self._open.discard(str(key))
        try:
            # One system call and no path object: every ADD asks.
            os.unlink(f"{self._prefix}{key.container_id}:{key.ifname}")
        except FileNotFoundError:
            return False
        except OSError as error:
            raise IOFailure(f"the queued DEL of {key} can't be removed", error.strerror or str(error)) from error
        return True

    def _mtime(self) -> int:
        try:
            return self._folder.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise IOFailure(f"{self._folder} can't be read", error.strerror or str(error)) from error

    def _parse(self, name: str, status: os.stat_result) -> QueuedDelete | None:
        try:
            if not stat.S_ISREG(status.st_mode):
                raise DecodeFailure("is no file")
            data = read_bytes(self._folder / name, _ENTRY_LIMIT)
            if data is None:
                return None
            request = parse_del_frame(decode_request(data))
            if str(request.key) != name:
                raise DecodeFailure("is named otherwise than its content", shown(str(request.key)))
        except FlockError as error:
            self._move_aside(name, error)
            return None
        return QueuedDelete(request, name, _identity(status))

    def _move_aside(self, name: str, error: FlockError) -> None:
        log.warning("queued-delete-damaged", extra={"file": shown(name), "reason": str(error)})
        try:
            ensure_folder(self._damaged, 0o700)
            (self._folder / name).rename(self._damaged / f"delete-{name}")
        except (OSError, IOFailure):
            log.exception("queued-delete-stays", extra={"file": shown(name)})

    def _tidy(self, name: str, status: os.stat_result) -> None:
        if time.time_ns() - status.st_mtime_ns > _LEFTOVER_NS:
            remove(self._folder / name)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_ino, status.st_mtime_ns
