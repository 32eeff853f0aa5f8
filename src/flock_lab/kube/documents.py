"""The configuration files of Kubernetes' daemons and of containerd, as text. Pure."""

import base64
import json
from collections.abc import Mapping, Sequence

from flock.model.family import Address, Family
from flock_lab.kube.plan import DOMAIN, FOLDER, PAUSE, ClusterOptions
from flock_lab.plan import NodePlan

KUBELET_FOLDER = "/var/lib/kubelet"
REGISTRIES = f"{FOLDER}/registries"
STATIC_PODS = f"{FOLDER}/manifests"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"


def kubeconfig(server: str, authority: str, token: str) -> str:
    """Access to the cluster by a token."""
    data = base64.b64encode(authority.encode()).decode()
    return _json({
        "apiVersion": "v1", "kind": "Config", "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {"server": server, "certificate-authority-data": data}}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "user"}}],
    })


def kubelet(options: ClusterOptions, cgroup: str, changes: Mapping[str, object]) -> str:
    """A kubelet that gets along with a machine that isn't its own: its cgroups, its limits, its sysctls.

    ``failCgroupV1``: 1.35 and later refuse version 1. Evictions are off: what is full here is the machine's.
    """
    return _json({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs", "cgroupRoot": cgroup, "cgroupsPerQOS": False, "enforceNodeAllocatable": [],
        "failCgroupV1": False, "failSwapOn": False, "oomScoreAdj": 0,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "clusterDNS": [str(options.dns_address())], "clusterDomain": DOMAIN, "resolvConf": f"{FOLDER}/resolv.conf",
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
        "maxPods": 250, "staticPodPath": STATIC_PODS, "volumePluginDir": f"{KUBELET_FOLDER}/volume-plugins",
        "healthzBindAddress": "127.0.0.1", "fileCheckFrequency": "1s",
        **changes,
    })


def proxy(options: ClusterOptions, node: str) -> str:
    """``maxPerCore`` 0: the table's size can't be written in a network namespace."""
    return _json({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": f"{FOLDER}/proxy.kubeconfig"}, "hostnameOverride": node,
        "mode": options.proxy.value, "conntrack": {"maxPerCore": 0, "min": 0},
        "detectLocalMode": "InterfaceNamePrefix", "detectLocal": {"interfaceNamePrefix": options.network.prefix},
        "nftables": {"minSyncPeriod": "200ms"}, "iptables": {"minSyncPeriod": "200ms"},
    })


def containerd(folder: str) -> str:
    """``restrict_oom_score_adj``: without CAP_SYS_RESOURCE runc can't lower it, and dies."""
    return f"""\
version = 3
root = "{folder}/root"
state = "{folder}/state"
[grpc]
address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.images".registry]
config_path = "{REGISTRIES}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/opt/cni/bin"]
conf_dir = "/etc/cni/net.d"
ip_pref = "cni"
"""


def no_registry() -> str:
    """For containerd: there is none, and that is known at once, whatever resolver the machine has."""
    nobody = "http://127.0.0.1:1"
    return f'server = "{nobody}"\n[host."{nobody}"]\ncapabilities = ["pull", "resolve"]\n'


def ptp(plan: NodePlan, families: Sequence[Family]) -> str:
    """The reference plugins as a node's network: addresses of the node's own CIDRs, default routes, host ports."""
    ranges = [[{"subnet": str(plan.cidrs[family])}] for family in families]
    routes = [{"dst": "::/0" if family is Family.IPV6 else "0.0.0.0/0"} for family in families]
    return _json({"cniVersion": "1.0.0", "name": "ptp", "plugins": [
        {"type": "ptp", "ipMasq": False,
         "ipam": {"type": "host-local", "dataDir": "/run/host-local", "ranges": ranges, "routes": routes}},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]})


def resolv_conf(servers: Sequence[Address]) -> str:
    return "".join(f"nameserver {server}\n" for server in servers)


def _json(document: object) -> str:
    """JSON is YAML, and every daemon here reads it."""
    return json.dumps(document, indent=1) + "\n"
