"""A bare node: mount and network namespaces and nothing else, for benches and crash tests that start agents themselves.

Unlike a lab's host it keeps the machine's PIDs, so a descriptor's path in /proc names a pod's network namespace inside
too, and no mount is needed for one. flock's fixed folders are in memory and the node's own; its uplink leads nowhere.

If the process dies on any line: the holder sees the end of its stdin and ends, and the namespaces with it; what was
started inside is ended by the kernel (PR_SET_PDEATHSIG).
"""

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

from flock_lab.netns import enter

CLONE_NEWNET = 0x40000000

# A tmpfs needs a mount point that exists, and the machine's may lack it: an overlay makes it in memory.
_SETUP = """
set -eu
mount -t tmpfs -o mode=755 bare /run
for dir in /etc /opt /var/lib; do
  mkdir -p "/run/.bare/upper$dir" "/run/.bare/work$dir"
  mount -t overlay -o "lowerdir=$dir,upperdir=/run/.bare/upper$dir,workdir=/run/.bare/work$dir" bare "$dir"
done
for dir in /etc/flock /opt/cni/bin /etc/cni/net.d /run/flock; do
  mkdir -p "$dir"
  mount -t tmpfs -o mode=755 bare "$dir"
done
mkdir -p /etc/flock/bird /etc/flock/manifests
ip link set lo up
ip link add eth0 type veth peer name nowhere
ip link set eth0 up
ip link set nowhere up
ip address add 2001:db8:100::2/64 dev eth0 nodad
ip address add 192.0.2.2/24 dev eth0
ip route add default via 2001:db8:100::1
ip route add default via 192.0.2.1
echo ready
exec cat >/dev/null
"""

_T = TypeVar("_T")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True, kw_only=True)
class BareNode:
    """One node, held by a process. Start processes from the main thread alone: they die with the starting thread."""

    holder: "subprocess.Popen[bytes]"
    started: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @classmethod
    @contextlib.contextmanager
    def up(cls) -> Iterator["BareNode"]:
        """A node for the length of a block; what was started in it is killed first."""
        argv = ["unshare", "--mount", "--net", "--propagation", "private", "--", "sh", "-c", _SETUP]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdin is not None
            assert holder.stdout is not None
            if holder.stdout.readline() != b"ready\n":
                raise RuntimeError("a bare node can't be made; the reason is above")
            node = cls(holder=holder)
            try:
                yield node
            finally:
                for process in node.started:
                    process.kill()
                    process.wait()
                holder.stdin.close()

    @property
    def netns(self) -> Path:
        """The node's network namespace."""
        return Path(f"/proc/{self.holder.pid}/ns/net")

    def path(self, inside: str | Path) -> Path:
        """A path of the node, as this process reaches it."""
        return Path(f"/proc/{self.holder.pid}/root{inside}")

    def argv(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs ``argv`` inside."""
        return ["nsenter", f"--target={self.holder.pid}", "--mount", "--net", "--", *argv]

    def run(self, *argv: str, check: bool = True, stdin: str = "") -> str:
        """Run a command inside and hand back its output."""
        done = subprocess.run(self.argv(argv), check=check, capture_output=True, text=True, input=stdin, timeout=60)
        return done.stdout

    def start(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL, stdout: int | IO[bytes] = subprocess.DEVNULL,
    ) -> "subprocess.Popen[bytes]":
        """Start a process inside: its PID is the Popen's, since nsenter and setpriv become it by exec."""
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *self.argv(argv)],
            env=dict(os.environ if env is None else env), stdin=stdin, stdout=stdout,
            stderr=None if stdout == subprocess.PIPE else stdout,
        )
        self.started.append(process)
        return process


@dataclass(frozen=True, slots=True, kw_only=True)
class BarePod:
    """A pod's network namespace, kept by a descriptor of this process alone."""

    fd: int

    @classmethod
    def make(cls) -> "BarePod":
        """A fresh namespace; about half a millisecond."""
        return cls(fd=_on_thread(_fresh_netns))

    @property
    def netns(self) -> str:
        """What CNI_NETNS holds: opened anew by the plugin, so it is a namespace of its own right."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    def run(self, function: Callable[[], _T]) -> _T:
        """Call a function inside, on a thread of its own."""
        def body() -> _T:
            enter(Path(self.netns))
            return function()
        return _on_thread(body)

    def close(self) -> None:
        os.close(self.fd)


def agent_argv(node_name: str, *options: str) -> list[str]:
    """The command line of the real agent, as its console script has it."""
    script = Path(sys.executable).with_name("flock-agent")
    return [str(script), "--node", node_name, "--manifests", "/etc/flock/manifests", *options]


def agent_env(**extra: str) -> dict[str, str]:
    """The agent's environment: byte code is cached, as it is where flock is installed."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | extra


def _fresh_netns() -> int:
    if _libc.unshare(CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "unshare")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _on_thread(function: Callable[[], _T]) -> _T:
    with ThreadPoolExecutor(1, thread_name_prefix="inside a pod") as thread:
        return thread.submit(function).result()
