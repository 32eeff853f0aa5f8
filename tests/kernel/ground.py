"""A node and its pods as bare namespaces, for tests of the wiring alone."""

import contextlib
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import TypeVar

from flock.model.attachment import Attachment
from flock.model.family import Address, Family
from flock.model.ids import AttachmentKey, ContainerID, IfName
from flock.model.ownership import host_ifname
from flock.pods.plan import NodeFacts, Wiring, plan_wiring
from flock.pods.wiring import PodWiring, Wired
from flock_lab.netns import Netns

NODE6 = IPv6Address("2001:db8::11")
NODE4 = IPv4Address("192.0.2.11")
FACTS = NodeFacts(mtu=1500, source={Family.IPV6: NODE6, Family.IPV4: NODE4})
BOTH = (Family.IPV6, Family.IPV4)

_T = TypeVar("_T")


@contextlib.contextmanager
def bare_node() -> Iterator[Netns]:
    """A node with an address of each family that forwards."""
    with Netns.create() as node:
        node.command("ip", "addr", "add", f"{NODE6}/128", "dev", "lo")
        node.command("ip", "addr", "add", f"{NODE4}/32", "dev", "lo")
        node.command("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        yield node


def attachment(
    number: int = 1, families: tuple[Family, ...] = BOTH, ifname: str = "eth0", mtu: int = 1500
) -> Attachment:
    """The attachment of pod ``number``: addresses ...::N and 10.64.1.N."""
    key = AttachmentKey(ContainerID(f"{number:064x}"), IfName(ifname))
    return Attachment(
        container_id=key.container_id,
        ifname=key.ifname,
        host_ifname=host_ifname(key),
        ip6=f"2001:db8:0:1::{number:x}" if Family.IPV6 in families else None,
        ip4=f"10.64.1.{number}" if Family.IPV4 in families else None,
        mtu=mtu,
    )


def plan(entry: Attachment, facts: NodeFacts = FACTS, announced: Callable[[Address], bool] = lambda _: False) -> Wiring:
    return plan_wiring(entry, facts, announced)


def wire(node: Netns, pod: Netns, wiring: Wiring) -> Wired:
    """Wire a pod, from a thread that lives on the node."""
    return with_pod(node, pod, lambda pods, fd: pods.wire(wiring, fd))


def on_node(node: Netns, work: Callable[[PodWiring], _T]) -> _T:
    """Let a PodWiring work on the node."""
    return node.run(lambda: work(PodWiring()))


def with_pod(node: Netns, pod: Netns, work: Callable[[PodWiring, int], _T]) -> _T:
    """Let a PodWiring work on the node, the pod's namespace at hand."""
    with pod.opened() as fd:
        return node.run(lambda: work(PodWiring(), fd))


def pings(netns: Netns, *targets: str) -> dict[str, bool]:
    """Which addresses answer one echo request each."""
    return {
        target: netns.command("ping", "-n", "-c1", "-W2", target, check=False).returncode == 0 for target in targets
    }
