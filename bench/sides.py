"""The two sides that are compared, each on a node of its own: flock, and the reference plugins ptp with host-local.

The reference does IPv4 alone, since its dual-stack ADD waits for duplicate address detection for more than a second;
flock always does both families. Each side gets the variables that containerd sets, and a folder for its data on the
kind of file system where its users have it: flock's in a tmpfs under /run, host-local's on disk.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.driver import Call, Driver, process_cpu
from bench.pause import pause
from flock_lab.bare import BareNode, BarePod, agent_argv, agent_env
from flock_lab.native import cache_folder

REFERENCE_DIR = Path("/usr/lib/cni")
NODE = "bench"
MANIFEST_PODS = 400
SERVE_LIMIT = 30.0

_NODE_CONFIG = f"""\
apiVersion: flock.fritzlab.net/v1alpha1
kind: NodeConfig
metadata: {{name: {NODE}}}
spec:
  cidr6: ["2001:db8:0:1::/64"]
  cidr4: ["10.64.0.0/16"]
  reuseDelay: 5s
  defaults: {{ipAlgo: "namespace,pod,image"}}
---
apiVersion: v1
kind: Namespace
metadata: {{name: bench, labels: {{kubernetes.io/metadata.name: bench}}}}
"""

_POD = """\
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: bench, labels: {{app: web, tier: "{tier}"}}}}
spec:
  nodeName: bench
  containers: [{{name: c, image: "example.org/web@sha256:{digest:064x}"}}]
"""


class NotBuilt(RuntimeError):
    """Something that is compared isn't there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A pod that a bench adds and deletes: a namespace and a number, from which its names follow."""

    number: int
    pod: BarePod

    @property
    def container(self) -> str:
        return f"{self.number:064x}"

    def env(self, verb: str, path: str) -> dict[str, str]:
        """What containerd hands to a plugin: 13 variables."""
        name = f"web-{self.number}"
        return {
            "CNI_COMMAND": verb, "CNI_CONTAINERID": self.container, "CNI_NETNS": self.pod.netns, "CNI_IFNAME": "eth0",
            "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME={name};"
                        f"K8S_POD_INFRA_CONTAINER_ID={self.container};K8S_POD_UID=",
            "CNI_PATH": path, "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8", "INVOCATION_ID": "0" * 32, "JOURNAL_STREAM": "8:1234", "NOTIFY_SOCKET": "",
            "SYSTEMD_EXEC_PID": "1", "HOME": "/root",
        }


class Side(Protocol):
    """One of the two: how its plugin is called, on which node, and what it uses of the CPU outside its processes."""

    driver: Driver

    def call(self, verb: str, slot: Slot) -> Call: ...

    def standing_cpu(self) -> float: ...


@dataclass(slots=True)
class Reference:
    """ptp and host-local, as Debian has them."""

    driver: Driver
    data: Path

    def call(self, verb: str, slot: Slot) -> Call:
        ipam = {"type": "host-local", "subnet": "10.90.0.0/16", "dataDir": str(self.data),
                "routes": [{"dst": "0.0.0.0/0"}]}
        conf = {"cniVersion": "1.0.0", "name": "reference", "type": "ptp", "ipMasq": False, "ipam": ipam}
        return Call(path=str(REFERENCE_DIR / "ptp"), env=slot.env(verb, str(REFERENCE_DIR)),
                    stdin=json.dumps(conf).encode())

    def standing_cpu(self) -> float:
        """Nothing of it stays."""
        return 0.0


@dataclass(slots=True)
class Flock:
    """The shim and a real agent, which can be killed and started again."""

    driver: Driver
    node: BareNode
    agent: "subprocess.Popen[bytes] | None" = field(default=None)

    def call(self, verb: str, slot: Slot) -> Call:
        conf = {"cniVersion": "1.1.0" if verb in ("STATUS", "GC") else "1.0.0", "name": "flock", "type": "flock"}
        return Call(path="/opt/cni/bin/flock", env=slot.env(verb, "/opt/cni/bin"), stdin=json.dumps(conf).encode())

    def standing_cpu(self) -> float:
        """Seconds that the agent has used so far."""
        return process_cpu(self.pid)

    @property
    def pid(self) -> int:
        assert self.agent is not None, "the agent isn't started"
        return self.agent.pid

    def start(self) -> None:
        """Start the agent and don't wait for it."""
        with open(self.node.path("/run/agent.log"), "ab") as log:
            self.agent = self.node.start(agent_argv(NODE, "--log-format", "json"), env=agent_env(), stdout=log)

    def kill(self) -> None:
        """SIGKILL, waited for."""
        assert self.agent is not None, "the agent isn't started"
        self.agent.send_signal(signal.SIGKILL)
        self.agent.wait()

    def await_serving(self, slot: Slot) -> None:
        """Ask for STATUS until the agent answers that it serves."""
        end = time.monotonic() + SERVE_LIMIT
        while time.monotonic() < end:
            if self.driver.run([self.call("STATUS", slot)], gate=False).outcomes[0].status == 0:
                return
            if self.agent is not None and self.agent.poll() is not None:
                break
            pause(0.005)
        log = self.node.path("/run/agent.log").read_text(errors="replace")[-2000:]
        raise NotBuilt(f"the agent doesn't serve; the end of its log:\n{log}")


@contextmanager
def reference_side() -> Iterator[Reference]:
    """The reference on a fresh node."""
    if not (REFERENCE_DIR / "ptp").exists():
        raise NotBuilt(f"no reference plugins in {REFERENCE_DIR}: scripts/setup cluster-packages")
    cache_folder().mkdir(parents=True, exist_ok=True)
    with BareNode.up() as node, tempfile.TemporaryDirectory(dir=cache_folder()) as data:
        yield Reference(Driver(node), Path(data))


@contextmanager
def flock_side() -> Iterator[Flock]:
    """Flock on a fresh node, its agent started and serving."""
    with BareNode.up() as node:
        install(node)
        side = Flock(Driver(node), node)
        side.start()
        yield side


def install(node: BareNode) -> None:
    """The shim and the manifests of the bench, where a node has them."""
    shim = Path(__file__).parents[1] / "build" / "shim" / os.uname().machine / "flock"
    if not shim.exists():
        raise NotBuilt(f"no shim in {shim}: make shim")
    shutil.copy2(shim, node.path("/opt/cni/bin/flock"))
    pods = "".join(_POD.format(name=f"web-{number}", tier=number % 7, digest=number << 200)
                   for number in range(MANIFEST_PODS))
    node.path("/etc/flock/manifests/bench.yaml").write_text(_NODE_CONFIG + pods)
