"""Files as a whole: written by rename, so that a reader sees the old bytes or the new ones, never a part.

If the process dies on any line: the old file stands, and at most a `.NAME.THREAD.tmp` lies beside it, which no reader
of flock takes for a file (names with a leading dot are skipped) and `remove_leftovers` takes away.
"""

import contextlib
import grp
import os
import threading
from pathlib import Path

from flock.errors import IOFailure

_LEFTOVER = ".tmp"


def write_atomic(path: Path, data: bytes, mode: int = 0o600, group: str | int | None = None,
                 sync: bool = False) -> None:
    """Replace ``path`` by ``data``, with exactly ``mode``, owned by ``group`` (name or number) where one is given.

    ``sync`` flushes file and folder: for what must outlive a power cut. Without it the order of rename and data still
    holds for a process that dies, which is all that a tmpfs can promise. IOFailure names the path and the reason.
    """
    # The native thread id is unique among living threads of the machine, so writers side by side never share a name,
    # and a dead writer's leftover of the same name is only ever truncated.
    temporary = path.with_name(f".{path.name}.{threading.get_native_id()}{_LEFTOVER}")
    try:
        _write_whole(temporary, data, mode, group, sync)
        os.rename(temporary, path)
        if sync:
            _sync_folder(path.parent)
    except (OSError, KeyError) as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise IOFailure(f"{path} can't be written", _reason(error)) from error


def read_bytes(path: Path, limit: int = 64 * 1024 * 1024) -> bytes | None:
    """The whole file, or None where there is none; IOFailure where it can't be read or is longer than ``limit``."""
    try:
        with open(path, "rb", buffering=0) as file:
            data = file.read(limit + 1) or b""
            while len(data) <= limit and (more := file.read(limit + 1 - len(data))):
                data += more
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IOFailure(f"{path} can't be read", _reason(error)) from error
    if len(data) > limit:
        raise IOFailure(f"{path} can't be read", f"it is longer than {limit} bytes")
    return data


def read_text(path: Path, limit: int = 64 * 1024 * 1024) -> str | None:
    """The file as text, or None where there is none; bytes that are no UTF-8 are replaced, never an error."""
    data = read_bytes(path, limit)
    return None if data is None else data.decode(errors="replace")


def remove(path: Path) -> bool:
    """Unlink ``path``; False where it was gone already, IOFailure where it can't be."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise IOFailure(f"{path} can't be removed", _reason(error)) from error
    return True


def ensure_folder(path: Path, mode: int = 0o755) -> None:
    """Make the folder and its parents; ``mode`` is set on the last one when it is made here."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            os.chmod(path, mode)
        if not path.is_dir():
            raise NotADirectoryError(f"{path} is no folder")
    except OSError as error:
        raise IOFailure(f"the folder {path} can't be made", _reason(error)) from error


def remove_leftovers(folder: Path) -> int:
    """Take away what writers that died left in ``folder``; only at start, before the first writer of this process."""
    count = 0
    with contextlib.suppress(FileNotFoundError):
        for entry in list(os.scandir(folder)):
            if entry.name.startswith(".") and entry.name.endswith(_LEFTOVER):
                count += remove(Path(entry.path))
    return count


def _write_whole(path: Path, data: bytes, mode: int, group: str | int | None, sync: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        # Owner before mode: a secret is never readable by the group that the folder hands down.
        if group is not None:
            os.fchown(descriptor, -1, group if isinstance(group, int) else grp.getgrnam(group).gr_gid)
        os.fchmod(descriptor, mode)
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view):]
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: OSError | KeyError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error.args[0]) if error.args else "no such group"
