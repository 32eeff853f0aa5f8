"""A namespace of the cluster that a test lives in, and what is asked of the pods in it.

Invariant: when it is over its pods are gone from their nodes, so the next test finds what this one found.
"""

import json
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tests.kube.objects import PORT, Document

from flock.model.family import Address, Family, family_of, parse_address
from flock.testing.wait import WaitTimeout, wait_until
from flock_lab.host import Completed, Host
from flock_lab.kube.cluster import Cluster, condition
from flock_lab.kube.plan import in_url

READY = 60.0
GONE = 60.0
_PATHS = {"Pod": "/api/v1/{}/pods", "Service": "/api/v1/{}/services", "Deployment": "/apis/apps/v1/{}/deployments",
          "NetworkPolicy": "/apis/networking.k8s.io/v1/{}/networkpolicies"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPod:
    """A pod as the API showed it."""

    name: str
    node: str
    uid: str
    addresses: tuple[Address, ...]

    @classmethod
    def of(cls, document: Document) -> "RunningPod":
        status = document.get("status") or {}
        return cls(name=document["metadata"]["name"], node=document["spec"].get("nodeName", ""),
                   uid=document["metadata"]["uid"],
                   addresses=tuple(parse_address(entry["ip"]) for entry in status.get("podIPs") or []))

    def address(self, family: Family) -> Address:
        return next(address for address in self.addresses if family_of(address) is family)


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """One namespace."""

    cluster: Cluster
    name: str

    @classmethod
    @contextmanager
    def made(cls, cluster: Cluster, name: str, annotations: Mapping[str, str] | None = None) -> Iterator["Namespace"]:
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": name, "annotations": dict(annotations or {})}})
        made = cls(cluster=cluster, name=name)
        made.await_account()
        yield made
        made.empty()

    def await_account(self) -> None:
        """Without its service account no pod can be created in it."""
        account = self.path("/api/v1/{}/serviceaccounts") + "/default"
        wait_until(lambda: self.cluster.api.find(account), 20.0, f"the service account of {self.name}")

    def path(self, template: str) -> str:
        return template.format(f"namespaces/{self.name}")

    def create(self, document: Document) -> Document:
        return self.cluster.api.create(self.path(_PATHS[document["kind"]]), document)

    def find(self, kind: str, name: str) -> Document | None:
        return self.cluster.api.find(f"{self.path(_PATHS[kind])}/{name}")

    def delete(self, kind: str, name: str = "", grace: int | None = None) -> None:
        """One object, or all of that kind."""
        self.cluster.api.delete(f"{self.path(_PATHS[kind])}/{name}".rstrip("/"), grace)

    def empty(self) -> None:
        """Delete the namespace and wait until no node has a pod of it."""
        self.cluster.api.delete(f"/api/v1/namespaces/{self.name}")
        self.await_none()

    # Pods

    def pods(self) -> list[Document]:
        return self.cluster.api.items(self.path(_PATHS["Pod"]))

    def await_ready(self, count: int, deadline: float = READY) -> list[RunningPod]:
        """Wait until there are so many pods and all are Ready."""
        self._wait(lambda: [condition(pod, "Ready") for pod in self.pods()] == ["True"] * count, deadline,
                   f"{count} Ready pods")
        return [RunningPod.of(pod) for pod in self.pods()]

    def await_none(self, deadline: float = GONE) -> None:
        self._wait(lambda: not self.pods(), deadline, "no pod any more")

    def run(self, *documents: Document) -> list[RunningPod]:
        """Create pods and wait until they are Ready, in the order given."""
        for document in documents:
            self.create(document)
        names = [document["metadata"]["name"] for document in documents]
        return [self.await_pod(name) for name in names]

    def await_pod(self, name: str, deadline: float = READY) -> RunningPod:
        self._wait(lambda: condition(self.find("Pod", name), "Ready") == "True", deadline, f"{name} Ready")
        return RunningPod.of(self.find("Pod", name) or {})

    def execute(self, pod: RunningPod, *command: str, check: bool = True) -> Completed:
        return self.cluster.kubectl("exec", "--namespace", self.name, pod.name, "--", *command, check=check)

    def fetch(self, pod: RunningPod, address: Address, path: str = "/", port: int = PORT) -> str:
        """What a web server answers to a pod, "" for nothing."""
        # busybox's wget, linked statically in Debian 12, dies of SIGSEGV.
        request = f"printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' | nc -w 3 {address} {port}"
        answer = self.execute(pod, "sh", "-c", request, check=False).stdout
        return answer.partition("\r\n\r\n")[2] or answer.partition("\n\n")[2]

    def events(self, pod: str) -> list[str]:
        """The messages of a pod's Events."""
        query = f"?fieldSelector=involvedObject.name={pod}"
        found = self.cluster.api.items(self.path("/api/v1/{}/events") + query)
        return [str(event.get("message", "")) for event in found]

    def _wait(self, predicate: Callable[[], object], deadline: float, what: str) -> None:
        try:
            wait_until(predicate, deadline, what)
        except WaitTimeout as error:
            raise WaitTimeout(f"{error}\n{self._story()}") from error

    def _story(self) -> str:
        """What a person would look at next."""
        lines = []
        for pod in self.pods()[:10]:
            lines.append(f"{pod['metadata']['name']}: {json.dumps(pod.get('status'))[:1500]}")
            lines += [f"  {message[:300]}" for message in self.events(pod["metadata"]["name"])]
        return "\n".join(lines)


def fetch_from(host: Host, address: Address, port: int, path: str = "/") -> str:
    """What a web server answers to a program of a host."""
    def ask() -> str:
        with urllib.request.urlopen(f"http://{in_url(address)}:{port}{path}", timeout=5.0) as answer:
            return bytes(answer.read()).decode()
    return host.call(ask)
