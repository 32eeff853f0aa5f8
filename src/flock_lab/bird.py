"""A real BIRD on a host of the lab: started, asked, killed.

If the process dies on any line: BIRD ends with its host.
"""

import signal

from flock.testing.wait import wait_until
from flock_lab.host import Host, Popen
from flock_lab.state import LabError

LOG = "bird"
_PATIENCE = 10.0


class BirdProcess:
    """One BIRD; it runs as root, as in a container of its own."""

    def __init__(self, host: Host, config: str, socket: str) -> None:
        self._host = host
        self._config = config
        self._socket = socket
        self._process: Popen | None = None

    def start(self, *, recover: bool = False) -> None:
        """Start it and wait until it answers; ``recover`` is ``-R``, for one whose routes the kernel still has."""
        options = ["-R"] if recover else []
        process = self._host.spawn("bird", "-f", "-c", self._config, "-s", self._socket, *options, log=LOG)
        wait_until(lambda: self._answers() or process.poll() is not None, _PATIENCE, f"BIRD on {self._host.name}")
        if process.poll() is not None:
            raise LabError(f"BIRD on {self._host.name} ended with {process.returncode}", self._host.tail(LOG))
        self._process = process

    def kill(self) -> None:
        """End it as a crash does, without a withdrawal."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._host.await_exit(self._process, "BIRD", _PATIENCE)
            self._process = None

    def ask(self, *words: str, check: bool = True) -> str:
        """What it answers to an operator's command."""
        return self._host.run("birdc", "-s", self._socket, *words, check=check).stdout

    def _answers(self) -> bool:
        return self.ask("show", "status", check=False).startswith("BIRD")
