"""Speaking CNI to a lab node as a runtime does: the shim is exec'ed inside the node with environment and netconf.

Invariant: nothing of flock is called but its program, so what a test sees is what a runtime sees.

If the process dies on any line: a shim that runs ends by its own deadline.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from typing import Any

from flock.model.family import Address, Family
from flock.model.ownership import CNI_BIN_DIR, CNI_CONF_DIR, CONFLIST_NAME, SHIM_NAME
from flock_lab.host import Host
from flock_lab.state import LabError

VERSION = "1.0.0"
_LIMIT = 65.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """What a runtime knows of a pod before its network: names, and a network namespace."""

    namespace: str
    name: str
    netns: str
    container_id: str = field(default_factory=lambda: sha256(uuid.uuid4().bytes).hexdigest())
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    ifname: str = "eth0"

    def environment(self, verb: str) -> dict[str, str]:
        """The environment of a call about this sandbox."""
        args = {"IgnoreUnknown": "1", "K8S_POD_NAMESPACE": self.namespace, "K8S_POD_NAME": self.name,
                "K8S_POD_INFRA_CONTAINER_ID": self.container_id, "K8S_POD_UID": self.uid}
        return {**base_environment(verb), "CNI_CONTAINERID": self.container_id, "CNI_IFNAME": self.ifname,
                "CNI_NETNS": f"/run/netns/{self.netns}",
                "CNI_ARGS": ";".join(f"{key}={value}" for key, value in args.items())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the shim ended with: its exit code and what it printed."""

    code: int
    stdout: str

    @property
    def result(self) -> dict[str, Any]:
        """The JSON that it printed, {} for nothing."""
        return json.loads(self.stdout) if self.stdout.strip() else {}

    def must(self, what: str) -> dict[str, Any]:
        """The result of a call that has to succeed."""
        if self.code:
            raise LabError(f"{what} failed", self.stdout.strip() or f"exit code {self.code}")
        return self.result


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that has its network: the sandbox, and what ADD returned."""

    sandbox: Sandbox
    result: dict[str, Any]

    @property
    def netns(self) -> str:
        return self.sandbox.netns

    @property
    def name(self) -> str:
        return f"{self.sandbox.namespace}/{self.sandbox.name}"

    @property
    def host_ifname(self) -> str:
        return str(self.result["interfaces"][0]["name"])

    def interfaces(self) -> list[IPv4Interface | IPv6Interface]:
        return [ip_interface(entry["address"]) for entry in self.result["ips"]]

    def address(self, family: Family) -> Address:
        """Its address of one family; LabError where it has none."""
        for interface in self.interfaces():
            if interface.version == int(family.suffix):
                return interface.ip
        raise LabError(f"{self.name} has no {family.label} address", json.dumps(self.result))


def base_environment(verb: str) -> dict[str, str]:
    return {"CNI_COMMAND": verb, "CNI_PATH": str(CNI_BIN_DIR)}


def netconf(host: Host, version: str = VERSION, extra: Mapping[str, object] | None = None) -> dict[str, object]:
    """The first plugin's configuration, built from the conflist on the node as libcni builds it."""
    conflist = json.loads(host.path(CNI_CONF_DIR / CONFLIST_NAME).read_bytes())
    return {**conflist["plugins"][0], "cniVersion": version, "name": conflist["name"], **(extra or {})}


def call(host: Host, environment: Mapping[str, str], config: Mapping[str, object]) -> Reply:
    """Exec the shim inside the node."""
    done = host.run(str(CNI_BIN_DIR / SHIM_NAME), input=json.dumps(config), env=environment, check=False,
                    timeout=_LIMIT)
    return Reply(code=done.returncode, stdout=done.stdout)


def valid_attachments(pods: Sequence[Pod]) -> dict[str, object]:
    """What GC is told to keep."""
    return {"cni.dev/valid-attachments": [
        {"containerID": pod.sandbox.container_id, "ifname": pod.sandbox.ifname} for pod in pods]}
