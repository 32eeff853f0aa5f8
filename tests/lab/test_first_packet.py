"""ADD returns when the pod is reachable: its very first packet arrives, also while others keep RTNL busy.

Two work queues of the kernel come late then: the one that lets a link send after its carrier came (linkwatch), and the
one that makes an IPv6 address local after it was added (addrconf_dad_work).
"""

import contextlib
from collections.abc import Iterator

import pytest

from flock.model.family import FAMILIES
from flock_lab.lab import Lab
from flock_lab.node import Node
from flock_lab.trace import ping

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

PODS = 150
_NOISE = "while :; do ip link add noise0 type veth peer name noise1; ip link del noise0; done"


@contextlib.contextmanager
def _busy_rtnl(node: Node) -> Iterator[None]:
    """Links that come and go in a namespace of their own hold the one lock that all namespaces share."""
    node.run("ip", "netns", "add", "noise")
    process = node.spawn("sh", "-c", _NOISE, log="noise", netns="noise")
    try:
        yield
    finally:
        process.kill()
        process.wait(10.0)


def test_the_first_packet_to_and_from_a_new_pod_arrives(lab_name: str) -> None:
    with Lab.up(lab_name, nodes=1) as lab:
        node = lab.node(1)
        node.start_agent()
        node.wait_ready()
        old = node.pod("old")
        lost = []
        with _busy_rtnl(node):
            for number in range(PODS):
                new = node.pod(f"new-{number}")
                for family in FAMILIES[::-1] if number % 4 < 2 else FAMILIES:
                    source, target = (old, new) if number % 2 else (new, old)
                    if ping(node, target.address(family), source.netns).received != 1:
                        lost.append(f"{number}: {family.label} from {source.name} to {target.name}")
        assert lost == []
