"""A worker node of a cluster: containerd, kubelet and kube-proxy on a lab node.

Invariant: what they keep lies in memory of the node's own, and their containers run in its PID namespace: everything
ends with the node, but the cgroups (``flock_lab.cgroups``).

If the process dies on any line: see the invariant.
"""

import signal
from dataclasses import dataclass, field
from pathlib import Path

from flock.model.family import Address
from flock.testing.wait import wait_until
from flock_lab import cgroups
from flock_lab.host import Popen
from flock_lab.kube import documents, programs
from flock_lab.kube.documents import CONTAINERD_SOCKET, KUBELET_FOLDER, STATIC_PODS
from flock_lab.kube.plan import FOLDER, ClusterOptions
from flock_lab.node import Node
from flock_lab.state import LabError

_STORE = "/run/containerd-lab"
_READY = 30.0
_IMPORT = 120.0
_STOP = 20.0

# Mounts of a volume or a container are made in one place and looked for in others: propagation, where / is a mount
# point (in a chroot it isn't). The kubelet sets these sysctls, which are the machine's: it gets copies to write to.
_SETUP = f"""
set -eu
for dir in {KUBELET_FOLDER} /var/log {FOLDER}; do
  mkdir -p "$dir"
  mount -t tmpfs -o mode=755 lab "$dir"
done
mkdir -p {STATIC_PODS} /run/.lab/sysctl
for name in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys \\
    kernel/keys/root_maxbytes; do
  copy=/run/.lab/sysctl/$(echo "$name" | tr / .)
  cat "/proc/sys/$name" >"$copy"
  mount --bind "$copy" "/proc/sys/$name"
done
mount --make-rshared / 2>/dev/null || for dir in /run {KUBELET_FOLDER}; do mount --make-rshared "$dir"; done
"""


@dataclass(slots=True, kw_only=True)
class Worker:
    """``set_up``, ``start_containerd``, ``import_images``, ``start_kubelet``, ``start_proxy``, in this order."""

    node: Node
    options: ClusterOptions
    kubelet_changes: dict[str, object] = field(default_factory=dict)
    _daemons: dict[str, Popen] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def addresses(self) -> list[Address]:
        """The node's own, the primary family first."""
        return [self.node.plan.address(family) for family in self.options.families]

    def set_up(self, kubelet: str, proxy: str) -> None:
        """Mounts and files; the arguments are kubeconfigs."""
        self.node.run("sh", "-c", _SETUP)
        self.write(f"{FOLDER}/kubelet.kubeconfig", kubelet)
        self.write(f"{FOLDER}/proxy.kubeconfig", proxy)
        self.write(f"{FOLDER}/resolv.conf", documents.resolv_conf([self.options.dns_address()]))
        self.write(f"{FOLDER}/proxy.json", documents.proxy(self.options, self.name))
        self.write(f"{FOLDER}/containerd.toml", documents.containerd(_STORE))
        self.node.path(f"{documents.REGISTRIES}/_default").mkdir(parents=True, exist_ok=True)
        self.write(f"{documents.REGISTRIES}/_default/hosts.toml", documents.no_registry())

    def write(self, inside: str, text: str) -> None:
        self.node.path(inside).write_text(text)

    # Daemons

    def start_containerd(self) -> None:
        self._spawn("containerd", programs.containerd("containerd"), "-c", f"{FOLDER}/containerd.toml")

    def await_containerd(self) -> None:
        daemon = self._daemons["containerd"]
        try:
            wait_until(lambda: self._ctr("version", check=False) == 0 or daemon.poll() is not None, _READY)
        except AssertionError as error:
            raise LabError(f"containerd of {self.name} doesn't answer", self.node.tail("containerd")) from error
        if daemon.poll() is not None:
            raise LabError(f"containerd of {self.name} ended", self.node.tail("containerd"))

    def import_images(self, archive: Path) -> None:
        self._ctr("images", "import", str(archive), check=True)

    def pin(self, image: str) -> str:
        """Let an image be known by its digest, as one is that was pulled by it; the reference with the digest."""
        listed = self.node.run(*self._ctr_argv("images", "list", f"name=={image}"), env=self._environment()).stdout
        digest = next(word for word in listed.split() if word.startswith("sha256:"))
        reference = f"{image.rpartition(':')[0]}@{digest}"
        self._ctr("images", "tag", "--force", image, reference, check=True)
        return reference

    def start_kubelet(self) -> None:
        self.write(f"{FOLDER}/kubelet.json",
                   documents.kubelet(self.options, cgroups.parent(self.node), self.kubelet_changes))
        self._spawn("kubelet", *programs.daemon("kubelet"), f"--config={FOLDER}/kubelet.json",
                    f"--kubeconfig={FOLDER}/kubelet.kubeconfig", f"--hostname-override={self.name}",
                    f"--node-ip={','.join(map(str, self.addresses))}", f"--cert-dir={KUBELET_FOLDER}/pki",
                    f"--root-dir={KUBELET_FOLDER}")

    def start_proxy(self) -> None:
        self._spawn("kube-proxy", *programs.daemon("kube-proxy"), f"--config={FOLDER}/proxy.json")

    def kill(self, name: str) -> None:
        """End a daemon as a crash would; containers outlive containerd and kubelet."""
        process = self._daemons.pop(name)
        process.send_signal(signal.SIGKILL)
        self.node.await_exit(process, name, _STOP)

    def containers(self) -> list[str]:
        """The IDs of all containers, sandboxes too."""
        return self.node.run(*self._ctr_argv("containers", "list", "--quiet"), env=self._environment()).stdout.split()

    def _ctr(self, *words: str, check: bool) -> int:
        done = self.node.run(*self._ctr_argv(*words), check=check, timeout=_IMPORT, env=self._environment())
        return done.returncode

    @staticmethod
    def _ctr_argv(*words: str) -> list[str]:
        return [programs.containerd("ctr"), "--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", *words]

    def _spawn(self, name: str, *argv: str) -> None:
        self._daemons[name] = self.node.spawn(*argv, log=name, env=self._environment())

    @staticmethod
    def _environment() -> dict[str, str]:
        return {"PATH": programs.path()}
