"""A folder of ordinary manifests as the source of the view, watched by inotify: no cluster is needed, and no polling.

A file is read when its writer closes it, when it is renamed into place, and when a link to it appears; a half-written
or wrong one is reported with file, document and line while its last good state stays (``manifest_file``). A file that
goes takes its objects along; a folder that goes takes none, and is looked for again each second until it is back.

Reading happens in the loop's executor, one batch at a time, so that a large file doesn't hold the loop up. If the
process dies on any line: nothing is written here; the next start reads the folder anew.
"""

import asyncio
import contextlib
import fcntl
import os
import stat
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import msgspec
from inotify_simple import INotify, flags

from flock.cluster.documents import FILE_LIMIT
from flock.cluster.manifest_file import FileState, assemble, is_manifest, keep_good, read_file
from flock.cluster.view import Snapshot, SourceProblem, View
from flock.errors import IOFailure

_EVENTS = (
    flags.CLOSE_WRITE | flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE | flags.CREATE
    | flags.DELETE_SELF | flags.MOVE_SELF | flags.ONLYDIR
)  # fmt: skip
_GONE = flags.DELETE_SELF | flags.MOVE_SELF | flags.IGNORED | flags.UNMOUNT
_LOOK_AGAIN = 1.0


class ManifestsFolder:
    """Fills ``view`` from a folder, for the agent of ``node``."""

    def __init__(self, path: Path, node: str, loop: asyncio.AbstractEventLoop) -> None:
        self.view = View()
        self._path = Path(path)
        self._node = node
        self._loop = loop
        self._files: dict[str, FileState] = {}
        self._changed: set[str] = set()
        self._created: set[str] = set()
        self._everything = False
        self._gone = False
        self._snapshot = Snapshot()
        self._notify: INotify | None = None
        self._watch = -1
        self._reading: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Watch, then read everything, so that no change goes unseen; IOFailure where there is no such folder."""
        self._notify = INotify(nonblocking=True)
        try:
            self._watch = self._notify.add_watch(self._path, _EVENTS)
        except OSError as error:
            self._notify.close()
            self._notify = None
            raise IOFailure(f"manifests folder {self._path}: {error.strerror}") from error
        self._loop.add_reader(self._notify.fileno(), self._on_readable)
        self._everything = True
        await self._read_changes()
        if not self.view.complete:
            raise IOFailure(f"manifests folder {self._path} vanished while it was read")

    def close(self) -> None:
        """Stop watching; the view stays as it is."""
        if self._timer is not None:
            self._timer.cancel()
        if self._reading is not None:
            self._reading.cancel()
        if self._notify is not None:
            self._loop.remove_reader(self._notify.fileno())
            self._notify.close()
            self._notify = None

    def behind(self, then: Callable[[], None]) -> bool:
        """True where a change that was made before this call isn't in the view yet; ``then`` is called once it is.

        The kernel queues a notice before the call that made the change returns, so none is missed. Costs one ioctl
        where nothing changed, since every ADD asks.
        """
        if self._notify is None:
            return False
        if int.from_bytes(fcntl.ioctl(self._notify.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder):
            self._on_readable()
        if self._reading is None or self._reading.done():
            return False
        self._reading.add_done_callback(lambda _: then())
        return True

    def _on_readable(self) -> None:
        assert self._notify is not None
        for event in self._notify.read(timeout=0):
            if event.mask & flags.Q_OVERFLOW or event.name.startswith("..data"):
                # Lost notices; or the link by which the kubelet swaps all files of a mounted ConfigMap at once.
                self._everything = True
            elif event.mask & _GONE and event.wd == self._watch:
                self._lose_folder()
            elif event.wd == self._watch and is_manifest(event.name):
                (self._created if event.mask & flags.CREATE else self._changed).add(event.name)
        self._read_soon()

    def _read_soon(self) -> None:
        if self._reading is None or self._reading.done():
            self._reading = self._loop.create_task(self._read_changes(), name="manifests")

    async def _read_changes(self) -> None:
        """Read what changed until nothing has, each time off the loop, and put the snapshot in place on it."""
        while not self._gone and (self._changed or self._created or self._everything):
            everything, self._everything = self._everything, False
            names, self._changed = self._changed, set()
            created, self._created = self._created, set()
            try:
                found = await self._loop.run_in_executor(None, self._read, everything, names, created - names)
            except OSError:
                self._lose_folder()
                return
            self._files, self._snapshot = found
            self._publish()

    def _read(self, everything: bool, names: set[str], created: set[str]) -> tuple[dict[str, FileState], Snapshot]:
        """The files' new states and their snapshot; runs in the executor, never twice at once."""
        files = dict(self._files)
        if everything:
            names = names | files.keys() | set(self._list())
        for name in sorted(names | {name for name in created if self._is_link(name)}):
            state = self._read_one(name, files.get(name))
            if state is None:
                files.pop(name, None)
            else:
                files[name] = state
        return files, assemble(files, self._node)

    def _list(self) -> list[str]:
        return [name for name in os.listdir(self._path) if is_manifest(name)]

    def _is_link(self, name: str) -> bool:
        """Whether a new name is a link to something whole; a new file is read when its writer closes it."""
        try:
            status = os.lstat(self._path / name)
        except OSError:
            return False
        return stat.S_ISLNK(status.st_mode) or status.st_nlink > 1

    def _read_one(self, name: str, before: FileState | None) -> FileState | None:
        try:
            # Without O_NONBLOCK a FIFO would wait for a writer for ever.
            with open(os.open(self._path / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    return keep_good(before, name, "is not a regular file")
                data = file.read(FILE_LIMIT + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            return keep_good(before, name, f"can't be read: {error.strerror}")
        if len(data) > FILE_LIMIT:
            return keep_good(before, name, f"is larger than {FILE_LIMIT} bytes")
        return read_file(name, data, before)

    def _publish(self) -> None:
        """Put the files' snapshot in place, with the folder's own problem if it has one."""
        if not self._gone:
            self.view.replace(self._snapshot)
            return
        problem = SourceProblem(str(self._path), 0, 0, "the manifests folder is gone; what it said last stays")
        problems = (problem, *self._snapshot.problems)
        self.view.replace(msgspec.structs.replace(self._snapshot, problems=problems))

    def _lose_folder(self) -> None:
        if self._gone:
            return
        self._gone = True
        self._unwatch()
        self._publish()
        self._timer = self._loop.call_later(_LOOK_AGAIN, self._look_again)

    def _unwatch(self) -> None:
        # EINVAL: the kernel removed the watch together with the folder.
        with contextlib.suppress(OSError):
            if self._notify is not None:
                self._notify.rm_watch(self._watch)
        self._watch = -1

    def _look_again(self) -> None:
        if self._notify is None:
            return
        try:
            self._watch = self._notify.add_watch(self._path, _EVENTS)
        except OSError:
            self._timer = self._loop.call_later(_LOOK_AGAIN, self._look_again)
            return
        self._gone = False
        self._everything = True
        self._read_soon()
