"""flock as its users have it: the images, and ``kubectl apply -k deploy/kubernetes``. Nothing runs beside the cluster.

If the process dies on any line: all of it is in the hosts' namespaces.
"""

from collections.abc import Sequence
from pathlib import Path

import yaml

from flock.testing.wait import wait_until
from flock_lab import image, manifests
from flock_lab.kube import programs
from flock_lab.kube.control import ControlPlane
from flock_lab.kube.networks import NODE_CONFIGS, api_routes, has_defaults
from flock_lab.kube.plan import FOLDER, PORT
from flock_lab.lab import Lab
from flock_lab.node import Node

DEPLOY = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes"
NAMESPACE = "flock-system"
LABEL = "flock.fritzlab.net/agent"
_NODES = "/api/v1/nodes"
_READY = 90.0


class Installed:
    """A ``Network`` for ``Cluster.up``."""

    def images(self) -> Sequence[Path]:
        return image.archives()

    def boot(self, node: Node, control: ControlPlane) -> None:  # noqa: ARG002 - others need it
        node.batch(api_routes(node))

    def prepare(self, lab: Lab, control: ControlPlane) -> None:
        """Nothing more."""

    def start(self, lab: Lab, control: ControlPlane) -> None:
        """Apply, give every node its NodeConfig and its label, and wait until the router's routes are there."""
        self.apply(lab, control)
        for node in lab.nodes:
            self.adopt(node, control)
        for node in lab.nodes:
            self.await_routes(node)

    def apply(self, lab: Lab, control: ControlPlane) -> None:
        """What an operator applies; no node runs flock yet."""
        lab.router.start_bird()
        kubectl(lab, "apply", "--kustomize", str(DEPLOY))
        # No ClusterIP can be reached before BGP has brought a default route (docs/install-kubernetes.md).
        kubectl(lab, "set", "env", "daemonset/flock-agent", f"--namespace={NAMESPACE}", "--containers=agent",
                f"KUBERNETES_SERVICE_HOST={control.options.api_address}", f"KUBERNETES_SERVICE_PORT={PORT}")
        crd = "customresourcedefinition/nodeconfigs.flock.fritzlab.net"
        kubectl(lab, "wait", "--for=condition=Established", "--timeout=30s", crd)

    def adopt(self, node: Node, control: ControlPlane) -> None:
        """A NodeConfig and the label: from now on that node is flock's (R16)."""
        wait_until(lambda: control.api.find(NODE_CONFIGS) is not None, 20.0, "the CRD's objects")
        control.api.create(NODE_CONFIGS, yaml.safe_load(manifests.node_config(node.plan)))
        wait_until(lambda: control.api.find(f"{_NODES}/{node.name}"), _READY, f"the Node {node.name}")
        control.api.merge(f"{_NODES}/{node.name}", {"metadata": {"labels": {LABEL: ""}}})

    def await_routes(self, node: Node) -> None:
        """Wait until its BIRD has learned the router's default routes."""
        wait_until(lambda: has_defaults(node), _READY, f"the default routes of {node.name}")


def kubectl(lab: Lab, *words: str) -> str:
    """Run kubectl as the administrator, before there is a ``Cluster`` to ask."""
    return lab.router.run(programs.kubectl(), "--kubeconfig", f"{FOLDER}/admin.kubeconfig", *words, timeout=60.0,
                          env={"HOME": "/run"}).stdout
