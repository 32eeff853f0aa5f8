"""A whole Kubernetes cluster on the lab's nodes: real daemons, real containers, pods with a real network.

``with Cluster.up("name") as cluster:`` makes it and takes it down. Every node is Ready when ``up`` returns.

If the process dies on any line: ``Cluster.down(name)`` (``python -m flock_lab.kube down NAME``) takes the rest away.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from flock.testing.wait import WaitTimeout, wait_until
from flock_lab import cgroups
from flock_lab.host import Completed
from flock_lab.kube import programs
from flock_lab.kube.api import Api, Document
from flock_lab.kube.archives import archive
from flock_lab.kube.control import ControlPlane
from flock_lab.kube.installed import Installed
from flock_lab.kube.networks import Flock, Network, Reference
from flock_lab.kube.plan import FOLDER, PROXY, SPARE, ClusterOptions, PodNetwork, kubelet_user
from flock_lab.kube.worker import Worker
from flock_lab.lab import Lab
from flock_lab.state import LabError

_READY = 90.0
_CGROUPS = 10.0


class Cluster:
    """A cluster that is up."""

    def __init__(self, lab: Lab, options: ClusterOptions, control: ControlPlane, workers: Sequence[Worker]) -> None:
        self.lab = lab
        self.options = options
        self.control = control
        self.workers = tuple(workers)
        self._network: Network = Flock()
        self._images: tuple[Path, ...] = ()

    @property
    def api(self) -> Api:
        return self.control.api

    @classmethod
    def up(cls, name: str, options: ClusterOptions, *, network: Network | None = None,
           stay: bool = False) -> "Cluster":
        """Make one; ``network`` is the option's own, unless another is given."""
        images = archive()
        lab = Lab.up(name, options.nodes, extra=tuple(SPARE.values()), stay=stay)
        try:
            control = ControlPlane.make(lab.router, options)
            workers = [Worker(node=node, options=options) for node in lab.nodes]
            cluster = cls(lab, options, control, workers)
            cluster._start(network or _network(options), images)
        except BaseException as error:
            error.add_note(_last_words(lab))
            lab.close()
            _remove_cgroups(name)
            raise
        return cluster

    @staticmethod
    def down(name: str) -> bool:
        """Take one down by its name, whoever made it; False where there is none."""
        existed = Lab.down(name)
        _remove_cgroups(name)
        return existed

    def reboot(self, number: int) -> Worker:
        """Cut a node's power and start it again: what lay in memory is gone, its pods are still the API server's."""
        former = self.worker(number)
        worker = Worker(node=self.lab.reboot(number), options=self.options)
        self.workers = tuple(worker if one is former else one for one in self.workers)
        worker.set_up(self.control.kubeconfig(kubelet_user(worker.name)), self.control.kubeconfig(PROXY))
        self._network.boot(worker.node, self.control)
        worker.start_containerd()
        worker.await_containerd()
        for images in self._images:
            worker.import_images(images)
        worker.start_kubelet()
        worker.start_proxy()
        return worker

    def _start(self, network: Network, images: Path) -> None:
        """The slow things side by side: the API server starts while images are imported."""
        self._network, self._images = network, (images, *network.images())
        for worker in self.workers:
            worker.set_up(self.control.kubeconfig(kubelet_user(worker.name)), self.control.kubeconfig(PROXY))
        for worker in self.workers:
            network.boot(worker.node, self.control)
        network.prepare(self.lab, self.control)
        self.control.start_api()
        for worker in self.workers:
            worker.start_containerd()
        for worker in self.workers:
            worker.await_containerd()
            for one in self._images:
                worker.import_images(one)
        self.control.await_api()
        self.control.start_controllers()
        for worker in self.workers:
            worker.start_kubelet()
            worker.start_proxy()
        network.start(self.lab, self.control)
        for worker in self.workers:
            self.await_node(worker.name)
        wait_until(lambda: self.api.find("/api/v1/namespaces/default/serviceaccounts/default"), _READY,
                   "the default service account")

    def worker(self, number: int) -> Worker:
        """The worker of that number; the first is 1."""
        return self.workers[number - 1]

    def kubectl(self, *words: str, input: str | None = None, check: bool = True, timeout: float = 60.0) -> Completed:
        """Run kubectl as the administrator."""
        return self.lab.router.run(programs.kubectl(), "--kubeconfig", f"{FOLDER}/admin.kubeconfig", *words,
                                   input=input, check=check, timeout=timeout, env={"HOME": "/run"})

    def apply(self, *documents: str) -> None:
        """``kubectl apply`` of manifests as text."""
        self.kubectl("apply", "--filename", "-", input="\n---\n".join(documents))

    def node(self, name: str) -> Document | None:
        return self.api.find(f"/api/v1/nodes/{name}")

    def await_node(self, name: str, ready: str = "True", deadline: float = _READY) -> None:
        """Wait until a node's Ready condition has that status."""
        try:
            wait_until(lambda: condition(self.node(name), "Ready") == ready, deadline)
        except WaitTimeout as error:
            tail = next(worker.node.tail("kubelet") for worker in self.workers if worker.name == name)
            raise LabError(f"Ready of {name} isn't {ready} after {deadline:g} s", tail) from error

    def leave(self) -> None:
        """Let go of a cluster that is to stay."""
        self.api.close()
        self.lab.leave()

    def close(self) -> None:
        """Take it down: all processes end at once, so none waits for another."""
        self.api.close()
        self.lab.close()
        _remove_cgroups(self.lab.record.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def condition(document: Document | None, kind: str) -> str | None:
    """The status of an object's condition; None where it has none of that type."""
    for entry in ((document or {}).get("status") or {}).get("conditions") or []:
        if entry["type"] == kind:
            return str(entry["status"])
    return None


def _last_words(lab: Lab) -> str:
    """The ends of all logs, which go with the lab."""
    return "\n".join(f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-6:])
                     for log in sorted(lab.record.folder.glob("*.log")))


def _network(options: ClusterOptions) -> Network:
    match options.network:
        case PodNetwork.FLOCK:
            return Flock()
        case PodNetwork.INSTALLED:
            return Installed()
        case PodNetwork.PTP:
            return Reference(options.families)


def _remove_cgroups(name: str) -> None:
    """What the kernel still holds for a moment goes a moment later."""
    with contextlib.suppress(WaitTimeout):
        wait_until(lambda: not cgroups.remove_all(name), _CGROUPS)
        return
    raise LabError(f"cgroups of {name} are left", "; ".join(cgroups.remove_all(name)))
