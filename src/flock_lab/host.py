"""A host of the lab, node or router: its namespaces, and what is run, started, read and written in them.

Invariant: every process of a host is started inside its PID namespace and carries the lab's token, so it can't outlive
the host. Files are written from outside through ``/proc/PID/root``: the same files, the same inotify events.

If the process dies on any line: see ``state``: whatever runs is found and ended by ``take_down``.
"""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from flock.testing.wait import wait_until
from flock_lab.inside import Entrance
from flock_lab.state import LabError, LabRecord, ProcessMark

_T = TypeVar("_T")
Popen = subprocess.Popen[bytes]
Completed = subprocess.CompletedProcess[str]


class Host:
    """One host; made from a holder that is ready."""

    def __init__(self, record: LabRecord, name: str, mark: ProcessMark) -> None:
        self.record = record
        self.name = name
        self.mark = mark
        self._entrance = Entrance(mark.pid)
        self._started: list[Popen] = []
        self._environment = {**os.environ, **record.environment()}

    def path(self, inside: str | Path) -> Path:
        """Where a file of this host is found from outside."""
        return Path(f"/proc/{self.mark.pid}/root") / str(inside).lstrip("/")

    @property
    def netns(self) -> Path:
        """The host's network namespace, as a path that everybody outside can open."""
        return Path(f"/proc/{self.mark.pid}/ns/net")

    def call(self, function: Callable[[], _T]) -> _T:
        """Call a function inside the host; it may block for as long as nobody else needs this host."""
        return self._entrance.call(function)

    def run(self, *argv: str, netns: str | None = None, timeout: float = 30.0, check: bool = True,
            input: str | None = None, env: Mapping[str, str] | None = None) -> Completed:
        """Run a program in the host, or in one of its pods' namespaces, to its end."""
        streams = {"stdin": subprocess.PIPE if input is not None else subprocess.DEVNULL,
                   "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = self._start(_within(argv, netns), env, streams)
        with process:
            try:
                data = input.encode() if input is not None else None
                out, err = (text.decode(errors="replace") for text in process.communicate(data, timeout))
            except subprocess.TimeoutExpired as error:
                process.kill()
                raise LabError(f"{' '.join(argv)} in {self.name} didn't end within {timeout:g} s") from error
        if check and process.returncode:
            raise LabError(f"{' '.join(argv)} in {self.name} ended with {process.returncode}", (err or out).strip())
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)

    def spawn(self, *argv: str, log: str, netns: str | None = None, env: Mapping[str, str] | None = None) -> Popen:
        """Start a program that stays; what it prints is appended to the host's log of that name."""
        with open(self.log(log), "ab") as file:
            return self._start(_within(argv, netns), env,
                               {"stdin": subprocess.DEVNULL, "stdout": file.fileno(), "stderr": file.fileno()})

    def pipe(self, *argv: str, netns: str | None = None) -> Popen:
        """Start a program whose output the caller reads."""
        return self._start(_within(argv, netns), None,
                           {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT})

    def batch(self, lines: Sequence[str]) -> None:
        """Run ``ip`` once for many lines; it stops at the first that fails."""
        self.run("ip", "-batch", "-", input="\n".join(lines) + "\n")

    def sysctl(self, name: str, value: object) -> None:
        """Set a sysctl of the host's network namespace (a path below /proc/sys, since interface names hold dots)."""
        self.call(lambda: Path("/proc/sys", name).write_text(str(value)))

    def log(self, name: str) -> Path:
        """The file that a program's output goes to; it lies outside and lives until the lab is taken down."""
        return self.record.folder / f"{self.name}.{name}.log"

    def tail(self, name: str, lines: int = 20) -> str:
        """The end of a log, for an error's details."""
        try:
            return "\n".join(self.log(name).read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def await_exit(self, process: Popen, what: str, deadline: float) -> int:
        """The exit code of a program that is about to end."""
        wait_until(lambda: process.poll() is not None, deadline, f"the end of {what} in {self.name}")
        return int(process.returncode)

    def leave(self) -> None:
        """Stop being inside: the namespaces can end."""
        self._entrance.close()

    def reap(self) -> None:
        """Collect what has ended by now."""
        for process in self._started:
            process.poll()

    def collect_ended(self) -> None:
        """Collect what ended with the host, so that it leaves no zombies."""
        for process in self._started:
            process.wait(10.0)
            if process.stdout is not None:
                process.stdout.close()

    def _start(self, argv: Sequence[str], env: Mapping[str, str] | None, streams: Mapping[str, int]) -> Popen:
        environment = self._environment if env is None else {**self._environment, **env}
        stdin, stdout, stderr = streams["stdin"], streams["stdout"], streams["stderr"]
        process = self._entrance.call(lambda: subprocess.Popen(
            argv, stdin=stdin, stdout=stdout, stderr=stderr, env=environment, start_new_session=True))
        self._started = [former for former in self._started if former.poll() is None] + [process]
        return process


def _within(argv: Sequence[str], netns: str | None) -> list[str]:
    return ["nsenter", f"--net=/run/netns/{netns}", "--", *argv] if netns else list(argv)
