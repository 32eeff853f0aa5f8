"""flock as users install it: ``kubectl apply -k deploy/kubernetes`` with the images that ``make image`` builds."""

import json

import pytest
from tests.kube import objects
from tests.kube.namespaces import Namespace

from flock.model.ownership import CNI_BIN_DIR, CNI_CONF_DIR, CONFLIST_NAME
from flock.testing.wait import wait_until
from flock_lab.kube.cluster import Cluster, condition
from flock_lab.kube.installed import DEPLOY, NAMESPACE

pytestmark = [pytest.mark.cluster, pytest.mark.installed]

DEADLINE = 60.0
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:flock-agent"


def pods(cluster: Cluster, component: str) -> list[objects.Document]:
    selector = f"labelSelector=app.kubernetes.io/component={component}"
    return cluster.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods?{selector}")


def node_of(pod: objects.Document) -> str:
    """Where a pod is; "" for one that the scheduler hasn't placed yet."""
    found: str = pod["spec"].get("nodeName", "")
    return found


def logs(cluster: Cluster, component: str) -> str:
    return "".join(cluster.kubectl("logs", "--namespace", NAMESPACE, pod["metadata"]["name"], "--all-containers").stdout
                   for pod in pods(cluster, component))


def may(cluster: Cluster, verb: str, resource: str, user: str = ACCOUNT) -> bool:
    """What the API server would allow; ``resource`` is ``NAME[.GROUP][/SUBRESOURCE]``."""
    whole, _, subresource = resource.partition("/")
    name, _, group = whole.partition(".")
    review = cluster.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": {
        "user": user, "resourceAttributes": {
            "verb": verb, "group": group, "resource": name, "subresource": subresource}}})
    return bool(review["status"]["allowed"])


def test_every_node_has_an_agent_and_a_bird_and_is_ready(cluster: Cluster) -> None:
    for component in ("agent", "bird"):
        found = pods(cluster, component)
        assert sorted(node_of(pod) for pod in found) == [worker.name for worker in cluster.workers]
        wait_until(lambda component=component: all(  # type: ignore[misc]
            condition(pod, "Ready") == "True" for pod in pods(cluster, component)), DEADLINE, f"{component} Ready")
    for worker in cluster.workers:
        assert condition(cluster.node(worker.name), "Ready") == "True"
        wait_until(lambda worker=worker: condition(cluster.node(worker.name), "NetworkUnavailable") == "False",  # type: ignore[misc]
                   DEADLINE, "R6")


def test_the_image_brings_the_programs_that_the_conflist_names(cluster: Cluster) -> None:
    for worker in cluster.workers:
        conflist = json.loads(worker.node.path(CNI_CONF_DIR / CONFLIST_NAME).read_text())
        assert [plugin["type"] for plugin in conflist["plugins"]] == ["flock", "portmap", "bandwidth"]
        assert "1.1.0" in conflist["cniVersions"]
        for name in ("flock", "portmap", "bandwidth", "loopback"):
            assert worker.node.path(CNI_BIN_DIR / name).stat().st_mode & 0o777 == 0o755


def test_nothing_is_forbidden_to_the_agent(cluster: Cluster, namespace: Namespace) -> None:
    """A refused pod makes it use the last of its verbs."""
    namespace.create(objects.pod("wrong", objects.pod_spec(objects.pause(), node="node-1"),
                                 annotations={"flock.fritzlab.net/ipv6": "maybe"}))
    wait_until(lambda: any("maybe" in message for message in namespace.events("wrong")), DEADLINE, "the Event")
    said = logs(cluster, "agent")
    assert "forbidden" not in said.lower(), said[-2000:]
    namespace.delete("Pod", "wrong", grace=0)


@pytest.mark.parametrize(("verb", "resource"), [
    ("get", "secrets"), ("list", "secrets"), ("create", "pods"), ("delete", "pods"), ("update", "nodes"),
    ("patch", "nodes"), ("patch", "nodeconfigs.flock.fritzlab.net"), ("delete", "nodeconfigs.flock.fritzlab.net"),
    ("patch", "pods/status"), ("create", "pods/exec"), ("list", "configmaps"), ("delete", "events"),
])
def test_the_agent_may_do_nothing_that_it_doesnt_do(cluster: Cluster, verb: str, resource: str) -> None:
    assert not may(cluster, verb, resource)


@pytest.mark.parametrize(("verb", "resource"), [
    ("watch", "pods"), ("get", "pods"), ("watch", "namespaces"), ("watch", "nodes"), ("patch", "nodes/status"),
    ("watch", "nodeconfigs.flock.fritzlab.net"), ("patch", "nodeconfigs.flock.fritzlab.net/status"),
    ("create", "events"), ("patch", "events"),
])
def test_the_agent_may_do_what_it_does(cluster: Cluster, verb: str, resource: str) -> None:
    assert may(cluster, verb, resource)


def test_bird_has_no_account_and_the_roots_are_read_only(cluster: Cluster) -> None:
    for pod in [*pods(cluster, "agent"), *pods(cluster, "bird")]:
        for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", []):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert not container.get("ports"), "two agents share a node during an upgrade"
    for pod in pods(cluster, "bird"):
        assert "serviceaccount" not in json.dumps(pod["spec"].get("volumes"))
        assert not pod["spec"]["containers"][0]["securityContext"].get("privileged")


@pytest.mark.parametrize("folder", ["kubernetes", "k3s", "clean"])
def test_every_folder_of_manifests_is_taken_by_the_api_server(cluster: Cluster, folder: str) -> None:
    said = cluster.kubectl("apply", "--dry-run=server", "--kustomize", str(DEPLOY.parent / folder)).stdout
    assert "daemonset.apps/flock-" in said


def test_the_k3s_folder_changes_the_hosts_folders_and_nothing_else(cluster: Cluster) -> None:
    plain, k3s = (cluster.kubectl("kustomize", str(DEPLOY.parent / folder)).stdout.splitlines()
                  for folder in ("kubernetes", "k3s"))
    assert [line.strip() for line in k3s if line not in plain] == [
        "path: /var/lib/rancher/k3s/data/cni", "path: /var/lib/rancher/k3s/agent/etc/cni/net.d"]
    assert len(plain) == len(k3s)
