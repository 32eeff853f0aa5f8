"""The node that agents are killed on: manifests, the shim, and an agent that can be started with its end decided."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.crash.client import Client, code_of
from tests.crash.kills import AtCall

from flock.testing.wait import wait_until
from flock_lab.bare import BareNode, agent_argv, agent_env
from flock_lab.native import build

SHIM = Path(__file__).parents[2] / "build" / "shim" / os.uname().machine / "flock"
RUN = Path("/run/flock")
LOG = Path("/run/agent.log")
NOTE = Path("/run/killed-at")
NAME = "crash"
SERVE_DEADLINE = 30.0

MANIFEST = f"""\
apiVersion: flock.fritzlab.net/v1alpha1
kind: NodeConfig
metadata: {{name: {NAME}}}
spec:
  cidr6: ["2001:db8:0:1::/64"]
  cidr4: ["10.64.0.0/20"]
  reuseDelay: 1s
  hostRoutes: ["10.64.8.0/21"]
  defaults: {{ipAlgo: "namespace,pod,image"}}
"""


class CrashNode:
    """A bare node and its agent, if one lives."""

    def __init__(self, node: BareNode) -> None:
        self.node = node
        self.client = Client(node.path(RUN / "agent.sock"))
        self._killer = build(Path(__file__).with_name("killer.c"), "-shared", "-fPIC")
        self._agent: subprocess.Popen[bytes] | None = None
        node.path("/etc/flock/manifests/node.yaml").write_text(MANIFEST)
        shutil.copy2(SHIM, node.path("/opt/cni/bin/flock"))

    @classmethod
    @contextmanager
    def up(cls) -> Iterator["CrashNode"]:
        with BareNode.up() as node:
            yield cls(node)

    def start(self, kill: AtCall | None = None) -> None:
        """Start an agent; from the main thread, whose end it doesn't outlive."""
        self.note.unlink(missing_ok=True)
        argv = agent_argv(NAME, "--log-format", "json", "--health-listen", "off")
        if kill is not None:
            # Preloaded by env alone: nsenter before it would count its own calls.
            argv = ["env", f"LD_PRELOAD={self._killer}", *argv]
        extra = {**kill.env(), "FLOCK_KILL_NOTE": str(NOTE)} if kill is not None else {}
        with open(self.node.path(LOG), "ab") as log:
            self._agent = self.node.start(argv, env=agent_env(**extra), stdout=log)

    @property
    def agent(self) -> "subprocess.Popen[bytes]":
        assert self._agent is not None, "no agent was started"
        return self._agent

    @property
    def note(self) -> Path:
        return self.node.path(NOTE)

    @property
    def alive(self) -> bool:
        return self._agent is not None and self._agent.poll() is None

    def serving(self) -> bool:
        """Whether STATUS is answered with success now."""
        return code_of(self.client.status()) == 0

    def await_serving(self) -> bool:
        """True when the agent serves, False when it died before."""
        return wait_until(self._serves, SERVE_DEADLINE, f"an agent that serves; {self.log_end()}") == "serves"

    def _serves(self) -> str:
        if not self.alive:
            return "died"
        return "serves" if self.serving() else ""

    def await_death(self, seconds: float) -> bool:
        """Whether it died by itself within that time."""
        with suppress(subprocess.TimeoutExpired):
            self.agent.wait(seconds)
        return not self.alive

    def kill(self) -> None:
        """SIGKILL, waited for; one that killed itself before is fine, one that ended otherwise is a failure."""
        self.agent.send_signal(signal.SIGKILL)
        if (status := self.agent.wait()) != -signal.SIGKILL:
            raise AssertionError(f"the agent ended by itself, status {status}: {self.log_end()}")

    def stop(self) -> int:
        """SIGTERM: the graceful end; its exit status."""
        self.agent.send_signal(signal.SIGTERM)
        return self.agent.wait(20)

    def shim(self, env: dict[str, str], stdin: bytes) -> tuple[int, bytes]:
        """Exec the real shim inside."""
        done = subprocess.run(self.node.argv(["/opt/cni/bin/flock"]), env=env | {"PATH": "/usr/bin:/bin:/usr/sbin"},
                              input=stdin, capture_output=True, check=False, timeout=90)
        return done.returncode, done.stdout

    def log_end(self) -> str:
        path = self.node.path(LOG)
        return path.read_text(errors="replace")[-3000:] if path.exists() else "no log"

    def take_log(self) -> str:
        """The whole log, which begins anew."""
        text = self.node.path(LOG).read_text(errors="replace")
        os.truncate(self.node.path(LOG), 0)
        return text
