"""A batch from a template is, byte for byte, what the steps pack."""

from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st

from flock.model.attachment import Attachment
from flock.model.family import FAMILIES, Family
from flock.model.ids import ContainerID, IfName
from flock.netlink.wire import number_messages
from flock.pods.batches import host_batch, pod_batch
from flock.pods.plan import NodeFacts, Wiring, plan_wiring
from flock.pods.steps import Step, create_link, pod_steps, vital_host_steps

IFNAMES = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters="/:."), min_size=1)


@st.composite
def wirings(draw: st.DrawFn) -> Wiring:
    families = draw(st.sampled_from([(Family.IPV6,), (Family.IPV4,), FAMILIES]))
    ifname = draw(IFNAMES.filter(lambda name: len(name.encode()) <= 15))
    entry = Attachment(
        container_id=ContainerID(draw(st.text("0123456789abcdef", min_size=1, max_size=64))),
        ifname=IfName(ifname),
        host_ifname="",
        ip6=str(draw(st.ip_addresses(v=6, network="2001:db8::/32"))) if Family.IPV6 in families else None,
        ip4=str(draw(st.ip_addresses(v=4, network="10.0.0.0/8"))) if Family.IPV4 in families else None,
        mtu=draw(st.sampled_from([1280, 1500, 9000])),
    )
    sources = {Family.IPV6: ip_address("2001:db8::11"), Family.IPV4: ip_address("192.0.2.11")}
    facts = NodeFacts(mtu=1500, source={family: draw(st.sampled_from([None, sources[family]])) for family in FAMILIES})
    announced = draw(st.booleans())
    return plan_wiring(entry, facts, lambda _: announced)


def packed(steps: list[Step]) -> tuple[bytearray, int]:
    data = bytearray(b"".join(step.request for step in steps))
    return data, number_messages(data)


INDEXES = st.integers(1, (1 << 31) - 1)


@given(wirings(), INDEXES, INDEXES, st.integers(0, 1 << 20))
def test_the_host_batch_is_the_vital_host_steps(wiring: Wiring, index: int, pod_index: int, netns_fd: int) -> None:
    steps = [create_link(wiring, index, pod_index, netns_fd), *vital_host_steps(wiring, index)]
    assert host_batch(wiring, index, pod_index, netns_fd) == packed(steps)


@given(wirings(), INDEXES)
def test_the_pod_batch_is_the_pod_steps(wiring: Wiring, index: int) -> None:
    assert pod_batch(wiring, index) == packed(pod_steps(wiring, index))
