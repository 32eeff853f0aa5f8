"""What is fixed of a cluster in the lab: addresses, ports, users, versions and paths. Pure.

The control plane lives on the lab's router and listens on its addresses of the world, which every node reaches over
its own link: an API server that depends on BGP could not be reached by the agent that brings BGP up.
"""

from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Network, IPv6Network

from flock.model.family import FAMILIES, Address, Family, Network
from flock_lab.plan import WORLD

PORT = 6443
FOLDER = "/etc/kubernetes"
DOMAIN = "cluster.local"
SERVICES: dict[Family, Network] = {
    Family.IPV6: IPv6Network("2001:db8:96::/112"),
    Family.IPV4: IPv4Network("10.96.0.0/16"),
}
SPARE: dict[Family, Network] = {
    Family.IPV6: IPv6Network("2001:db8:0:a0::/60"),
    Family.IPV4: IPv4Network("10.64.160.0/20"),
}
"""What the router takes from every node beside that node's own CIDRs: for NodeConfigs that change."""
PAUSE = "registry.k8s.io/pause:3.10.2"
AGNHOST = "registry.k8s.io/e2e-test-images/agnhost:2.66.1"
BUSYBOX = "registry.k8s.io/e2e-test-images/busybox:1.37.0-2"
COREDNS = "registry.k8s.io/coredns/coredns:v1.15.0"
NGINX = "registry.k8s.io/e2e-test-images/nginx:1.27.0-2"
GLIBC = "registry.k8s.io/e2e-test-images/glibc-dns-testing:2.1.1"
IPTABLES = "registry.k8s.io/build-image/distroless-iptables:v0.9.9"
"""The names that Kubernetes 1.37.2 and its e2e suite ask for (test/utils/image/manifest.go)."""


class ProxyMode(Enum):
    """How kube-proxy makes Services."""

    NFTABLES = "nftables"
    IPTABLES = "iptables"


class PodNetwork(Enum):
    """What gives pods their network: the product (as processes of the nodes, which tests stop and start; or from its
    images, as users install it), or the reference plugins that it is compared with.
    """

    FLOCK = "flock"
    INSTALLED = "installed"
    PTP = "ptp"

    @property
    def prefix(self) -> str:
        """How the host ends of pods' links are named, by which kube-proxy knows what is local."""
        return "veth" if self is PodNetwork.PTP else "flk"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What may differ from one cluster to the next."""

    nodes: int = 2
    primary: Family = Family.IPV6
    proxy: ProxyMode = ProxyMode.NFTABLES
    network: PodNetwork = PodNetwork.FLOCK

    @property
    def families(self) -> tuple[Family, ...]:
        """Both, the primary first."""
        return (self.primary, *(family for family in FAMILIES if family is not self.primary))

    @property
    def api_address(self) -> Address:
        return WORLD[self.primary]

    @property
    def api_url(self) -> str:
        return f"https://{in_url(self.api_address)}:{PORT}"

    @property
    def service_ranges(self) -> tuple[Network, ...]:
        return tuple(SERVICES[family] for family in self.families)

    def dns_address(self) -> Address:
        """Where pods ask for names: the tenth address of the primary Service range, as everywhere."""
        return SERVICES[self.primary][10]


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Somebody that the API server knows by a static token."""

    name: str
    groups: tuple[str, ...] = ()


ADMIN = User(name="admin", groups=("system:masters",))
CONTROLLERS = User(name="system:kube-controller-manager")
SCHEDULER = User(name="system:kube-scheduler")
PROXY = User(name="system:kube-proxy")


def kubelet_user(node: str) -> User:
    return User(name=f"system:node:{node}", groups=("system:nodes",))


def service_account(namespace: str, name: str) -> User:
    """A user whom RBAC can't tell from that service account."""
    return User(name=f"system:serviceaccount:{namespace}:{name}",
                groups=("system:serviceaccounts", f"system:serviceaccounts:{namespace}"))


def in_url(address: Address) -> str:
    return f"[{address}]" if address.version == 6 else str(address)
