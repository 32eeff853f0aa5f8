"""A runtime's calls, spoken as frames over the agent's socket: what the shim does, without an exec."""

import json
import socket
import threading
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

from flock.cni.frames import RawReply, decode_reply, encode_request

TIMEOUT = 30.0
CONF = {"cniVersion": "1.1.0", "name": "flock", "type": "flock"}
IFNAME = "eth0"


class Silence(Enum):
    """Why there is no reply."""

    NO_AGENT = "no agent"
    CUT = "cut off"


Answer = RawReply | Silence


def code_of(answer: Answer) -> int | None:
    """The exit code, if there was a reply."""
    return answer.code if isinstance(answer, RawReply) else None


class Client:
    """Each method is one call of a runtime; without a reply the call may have been carried out or not."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def add(self, container: str, netns: str, netns_fd: int) -> Answer:
        return self.ask(environment("ADD", container, netns), configuration(), netns_fd)

    def delete(self, container: str, netns: str = "") -> Answer:
        return self.ask(environment("DEL", container, netns), configuration())

    def check(self, container: str, netns: str, netns_fd: int, result: object) -> Answer:
        return self.ask(environment("CHECK", container, netns), configuration(prevResult=result), netns_fd)

    def collect(self, valid: Iterable[str]) -> Answer:
        """GC: everything that isn't listed goes."""
        attachments = [{"containerID": container, "ifname": IFNAME} for container in valid]
        return self.ask({"CNI_COMMAND": "GC", "CNI_PATH": "/opt/cni/bin"},
                        configuration(**{"cni.dev/valid-attachments": attachments}))

    def status(self) -> Answer:
        return self.ask({"CNI_COMMAND": "STATUS", "CNI_PATH": "/opt/cni/bin"}, configuration())

    def ask(self, env: dict[str, str], stdin: bytes, netns_fd: int | None = None) -> Answer:
        frame = encode_request(env, stdin)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(TIMEOUT)
            try:
                connection.connect(self._path)
            except (ConnectionError, FileNotFoundError):
                return Silence.NO_AGENT
            try:
                if netns_fd is None:
                    connection.sendall(frame)
                else:
                    sent = socket.send_fds(connection, [frame], [netns_fd])
                    connection.sendall(frame[sent:])
                return _receive(connection)
            except ConnectionError:
                return Silence.CUT


def environment(verb: str, container: str, netns: str) -> dict[str, str]:
    """The variables of one call; the pod's name follows from the container's."""
    return {
        "CNI_COMMAND": verb, "CNI_CONTAINERID": container, "CNI_NETNS": netns, "CNI_IFNAME": IFNAME,
        "CNI_PATH": "/opt/cni/bin",
        "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=crash;K8S_POD_NAME=pod-{container[:16]}",
    }


def configuration(**extra: object) -> bytes:
    return json.dumps(CONF | extra).encode()


def _receive(connection: socket.socket) -> Answer:
    data = b""
    while (reply := decode_reply(data)) is None:
        piece = connection.recv(65536)
        if not piece:
            return Silence.CUT
        data += piece
    return reply


class Turnstile:
    """Many pass at once; while it is closed, nobody is inside: a runtime keeps GC apart from ADD and DEL like this."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = False

    def enter(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._inside += 1

    def leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Let nobody in, and wait until everybody is out."""
        with self._changed:
            self._closed = True
            if not self._changed.wait_for(lambda: self._inside == 0, TIMEOUT + 60):
                raise AssertionError(f"{self._inside} calls hang")

    def open(self) -> None:
        with self._changed:
            self._closed = False
            self._changed.notify_all()
