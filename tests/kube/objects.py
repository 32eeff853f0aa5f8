"""The objects that tests create, as plain documents. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from flock.model.family import Family
from flock_lab.kube.plan import AGNHOST, PAUSE

Document = dict[str, Any]
PORT = 8080
_QUICK = {"periodSeconds": 1, "timeoutSeconds": 2}


def probe(path: str = "/healthz", port: int = PORT, **more: object) -> Document:
    return {"httpGet": {"path": path, "port": port}, **_QUICK, **more}


def web(*, host_port: int | None = None, **more: object) -> Document:
    """agnhost's web server, Ready when it answers."""
    port: Document = {"containerPort": PORT} | ({"hostPort": host_port} if host_port else {})
    return {"name": "main", "image": AGNHOST, "args": ["netexec", f"--http-port={PORT}"], "ports": [port],
            "readinessProbe": probe(), **more}


def pause() -> Document:
    return {"name": "main", "image": PAUSE}


def pod_spec(container: Document, *, node: str | None = None, **more: object) -> Document:
    """``node`` binds it without asking the scheduler."""
    return {"containers": [container], "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False,
            **({"nodeName": node} if node else {}), **more}


def pod(name: str, spec: Document, *, annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None) -> Document:
    metadata: Document = {"name": name, "annotations": dict(annotations or {}), "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def deployment(name: str, replicas: int, container: Document) -> Document:
    """Its pods are spread evenly over the nodes and labelled ``app: NAME``."""
    labels = {"app": name}
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
              "labelSelector": {"matchLabels": labels}}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(container, topologySpreadConstraints=[spread])}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}}


def service(name: str, families: Sequence[Family], **more: object) -> Document:
    """A dual-stack Service for the pods of the deployment of that name."""
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {
        "selector": {"app": name}, "ports": [{"port": 80, "targetPort": PORT}],
        "ipFamilyPolicy": "RequireDualStack", "ipFamilies": [family.label for family in families], **more}}
