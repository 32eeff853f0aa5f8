"""The join of files and marked links at a start, for every combination of the two."""

from dataclasses import dataclass
from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st

from flock.agent.recovery import decide_recovery
from flock.model.attachment import Attachment
from flock.model.family import Address
from flock.model.ids import AttachmentKey, ContainerID, IfName
from flock.model.ownership import host_ifname


@dataclass(frozen=True)
class FakeLink:
    """A host end with its mark."""

    key: AttachmentKey | None
    name: str
    ifindex: int = 7
    mtu: int = 1400
    pod_addresses: tuple[Address, ...] = (ip_address("2001:db8::7"), ip_address("10.0.0.7"))


def key(name: str) -> AttachmentKey:
    return AttachmentKey(ContainerID(name), IfName("eth0"))


def link(name: str) -> FakeLink:
    return FakeLink(key=key(name), name=host_ifname(key(name)))


def attachment(name: str) -> Attachment:
    return Attachment(container_id=ContainerID(name), ifname=IfName("eth0"), host_ifname=host_ifname(key(name)),
                      ip6="2001:db8::1")


def test_R3_pending_is_torn_down_with_and_without_a_link() -> None:
    decided = decide_recovery([], [key("a"), key("b")], [link("a")], 1.0)
    assert decided.tear_down == (key("a"), key("b"))
    assert not decided.rebuild


def test_R3_committed_with_its_link_is_kept() -> None:
    decided = decide_recovery([attachment("a")], [], [link("a")], 1.0)
    assert decided.keep == (attachment("a"),)


def test_committed_without_its_link_is_lost_never_kept() -> None:
    decided = decide_recovery([attachment("a")], [], [], 1.0)
    assert decided.lost == (attachment("a"),)


def test_a_marked_link_without_a_file_is_rebuilt_with_its_addresses() -> None:
    (rebuilt,) = decide_recovery([], [], [link("a")], 5.0).rebuild
    assert (rebuilt.ip6, rebuilt.ip4, rebuilt.mtu, rebuilt.created) == ("2001:db8::7", "10.0.0.7", 1400, 5.0)
    assert rebuilt.key == key("a")


def test_links_without_a_mark_or_under_another_name_are_nobodys() -> None:
    strangers = [FakeLink(key=None, name="flkaaaaaaaaaaa"), FakeLink(key=key("a"), name="flkbbbbbbbbbbb")]
    decided = decide_recovery([], [], strangers, 1.0)
    assert not decided.rebuild


@given(st.sets(st.sampled_from("abcdef")), st.sets(st.sampled_from("abcdef")), st.sets(st.sampled_from("abcdef")))
def test_every_name_is_decided_exactly_once(committed: set[str], pending: set[str], links: set[str]) -> None:
    decided = decide_recovery(map(attachment, committed), map(key, pending), map(link, links), 1.0)
    names = [*decided.tear_down, *(one.key for one in (*decided.keep, *decided.rebuild, *decided.lost))]
    assert sorted(names) == sorted({key(name) for name in committed | pending | links})
