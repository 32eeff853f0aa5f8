"""A runtime's calls, spoken as frames over the agent's socket: what the shim does, without an exec."""

import json
import socket
import threading
from collections.abc import Iterable
from pathlib import Path

from flock.cni.frames import RawReply, decode_reply, encode_request

TIMEOUT = 30.0
CONF = {"cniVersion": "1.1.0", "name": "flock", "type": "flock"}
IFNAME = "eth0"


class Client:
    """Each method returns the reply, or None where no agent was there or it died before its answer."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def add(self, container: str, netns: str, netns_fd: int) -> RawReply | None:
        return self.ask(environment("ADD", container, netns), configuration(), netns_fd)

    def delete(self, container: str, netns: str = "") -> RawReply | None:
        return self.ask(environment("DEL", container, netns), configuration())

    def check(self, container: str, netns: str, netns_fd: int, result: object) -> RawReply | None:
        return self.ask(environment("CHECK", container, netns), configuration(prevResult=result), netns_fd)

    def collect(self, valid: Iterable[str]) -> RawReply | None:
        """GC: everything that isn't listed goes."""
        attachments = [{"containerID": container, "ifname": IFNAME} for container in valid]
        return self.ask({"CNI_COMMAND": "GC", "CNI_PATH": "/opt/cni/bin"},
                        configuration(**{"cni.dev/valid-attachments": attachments}))

    def status(self) -> RawReply | None:
        return self.ask({"CNI_COMMAND": "STATUS", "CNI_PATH": "/opt/cni/bin"}, configuration())

    def ask(self, env: dict[str, str], stdin: bytes, netns_fd: int | None = None) -> RawReply | None:
        frame = encode_request(env, stdin)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(TIMEOUT)
            try:
                connection.connect(self._path)
                if netns_fd is None:
                    connection.sendall(frame)
                else:
                    sent = socket.send_fds(connection, [frame], [netns_fd])
                    connection.sendall(frame[sent:])
                return _receive(connection)
            except (ConnectionError, FileNotFoundError):
                return None


def environment(verb: str, container: str, netns: str) -> dict[str, str]:
    """The variables of one call; the pod's name follows from the container's."""
    return {
        "CNI_COMMAND": verb, "CNI_CONTAINERID": container, "CNI_NETNS": netns, "CNI_IFNAME": IFNAME,
        "CNI_PATH": "/opt/cni/bin",
        "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=crash;K8S_POD_NAME=pod-{container[:16]}",
    }


def configuration(**extra: object) -> bytes:
    return json.dumps(CONF | extra).encode()


def _receive(connection: socket.socket) -> RawReply | None:
    data = b""
    while (reply := decode_reply(data)) is None:
        piece = connection.recv(65536)
        if not piece:
            return None
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
