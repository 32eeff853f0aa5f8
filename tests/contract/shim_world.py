"""A shim built with sanitizers, and an agent that does whatever a test wants.

The sanitizers end the program with a message on stderr, which every run looks for.
"""

import contextlib
import os
import re
import select
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flock.cni.frames import encode_reply

SOURCE = Path(__file__).parents[2] / "shim" / "flock.c"
CONTAINER = "0123456789abcdef" * 4
CONF = b'{"cniVersion":"1.1.0","name":"flock","type":"flock"}'

DEADLINES_MS = {"ADD_MS": 600, "DEL_MS": 400, "STATUS_MS": 300, "QUEUE_MS": 400}


def build(folder: Path) -> Path:
    """Compile the shim for a run folder of its own, with short deadlines."""
    program = folder / "flock"
    defines = [f'-DRUN_DIR="{folder}/run"', *(f"-D{name}={value}" for name, value in DEADLINES_MS.items())]
    warnings = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
    command = ["gcc", "-std=gnu11", "-O1", "-g", *warnings, *sanitizers, *defines, "-o", str(program), str(SOURCE)]
    subprocess.run(command, check=True, timeout=60)
    return program


def env(command: str, **others: str) -> dict[str, str]:
    named = {"CNI_COMMAND": command, "CNI_CONTAINERID": CONTAINER, "CNI_IFNAME": "eth0", "CNI_PATH": "/opt/cni/bin"}
    return named | {"CNI_NETNS": "/proc/self/ns/net"} | others


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    stdout: bytes
    stderr: bytes


@dataclass
class Shim:
    """The program, and the folder that stands for /run/flock."""

    program: Path
    run_dir: Path

    @property
    def deletes(self) -> Path:
        return self.run_dir / "deletes"

    @property
    def queued(self) -> list[str]:
        return sorted(os.listdir(self.deletes)) if self.deletes.exists() else []

    def clear(self) -> None:
        shutil.rmtree(self.run_dir, ignore_errors=True)
        self.run_dir.mkdir()

    def run(
        self,
        environment: Mapping[str, str] | Mapping[bytes, bytes],
        stdin: bytes | int = CONF,
        wrapper: Sequence[str] = (),
    ) -> Outcome:
        """Exec it; ``stdin`` is what it reads, or a descriptor."""
        process = subprocess.Popen(
            [*wrapper, str(self.program)],
            env=_with_sanitizers(environment),
            stdin=subprocess.PIPE if isinstance(stdin, bytes) else stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            stdout, stderr = process.communicate(stdin if isinstance(stdin, bytes) else None, timeout=20)
        finally:
            process.kill()
            process.wait()
        assert not re.search(rb"Sanitizer|runtime error", stderr), stderr.decode(errors="replace")
        assert process.returncode >= 0, f"died of signal {-process.returncode}: {stderr!r}"
        return Outcome(process.returncode, stdout, stderr)


def _with_sanitizers(environment: Mapping[str, str] | Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    options = {
        b"ASAN_OPTIONS": b"detect_leaks=0",
        b"UBSAN_OPTIONS": b"print_stacktrace=1",
    }
    return options | {os.fsencode(key): os.fsencode(value) for key, value in environment.items()}


@dataclass
class Received:
    data: bytes = b""
    inodes: list[int] = field(default_factory=list)


Behaviour = Callable[[socket.socket, Received], None]


def read_request(connection: socket.socket, received: Received) -> None:
    """Read until the frame is whole, as an agent does."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 4)
        received.data += data
        for descriptor in descriptors:
            received.inodes.append(os.fstat(descriptor).st_ino)
            os.close(descriptor)
        if not data or len(received.data) >= _total(received.data):
            return


def _total(data: bytes) -> int:
    if len(data) < 12:
        return 12
    return 12 + int.from_bytes(data[4:8], "little") + int.from_bytes(data[8:12], "little")


def wait_closed(connection: socket.socket) -> None:
    """Wait until the other side is gone, without reading."""
    poller = select.poll()
    poller.register(connection, select.POLLRDHUP)
    assert poller.poll(20_000), "the shim outlived its deadline"


def answering(code: int, body: bytes) -> Behaviour:
    """Read the request, send this reply."""
    return sending(encode_reply(code, body))


def sending(data: bytes) -> Behaviour:
    """Read the request, send these bytes, close."""

    def behave(connection: socket.socket, received: Received) -> None:
        read_request(connection, received)
        with contextlib.suppress(BrokenPipeError):
            connection.sendall(data)

    return behave


@contextlib.contextmanager
def agent(run_dir: Path, behave: Behaviour, connections: int = 1) -> Iterator[Received]:
    """Serve this many connections in a thread, one after the other."""
    received = Received()
    path = run_dir / "agent.sock"
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        for _ in range(connections):
            with contextlib.suppress(OSError):
                connection, _address = listener.accept()
                with connection:
                    behave(connection, received)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield received
    finally:
        # A shutdown wakes an accept that still waits; a close alone doesn't.
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()
        path.unlink(missing_ok=True)
