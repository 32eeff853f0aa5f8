"""A real containerd on a lab node, driven by crictl as a kubelet drives it.

Invariant: root, state and sockets lie in the node's own /run, and every process of it in the node's PID namespace, so
whatever a test leaves (shims outlive containerd by design) ends with the node.
"""

import json
import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flock.model.family import Address, Family, parse_address
from flock.testing.wait import wait_until
from flock_lab import cgroups
from flock_lab.gobuild import built
from flock_lab.host import Completed, Popen
from flock_lab.images import PAUSE, TOOLS
from flock_lab.node import Node
from flock_lab.state import LabError

# restrict_oom_score_adj: without CAP_SYS_RESOURCE runc can't lower it ("can't get final child's PID from pipe").
# ip_pref: containerd would otherwise call the first IPv4 address the pod's own, whatever the order of the result.
_CNI = 'conf_dir = "/etc/cni/net.d"\nip_pref = "cni"'
_VERSION_2 = """
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
disable_apparmor = true
tolerate_missing_hugetlb_controller = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/opt/cni/bin"
{cni}
"""
_VERSION_3 = """
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/opt/cni/bin"]
{cni}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavour:
    """Which containerd: where its programs are, and the version of the configuration that it reads."""

    programs: Path
    config_version: int
    asks_status: bool

    @classmethod
    def debian(cls) -> "Flavour":
        """Debian's own: 1.6 on Debian 12, 1.7 on Debian 13."""
        program = shutil.which("containerd", path="/usr/bin")
        assert program is not None, "containerd isn't installed (scripts/setup cluster-packages)"
        return cls(programs=Path(program).parent, config_version=2, asks_status=False)

    @classmethod
    def current(cls) -> "Flavour":
        """The release that tests/cluster/go/containerd pins."""
        return cls(programs=built("containerd"), config_version=3, asks_status=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSandbox:
    """A sandbox that runs, under the names that a kubelet would give it."""

    id: str
    namespace: str
    name: str
    config: str
    addresses: tuple[Address, ...]

    def address(self, family: Family) -> Address:
        return next(address for address in self.addresses if address.version == int(family.suffix))


@dataclass(slots=True, kw_only=True)
class Containerd:
    """One containerd; ``start`` before anything else."""

    node: Node
    flavour: Flavour
    daemon: Popen | None = None
    _numbers: int = field(default=0)

    @property
    def name(self) -> str:
        return "containerd"

    def start(self, archive: Path) -> None:
        """Start it and import the images; it answers CRI when this returns."""
        self._write("config.toml", self._config())
        self.daemon = self.node.spawn(str(self.flavour.programs / "containerd"), "-c", self._path("config.toml"),
                                      log=self.name, env=self._environment())
        try:
            wait_until(lambda: self._crictl("version", check=False).returncode == 0, 20.0, "an answer of containerd")
        except AssertionError as error:
            raise LabError(f"containerd of {self.node.name} doesn't answer", self.node.tail(self.name)) from error
        self.node.run(str(self.flavour.programs / "ctr"), "--address", self._path("containerd.sock"),
                      "--namespace", "k8s.io", "images", "import", str(archive), env=self._environment())

    # What a kubelet asks

    def run_sandbox(self, name: str, namespace: str = "default", *, uid: str = "",
                    host_ports: Sequence[tuple[int, int]] = ()) -> PodSandbox:
        """RunPodSandbox; ``host_ports`` are pairs of host port and container port."""
        self._numbers += 1
        config = self._write(f"pod-{self._numbers}.json", json.dumps({
            "metadata": {"name": name, "namespace": namespace, "uid": uid or str(uuid.uuid4()), "attempt": 0},
            "hostname": name, "log_directory": self._path(f"logs/{namespace}_{name}"),
            "labels": {"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": namespace},
            "port_mappings": [{"protocol": 0, "host_port": host, "container_port": inside}
                              for host, inside in host_ports],
            "linux": {"cgroup_parent": cgroups.parent(self.node)},
        }))
        sandbox = self._crictl("runp", config).stdout.strip()
        status = json.loads(self._crictl("inspectp", sandbox).stdout)["status"]["network"]
        texts = [status["ip"], *(entry["ip"] for entry in status.get("additionalIps") or [])]
        return PodSandbox(id=sandbox, namespace=namespace, name=name, config=config,
                          addresses=tuple(parse_address(text) for text in texts if text))

    def run_container(self, sandbox: PodSandbox, *command: str) -> str:
        """CreateContainer and StartContainer in a sandbox; the container's ID."""
        config = self._write(f"container-{sandbox.id}.json", json.dumps({
            "metadata": {"name": "main"}, "image": {"image": TOOLS}, "log_path": "main.log",
            **({"command": list(command)} if command else {}), "linux": {},
        }))
        container = self._crictl("create", "--no-pull", sandbox.id, config, sandbox.config).stdout.strip()
        self._crictl("start", container)
        return container

    def execute(self, container: str, *command: str, check: bool = True) -> str:
        """ExecSync; what the command printed."""
        done = self._crictl("exec", "--sync", container, *command, check=check)
        return done.stdout

    def stop_sandbox(self, sandbox: PodSandbox) -> None:
        """StopPodSandbox: the network goes here."""
        self._crictl("stopp", sandbox.id)

    def remove_sandbox(self, sandbox: PodSandbox) -> None:
        self._crictl("rmp", "--force", sandbox.id)

    def network_condition(self) -> dict[str, Any]:
        """NetworkReady, of which a kubelet makes the Node's Ready."""
        conditions = json.loads(self._crictl("info").stdout)["status"]["conditions"]
        return next(condition for condition in conditions if condition["type"] == "NetworkReady")

    # Its own

    def _crictl(self, *words: str, check: bool = True) -> Completed:
        endpoint = f"unix://{self._path('containerd.sock')}"
        return self.node.run(str(built("crictl") / "crictl"), "--config", self._crictl_config(),
                             "--runtime-endpoint", endpoint, "--image-endpoint", endpoint, "--timeout", "60s",
                             *words, check=check, timeout=90.0, env=self._environment())

    def _crictl_config(self) -> str:
        # Without a file it looks in /etc and says so on stderr each time.
        path = self._path("crictl.yaml")
        if not self.node.path(path).exists():
            self._write("crictl.yaml", "debug: false\n")
        return path

    def _config(self) -> str:
        template = {2: _VERSION_2, 3: _VERSION_3}[self.flavour.config_version]
        head = (f'version = {self.flavour.config_version}\nroot = "{self._path("root")}"\n'
                f'state = "{self._path("state")}"\n[grpc]\naddress = "{self._path("containerd.sock")}"\n')
        return head + template.format(pause=PAUSE, cni=_CNI)

    def _path(self, name: str) -> str:
        return f"/run/test-{self.name}/{name}"

    def _write(self, name: str, text: str) -> str:
        path = self.node.path(self._path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return self._path(name)

    def _environment(self) -> dict[str, str]:
        """containerd finds its shim by PATH, and the one of its own release is meant."""
        return {"PATH": f"{self.flavour.programs}:{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"}
