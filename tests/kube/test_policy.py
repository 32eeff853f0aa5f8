"""NetworkPolicies of a real API server, enforced by an installed flock: pods, Services, probes, namespaces."""

from collections.abc import Iterator
from ipaddress import ip_address

import pytest
from tests.kube import objects
from tests.kube.namespaces import Namespace, RunningPod

from flock.model.family import Address
from flock.testing.wait import wait_until
from flock_lab.kube.cluster import Cluster, condition
from flock_lab.kube.plan import AGNHOST

pytestmark = [pytest.mark.cluster, pytest.mark.installed, pytest.mark.timeout(240)]

SOON = 20.0
WEB = {"app": "web"}


@pytest.fixture(scope="module")
def web(cluster: Cluster, shared_namespace: Namespace) -> list[RunningPod]:
    """A server on each node, behind one Service."""
    shared_namespace.create(objects.deployment("web", 2, objects.web(name="web")))
    shared_namespace.create(objects.service("web", cluster.options.families))
    return sorted(shared_namespace.await_ready(2), key=lambda pod: pod.node)


@pytest.fixture(scope="module")
def client(cluster: Cluster, shared_namespace: Namespace, web: list[RunningPod]) -> RunningPod:
    spec = objects.pod_spec(objects.web(), node=cluster.worker(1).name)
    (found,) = shared_namespace.run(objects.pod("client", spec, labels={"app": "client"}))
    assert web
    return found


@pytest.fixture
def policies(shared_namespace: Namespace) -> Iterator[Namespace]:
    yield shared_namespace
    shared_namespace.delete("NetworkPolicy")


def write(namespace: Namespace, name: str, **spec: object) -> None:
    namespace.create({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name},
                      "spec": {"podSelector": {"matchLabels": WEB}, **spec}})


def targets(namespace: Namespace, web: list[RunningPod]) -> list[tuple[Address, int]]:
    """Both pods, and the Service, by both families."""
    service = namespace.find("Service", "web") or {}
    services = [(ip_address(text), 80) for text in service["spec"]["clusterIPs"]]
    return [*((address, objects.PORT) for pod in web for address in pod.addresses), *services]


def must_become(namespace: Namespace, client: RunningPod, web: list[RunningPod], *, open_: bool) -> None:
    for address, port in targets(namespace, web):
        wait_until(lambda a=address, p=port: bool(namespace.fetch(client, a, "/hostname", p)) is open_,  # type: ignore[misc]
                   SOON, f"{address} port {port} {'open' if open_ else 'closed'}")


def test_R15_a_policy_closes_pods_and_services_and_leaves_probes_alone(
        policies: Namespace, client: RunningPod, web: list[RunningPod]) -> None:
    must_become(policies, client, web, open_=True)
    write(policies, "closed")
    must_become(policies, client, web, open_=False)
    for pod in policies.pods():
        assert condition(pod, "Ready") == "True"
        assert [entry["restartCount"] for entry in pod["status"]["containerStatuses"]] == [0]
    write(policies, "clients", ingress=[{"from": [{"podSelector": {"matchLabels": {"app": "client"}}}],
                                         "ports": [{"port": objects.PORT}]}])
    must_become(policies, client, web, open_=True)


def test_R15_a_namespaces_label_opens(
        cluster: Cluster, policies: Namespace, client: RunningPod, web: list[RunningPod]) -> None:
    write(policies, "friends", ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"friend": "true"}}}]}])
    must_become(policies, client, web, open_=False)
    path = f"/api/v1/namespaces/{policies.name}"
    cluster.api.merge(path, {"metadata": {"labels": {"friend": "true"}}})
    must_become(policies, client, web, open_=True)
    cluster.api.merge(path, {"metadata": {"labels": {"friend": None}}})
    must_become(policies, client, web, open_=False)


def test_R15_egress_of_a_client_is_judged_by_the_pods_port_not_the_services(
        policies: Namespace, client: RunningPod, web: list[RunningPod]) -> None:
    policies.create({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "out"},
                     "spec": {"podSelector": {"matchLabels": {"app": "client"}}, "policyTypes": ["Egress"],
                              "egress": [{"ports": [{"port": 80}]}]}})
    must_become(policies, client, web, open_=False)
    policies.delete("NetworkPolicy", "out")
    policies.create({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "out"},
                     "spec": {"podSelector": {"matchLabels": {"app": "client"}}, "policyTypes": ["Egress"],
                              "egress": [{"ports": [{"port": objects.PORT}]}]}})
    must_become(policies, client, web, open_=True)


def test_R15_a_pod_whose_policy_was_there_first_never_hears_anybody(
        cluster: Cluster, policies: Namespace, client: RunningPod) -> None:
    """Its first container, an initial one, asks at once, and gets no answer."""
    policies.create({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "alone"},
                     "spec": {"podSelector": {"matchLabels": {"app": "alone"}}, "policyTypes": ["Ingress", "Egress"]}})
    asks = " || ".join(f"nc -z -w 1 {address} {objects.PORT}" for address in client.addresses)
    first = {"name": "first", "image": AGNHOST, "command": ["sh", "-c", f"! ({asks})"]}
    spec = objects.pod_spec(objects.pause(), node=cluster.worker(2).name, initContainers=[first],
                            restartPolicy="Never")
    names = [f"alone-{number}" for number in range(5)]
    pods = policies.run(*(objects.pod(name, spec, labels={"app": "alone"}) for name in names))
    assert len(pods) == 5
    for name in names:
        policies.delete("Pod", name)
