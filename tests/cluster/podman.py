"""A real podman with its CNI backend on a lab node, driven by its command line.

Invariant: storage, run folder and locks lie in the node's own /run; conmon and the containers end with the node.
"""

import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from flock.model.family import Address, Family, parse_address
from flock.model.ownership import CNI_BIN_DIR, CNI_CONF_DIR
from flock_lab import cgroups
from flock_lab.images import TOOLS
from flock_lab.node import Node

_FOLDER = "/run/test-podman"
LAST_WITH_CNI = 4
"""From version 5 on podman is built with netavark alone."""

# lock_type: the other kind is in /dev/shm, which the node shares with the machine.
_CONFIG = f"""
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
[network]
network_backend = "cni"
network_config_dir = "{CNI_CONF_DIR}"
cni_plugin_dirs = ["{CNI_BIN_DIR}"]
"""
# Its default limits are higher than a process without CAP_SYS_RESOURCE may ask for.
_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")


def version() -> int:
    """The major version that is installed; 0 for none."""
    try:
        done = subprocess.run(["podman", "--version"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return 0
    match = re.search(r"version (\d+)\.", done.stdout)
    return int(match[1]) if match else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Podman:
    """podman, which has no daemon; ``set_up`` before anything else."""

    node: Node
    _environment: dict[str, str] = field(default_factory=lambda: {"CONTAINERS_CONF": f"{_FOLDER}/containers.conf"})

    def set_up(self, archive: Path) -> None:
        """Its configuration, and the images."""
        self._write(f"{_FOLDER}/containers.conf", _CONFIG)
        self._write("/etc/containers/policy.json", json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
        self._podman("load", "--quiet", "--input", str(archive))

    def run_container(self, name: str, network: str) -> None:
        self._podman("run", "--detach", "--name", name, "--network", network, "--pull", "never",
                     "--cgroup-parent", cgroups.parent(self.node), *_LIMITS, TOOLS)

    def address(self, name: str, family: Family, network: str) -> Address:
        found = json.loads(self._podman("inspect", name))[0]["NetworkSettings"]["Networks"][network]
        return parse_address(found["GlobalIPv6Address" if family is Family.IPV6 else "IPAddress"])

    def execute(self, name: str, *command: str) -> str:
        return self._podman("exec", name, *command)

    def stop(self, name: str) -> None:
        # The container's process is a sleep that is PID 1: it has no handler, so the kernel drops its SIGTERM.
        self._podman("stop", "--time", "0", name)

    def remove(self, name: str) -> None:
        self._podman("rm", "--force", "--time", "0", name)

    def _podman(self, *words: str) -> str:
        return self.node.run(
            "podman", "--root", f"{_FOLDER}/root", "--runroot", f"{_FOLDER}/runroot", "--tmpdir", f"{_FOLDER}/tmp",
            "--storage-driver", "vfs", *words, env=self._environment, timeout=60.0).stdout

    def _write(self, path: str, text: str) -> None:
        target = self.node.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
