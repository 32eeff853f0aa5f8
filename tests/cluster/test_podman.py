import pytest
from tests.cluster import pings
from tests.cluster.ground import Ground
from tests.cluster.podman import Podman

from flock.cni.install import NETWORK
from flock.model.family import FAMILIES

pytestmark = pytest.mark.cluster


def test_two_containers_of_podman_ping_each_other_and_their_node_on_both_families(podman: Podman) -> None:
    before = Ground.seen(podman.node)
    for name in ("one", "two"):
        podman.run_container(name, NETWORK)
    for here, there in (("one", "two"), ("two", "one")):
        for family in FAMILIES:
            for target in (podman.address(there, family, NETWORK), podman.node.plan.address(family)):
                pings.must_be_answered(podman.execute(here, *pings.command(target)))
    for name in ("one", "two"):
        podman.stop(name)
    before.must_be_as_before(podman.node)
    for name in ("one", "two"):
        podman.remove(name)
