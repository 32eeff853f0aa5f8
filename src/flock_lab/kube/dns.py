"""The cluster's DNS: CoreDNS as a Deployment on the pods' network, behind the Service that every pod is told to ask.

If the process dies on any line: what was applied is the cluster's, and ends with it.
"""

import json
from collections.abc import Iterator, Mapping

from flock.testing.wait import wait_until
from flock_lab.kube.api import Api, Document
from flock_lab.kube.cluster import Cluster
from flock_lab.kube.plan import COREDNS, DOMAIN, SERVICES, ClusterOptions

_NAMESPACE = "kube-system"
_NAME = "coredns"
_LABELS = {"k8s-app": "kube-dns"}
_READY = 120.0
_TENTH = 10
# No forward: nothing outside is ever asked.
_COREFILE = f"""\
.:53 {{
  errors
  health
  ready
  kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{
    pods insecure
    ttl 5
  }}
  reload
}}
"""


def install(cluster: Cluster) -> None:
    """Apply it, and wait until it answers; a cluster that has it already is left as it is."""
    cluster.apply(*(json.dumps(document) for document in documents(cluster.options)))
    wait_until(lambda: _is_ready(cluster.api), _READY, "a CoreDNS that is ready")


def _is_ready(api: Api) -> bool:
    deployment = api.get(f"/apis/apps/v1/namespaces/{_NAMESPACE}/deployments/{_NAME}")
    return bool(deployment.get("status", {}).get("readyReplicas"))


def documents(options: ClusterOptions) -> Iterator[Document]:
    """All that it consists of."""
    meta: Mapping[str, object] = {"name": _NAME, "namespace": _NAMESPACE}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
    yield {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": _NAME}, "rules": [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]}
    yield {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": _NAME},
           "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _NAME},
           "subjects": [{"kind": "ServiceAccount", **meta}]}
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"Corefile": _COREFILE}}
    yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": {
        "replicas": 2, "selector": {"matchLabels": _LABELS},
        "template": {"metadata": {"labels": _LABELS}, "spec": _pod()}}}
    yield {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kube-dns", "namespace": _NAMESPACE}, "spec": {
        "selector": _LABELS, "ipFamilyPolicy": "RequireDualStack",
        "clusterIP": str(options.dns_address()),
        "clusterIPs": [str(SERVICES[family][_TENTH]) for family in options.families],
        "ports": [{"name": name, "port": 53, "protocol": protocol}
                  for name, protocol in (("dns", "UDP"), ("dns-tcp", "TCP"))]}}


def _pod() -> Document:
    return {
        "serviceAccountName": _NAME, "dnsPolicy": "Default",
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                                       "whenUnsatisfiable": "ScheduleAnyway",
                                       "labelSelector": {"matchLabels": _LABELS}}],
        "containers": [{
            "name": _NAME, "image": COREDNS, "imagePullPolicy": "Never", "args": ["-conf", "/etc/coredns/Corefile"],
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}]}],
        "volumes": [{"name": "config", "configMap": {"name": _NAME}}],
    }
