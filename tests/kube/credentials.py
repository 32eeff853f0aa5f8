"""A service account's tokens as the agent's pod has them: short-lived, in a file, void once their object is gone."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from flock.system.files import write_atomic
from flock_lab.kube.cluster import Cluster
from flock_lab.kube.networks import KUBECONFIG
from flock_lab.node import Node

NAMESPACE = "flock-system"
ACCOUNT = "flock-agent"
TOKEN = "/etc/flock/token"
LEAST_SECONDS = 600
_DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
_OBJECTS = f"/api/v1/namespaces/{NAMESPACE}"


@dataclass(slots=True, kw_only=True)
class BoundTokens:
    """Tokens of the account that ``deploy`` gives an agent, each bound to a Secret: it ends with that."""

    cluster: Cluster
    _issued: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, cluster: Cluster) -> "BoundTokens":
        cluster.apply(*((_DEPLOY / name).read_text() for name in ("namespace.yaml", "rbac.yaml")))
        return cls(cluster=cluster)

    def issue(self, name: str) -> str:
        secret = self.cluster.api.create(f"{_OBJECTS}/secrets", {"metadata": {"name": name}})
        self._issued.append(name)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
            "expirationSeconds": LEAST_SECONDS,
            "boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": name, "uid": secret["metadata"]["uid"]}}}
        answer = self.cluster.api.create(f"{_OBJECTS}/serviceaccounts/{ACCOUNT}/token", request)
        return str(answer["status"]["token"])

    def revoke(self, name: str) -> None:
        self.cluster.api.delete(f"{_OBJECTS}/secrets/{name}")

    def close(self) -> None:
        for name in self._issued:
            self.revoke(name)


def put_token(node: Node, token: str) -> None:
    """As the kubelet does: another file under the same name."""
    write_atomic(node.path(TOKEN), token.encode(), 0o600)


def use_token_file(node: Node) -> None:
    """Let the node's next agent read its token from the file."""
    config = json.loads(node.path(KUBECONFIG).read_text())
    config["users"] = [{"name": "user", "user": {"tokenFile": TOKEN}}]
    path = f"{KUBECONFIG}-by-file"
    node.path(path).write_text(json.dumps(config))
    node.source = ("--kubeconfig", path)
