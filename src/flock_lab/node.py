"""A node of the lab: a host with a real agent, a real BIRD, a manifests folder, and pods through the real shim.

Invariant: nothing is asked of the agent but through what operators and runtimes have: its program, its files, its log.

If the process dies on any line: everything of a node ends with its holder.
"""

import signal
import sys
from collections.abc import Mapping

from flock.model.family import FAMILIES
from flock.model.ownership import BIRD_CONFIG, BIRD_SOCKET
from flock.system.files import write_atomic
from flock.testing.wait import wait_until
from flock_lab import cni, manifests
from flock_lab.bird import BirdProcess
from flock_lab.cni import Pod, Reply, Sandbox
from flock_lab.host import Host, Popen
from flock_lab.plan import UPLINK, NodePlan, node_commands
from flock_lab.shim import shim_path
from flock_lab.state import LabError, LabRecord, ProcessMark

MANIFESTS = "/etc/flock/manifests"
READY_LINE = "runtime ready"
READY_DEADLINE = 60.0


class Node(Host):
    """A node: ``start_agent``, ``start_bird``, then ``add`` and ``delete``."""

    def __init__(self, record: LabRecord, plan: NodePlan, mark: ProcessMark) -> None:
        super().__init__(record, plan.name, mark)
        self.plan = plan
        self.source: tuple[str, str] = ("--manifests", MANIFESTS)
        self.agent: Popen | None = None
        self._bird = BirdProcess(self, str(BIRD_CONFIG), str(BIRD_SOCKET))
        self._log_start = 0

    def set_up(self) -> None:
        """Addresses and the NodeConfig. Forwarding is left off and the shim uninstalled: both are the agent's."""
        self.sysctl(f"net/ipv6/conf/{UPLINK}/accept_dad", 0)
        self.batch(node_commands(self.plan))
        self.write_config()

    # Manifests

    def write_config(self, spec: Mapping[str, object] | None = None) -> None:
        """Write the node's NodeConfig; ``spec`` replaces fields of it."""
        self.write_manifest("nodeconfig", manifests.node_config(self.plan, spec))

    def write_manifest(self, name: str, text: str) -> None:
        write_atomic(self.path(f"{MANIFESTS}/{name}.yaml"), text.encode(), 0o644)

    def remove_manifest(self, name: str) -> None:
        self.path(f"{MANIFESTS}/{name}.yaml").unlink(missing_ok=True)

    # Daemons

    def start_agent(self, *options: str) -> None:
        """Start the agent without waiting for it."""
        log = self.log("agent")
        shim = shim_path()
        install = ["--install-shim", str(shim)] if shim else []
        self._log_start = log.stat().st_size if log.exists() else 0
        self.agent = self.spawn(sys.executable, "-m", "flock.agent.main", "--node", self.name,
                                *self.source, "--log-format", "json", *install, *options, log="agent")

    def agent_log(self) -> str:
        """What the agent has said since its last start."""
        with open(self.log("agent"), "rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def wait_ready(self, deadline: float = READY_DEADLINE) -> None:
        """Wait for the agent's ready line; an agent that ended instead is an error at once, with its last words."""
        wait_until(lambda: READY_LINE in self.agent_log() or self._ended(), deadline, f"the agent of {self.name}")
        if READY_LINE not in self.agent_log():
            raise LabError(f"the agent of {self.name} ended before it was ready", self.tail("agent"))

    def kill_agent(self) -> None:
        """End the agent as a crash would."""
        self._stop_agent(signal.SIGKILL, 10.0)

    def stop_agent(self, deadline: float = 20.0) -> int:
        """Ask the agent to end and hand back its exit code."""
        return self._stop_agent(signal.SIGTERM, deadline)

    def start_bird(self, *, recover: bool = False) -> None:
        """Start BIRD as its unit would: once the agent has written a configuration; ``recover`` is ``-R``."""
        wait_until(self.path(BIRD_CONFIG).exists, 20.0, f"{BIRD_CONFIG} in {self.name}")
        self._bird.start(recover=recover)

    def kill_bird(self) -> None:
        """End BIRD without a withdrawal, as a hitless restart does."""
        self._bird.kill()

    def birdc(self, *words: str) -> str:
        """Ask the node's BIRD, as an operator would."""
        return self._bird.ask(*words)

    def start(self) -> None:
        """Agent, then BIRD; both answer when this returns."""
        self.start_agent()
        self.wait_ready()
        self.start_bird()

    # Pods

    def sandbox(self, name: str, namespace: str = "default") -> Sandbox:
        """A network namespace that waits for its ADD, as a runtime makes one."""
        sandbox = Sandbox(namespace=namespace, name=name, netns=f"{namespace}-{name}")
        self.run("ip", "netns", "add", sandbox.netns)
        return sandbox

    def pod(self, name: str, namespace: str = "default", *, annotations: Mapping[str, str] | None = None,
            image: str = "registry.example/app:1", version: str = cni.VERSION) -> Pod:
        """A pod with a manifest and a network; both addresses, unless its annotations say otherwise."""
        sandbox = self.sandbox(name, namespace)
        self.write_manifest(f"pod-{sandbox.netns}", manifests.pod(
            namespace, name, uid=sandbox.uid, node=self.name, image=image, annotations=annotations))
        return Pod(sandbox=sandbox, result=self.add(sandbox, version).must(f"ADD of {namespace}/{name}"))

    def add(self, sandbox: Sandbox, version: str = cni.VERSION) -> Reply:
        return cni.call(self, sandbox.environment("ADD"), cni.netconf(self, version))

    def check(self, pod: Pod, version: str = cni.VERSION) -> Reply:
        extra = {"prevResult": {**pod.result, "cniVersion": version}}
        return cni.call(self, pod.sandbox.environment("CHECK"), cni.netconf(self, version, extra))

    def delete(self, pod: Pod | Sandbox, version: str = cni.VERSION) -> Reply:
        """DEL alone: the network namespace and the manifest stay, as for a runtime that is not done yet."""
        sandbox = pod.sandbox if isinstance(pod, Pod) else pod
        return cni.call(self, sandbox.environment("DEL"), cni.netconf(self, version))

    def remove(self, pod: Pod) -> None:
        """The whole end of a pod: DEL, its namespace, its manifest."""
        self.delete(pod).must(f"DEL of {pod.name}")
        self.run("ip", "netns", "del", pod.netns)
        self.remove_manifest(f"pod-{pod.netns}")

    def collect(self, *keep: Pod) -> Reply:
        """GC with these as the valid attachments."""
        return cni.call(self, cni.base_environment("GC"), cni.netconf(self, "1.1.0", cni.valid_attachments(keep)))

    def status(self) -> Reply:
        return cni.call(self, cni.base_environment("STATUS"), cni.netconf(self, "1.1.0"))

    def summaries_text(self) -> str:
        """The node's CIDRs in one line."""
        return " and ".join(str(self.plan.cidrs[family]) for family in FAMILIES)

    def _ended(self) -> bool:
        return self.agent is not None and self.agent.poll() is not None

    def _stop_agent(self, number: signal.Signals, deadline: float) -> int:
        if self.agent is None:
            raise LabError(f"no agent was started in {self.name}")
        self.agent.send_signal(number)
        code = self.await_exit(self.agent, "the agent", deadline)
        self.agent = None
        return code
