"""Real packets through real rules meet the verdict that the specification gives, whatever the rules were before."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kernel.policed import Enforced
from tests.kernel.policy_ground import PolicyGround, policy_ground
from tests.unit.policy_worlds import packets_of, worlds

from flock.policy.explain import Packet, explain

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def enforced() -> Iterator[tuple[PolicyGround, Enforced]]:
    with policy_ground() as ground:
        table = Enforced(ground.node, ground.placed)
        yield ground, table
        table.close()


def without_sctp(packet: Packet) -> bool:
    return packet.protocol != 132


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_R15_packets_meet_the_verdict_of_the_specification(
        enforced: tuple[PolicyGround, Enforced], data: st.DataObject) -> None:
    ground, table = enforced
    world = table.follow(data.draw(worlds()))
    table.must_be_as_wanted()
    if data.draw(st.booleans()):
        table.write_anew()
        table.must_be_as_wanted()
    # What both ends of have no say of this node's pods in would only ask the network.
    local = {address for subject in world.subjects() for address in subject.addresses}
    packets = data.draw(st.lists(packets_of(world).filter(
        lambda one: without_sctp(one) and ({one.source, one.target} & local)), min_size=1, max_size=30))
    expected = [explain(world, packet).allowed for packet in packets]
    arrived = ground.arriving(packets, expected)
    wrong = [(packet, explain(world, packet)) for packet, came, wanted in zip(packets, arrived, expected, strict=True)
             if came is not wanted]
    assert not wrong
