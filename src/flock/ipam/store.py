"""The store: one small JSON file for each allocation, and the same in memory.

``NAME.pending`` is written before the kernel is touched; its rename to ``NAME.json`` is the commit; a release renames
it into the released folder, which is the quarantine, with the time of release in its name. NAME is
``containerID:interface``. Each step is one rename, so a file is whole or absent, and one bad file harms one allocation.

If the process dies on any line: from ``write_pending`` on, ``load`` finds a pending entry, whose kernel state the agent
tears down; after ``commit`` the entry is whole; after ``release`` the address is in quarantine. A temporary file that
was left is removed by ``load``. No state is only in memory.

Nothing is flushed to the disk: the folder is on ``/run``, which a reboot empties, and then the interfaces are gone too.
"""

import contextlib
import os
import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from flock.errors import IOFailure
from flock.model.attachment import Attachment
from flock.model.ids import AttachmentKey, parse_container_id, parse_ifname

_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(Attachment).decode
_FILE_LIMIT = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedFile:
    """A file that was moved aside: where it was, why, and the attachment that its name tells."""

    path: Path
    reason: str
    key: AttachmentKey | None


@dataclass(slots=True, kw_only=True)
class Loaded:
    """What a start found on disk. ``vanished``: the allocations folder itself was not there."""

    committed: list[Attachment] = field(default_factory=list)
    pending: list[AttachmentKey] = field(default_factory=list)
    released: list[Attachment] = field(default_factory=list)
    damaged: list[DamagedFile] = field(default_factory=list)
    vanished: bool = False


class Store:
    """Allocations on disk and in memory. Writers call from one thread at a time; readers from any."""

    def __init__(self, allocations: Path, released: Path, damaged: Path) -> None:
        self._allocations = allocations
        self._released = released
        self._damaged = damaged
        self._lock = threading.RLock()
        self._pending: dict[AttachmentKey, Attachment] = {}
        self._committed: dict[AttachmentKey, Attachment] = {}
        self._quarantine: deque[Attachment] = deque()

    def __len__(self) -> int:
        return len(self._committed)

    def get(self, key: AttachmentKey) -> Attachment | None:
        """The committed attachment of this name."""
        return self._committed.get(key)

    def known(self, key: AttachmentKey) -> bool:
        """Whether an attachment of this name is committed or under way."""
        return key in self._committed or key in self._pending

    def committed(self) -> list[Attachment]:
        """Every committed attachment, oldest first."""
        with self._lock:
            return list(self._committed.values())

    def write_pending(self, attachment: Attachment) -> None:
        """Record an attachment before its first trace in the kernel; IOFailure leaves nothing behind."""
        with self._lock:
            self._pending[attachment.key] = attachment
            try:
                self._write(attachment, ".pending")
            except IOFailure:
                del self._pending[attachment.key]
                raise

    def commit(self, key: AttachmentKey) -> None:
        """Make a pending attachment final. One rename."""
        with self._lock:
            try:
                os.rename(self._path(key, ".pending"), self._path(key, ".json"))
            except FileNotFoundError:
                self._write(self._pending[key], ".json")
            except OSError as error:
                raise _failure(key, "committed", error) from error
            self._committed[key] = self._pending.pop(key)

    def adopt(self, attachment: Attachment) -> None:
        """Take over an attachment that was rebuilt from the kernel's marks."""
        with self._lock:
            self._committed[attachment.key] = attachment
            self._write(attachment, ".json")

    def identify(self, key: AttachmentKey, namespace: str, pod: str, uid: str) -> None:
        """Say whose a rebuilt attachment is; one that is gone meanwhile stays so."""
        with self._lock:
            attachment = self._committed.get(key)
            if attachment is not None:
                self.adopt(msgspec.structs.replace(attachment, namespace=namespace, pod=pod, uid=uid))

    def discard(self, key: AttachmentKey) -> None:
        """Forget a pending attachment whose kernel state is gone; missing is fine."""
        with self._lock:
            self._pending.pop(key, None)
            self._unlink(self._path(key, ".pending"), key)

    def release(self, key: AttachmentKey, now: float) -> Attachment | None:
        """Move an attachment into quarantine, once its interface is gone; None when there is none."""
        with self._lock:
            attachment = self._committed.get(key)
            if attachment is None:
                return None
            released = msgspec.structs.replace(attachment, released=now)
            target = self._released_path(released)
            try:
                os.rename(self._path(key, ".json"), target)
            except FileNotFoundError:
                self._write_file(target, attachment)
            except OSError as error:
                raise _failure(key, "released", error) from error
            del self._committed[key]
            self._quarantine.append(released)
            return released

    def expire(self, now: float, reuse_delay: float) -> int:
        """End the quarantines that began ``reuse_delay`` ago; how many stay."""
        with self._lock:
            while self._quarantine and now - self._quarantine[0].released >= reuse_delay:
                attachment = self._quarantine.popleft()
                self._unlink(self._released_path(attachment), attachment.key)
            return len(self._quarantine)

    def intact(self) -> bool:
        """Whether the allocations folder is still there."""
        return os.path.isdir(self._allocations)

    def rewrite(self) -> None:
        """Write every entry anew, after a stranger took the folder away."""
        with self._lock:
            for attachment in self._committed.values():
                self._write(attachment, ".json")
            for attachment in self._pending.values():
                self._write(attachment, ".pending")

    def load(self, now: float) -> Loaded:
        """Read the folders at start. Bad files are moved aside and reported; IOFailure if a folder can't be read.

        A time that is yet to come (of another clock, of an agent that counted otherwise) counts as ``now``.
        """
        loaded = Loaded(vanished=not self.intact())
        self._prepare()
        for name in self._names(self._allocations):
            self._load_allocation(self._allocations / name, loaded)
        for name in self._names(self._released):
            self._load_released(self._released / name, loaded)
        self._put_right_times(loaded, now)
        loaded.committed.sort(key=lambda entry: entry.created)
        with self._lock:
            self._committed = {entry.key: entry for entry in loaded.committed}
            self._quarantine = deque(sorted(loaded.released, key=lambda entry: entry.released))
        return loaded

    def _put_right_times(self, loaded: Loaded, now: float) -> None:
        loaded.committed = [msgspec.structs.replace(entry, created=min(entry.created, now))
                            for entry in loaded.committed]
        for number, entry in enumerate(loaded.released):
            if entry.released > now:
                loaded.released[number] = released = msgspec.structs.replace(entry, released=now)
                with contextlib.suppress(OSError):
                    os.rename(self._released_path(entry), self._released_path(released))

    def _load_allocation(self, path: Path, loaded: Loaded) -> None:
        key = _key_of(path.stem)
        if path.suffix == ".tmp":
            path.unlink(missing_ok=True)
        elif path.suffix == ".pending" and key is not None:
            loaded.pending.append(key)
        elif path.suffix == ".json" and key is not None:
            entry = self._read(path, key, loaded)
            if entry is not None:
                loaded.committed.append(entry)
        else:
            self._set_aside(path, "is no allocation's name", key, loaded)

    def _load_released(self, path: Path, loaded: Loaded) -> None:
        name, _, millis = path.stem.rpartition("@")
        key = _key_of(name)
        if path.suffix == ".tmp":
            path.unlink(missing_ok=True)
        elif path.suffix != ".json" or key is None or not (millis.isascii() and millis.isdigit()):
            self._set_aside(path, "is no released allocation's name", None, loaded)
        else:
            entry = self._read(path, key, loaded)
            if entry is not None:
                loaded.released.append(msgspec.structs.replace(entry, released=int(millis) / 1000))

    def _read(self, path: Path, key: AttachmentKey, loaded: Loaded) -> Attachment | None:
        try:
            with open(path, "rb") as file:
                data = file.read(_FILE_LIMIT + 1)
            if len(data) > _FILE_LIMIT:
                raise ValueError(f"is longer than {_FILE_LIMIT} bytes")
            entry = _DECODE(data)
            if entry.key != key:
                raise ValueError(f"holds the allocation of {entry.key}")
            for _address in entry.addresses():
                pass
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            self._set_aside(path, str(error) or type(error).__name__, key, loaded)
            return None
        return entry

    def _set_aside(self, path: Path, reason: str, key: AttachmentKey | None, loaded: Loaded) -> None:
        loaded.damaged.append(DamagedFile(path=path, reason=reason, key=key))
        with contextlib.suppress(OSError):
            os.replace(path, self._damaged / path.name)

    def _prepare(self) -> None:
        for folder in (self._allocations, self._released, self._damaged):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise IOFailure(f"the folder {folder} can't be made", error.strerror or str(error)) from error

    def _names(self, folder: Path) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except OSError as error:
            raise IOFailure(f"the folder {folder} can't be read", error.strerror or str(error)) from error

    def _write(self, attachment: Attachment, suffix: str) -> None:
        path = self._path(attachment.key, suffix)
        try:
            self._write_file(path, attachment)
        except IOFailure as failure:
            if not isinstance(failure.__cause__, FileNotFoundError):
                raise
            self._prepare()
            self.rewrite()

    def _write_file(self, path: str, attachment: Attachment) -> None:
        temporary = path + ".tmp"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                _write_all(fd, _ENCODE(attachment))
            finally:
                os.close(fd)
            os.rename(temporary, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise _failure(attachment.key, "written", error) from error

    def _unlink(self, path: str, key: AttachmentKey) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _failure(key, "removed", error) from error

    def _path(self, key: AttachmentKey, suffix: str) -> str:
        return f"{self._allocations}/{key.container_id}:{key.ifname}{suffix}"

    def _released_path(self, attachment: Attachment) -> str:
        return f"{self._released}/{attachment.key}@{round(attachment.released * 1000)}.json"


def _key_of(name: str) -> AttachmentKey | None:
    container, _, ifname = name.partition(":")
    try:
        return AttachmentKey(parse_container_id(container), parse_ifname(ifname))
    except ValueError:
        return None


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data):]


def _failure(key: AttachmentKey, verb: str, error: OSError) -> IOFailure:
    return IOFailure(f"the allocation of {key} could not be {verb}", error.strerror or str(error))
