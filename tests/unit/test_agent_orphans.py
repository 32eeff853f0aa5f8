"""R5: which allocations have outlived their pods, and above all which have not."""

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.agent.orphans import YOUNG, Why, decide_orphans, find_owners, seen_twice
from flock.api.objects import PodView
from flock.model.attachment import Attachment
from flock.model.ids import ContainerID, IfName

NOW = 10_000.0
UID, OTHER = "0b5a2c1e-1111-4222-8333-444455556666", "0b5a2c1e-1111-4222-8333-444455557777"
HASH = "e2bd9cae4b0a0a6ae2b3a8f1e9d2c3b4"


def entry(uid: str = UID, pod: str = "web-0", container: str = "c1", created: float = 0.0) -> Attachment:
    return Attachment(container_id=ContainerID(container), ifname=IfName("eth0"), host_ifname="flkx", namespace="ns",
                      pod=pod, uid=uid, created=created)


def pods(*views: PodView) -> Mapping[tuple[str, str], PodView]:
    return {(view.namespace, view.name): view for view in views}


def view(uid: str = UID, name: str = "web-0", phase: str = "Running", mirror: str = "") -> PodView:
    return PodView(namespace="ns", name=name, uid=uid, phase=phase, mirror_hash=mirror)


def reasons(*attachments: Attachment, known: Mapping[tuple[str, str], PodView], complete: bool = True) -> list[Why]:
    return [one.why for one in decide_orphans(attachments, known, complete=complete, now=NOW)]


def test_R5_a_pod_that_is_gone_leaves_an_orphan() -> None:
    assert reasons(entry(), known={}) == [Why.NO_POD]


def test_R5_nothing_is_judged_from_a_partial_view() -> None:
    assert reasons(entry(), known={}, complete=False) == []


def test_R5_of_a_name_that_was_reused_only_the_old_one_goes() -> None:
    old, new = entry(UID, container="c1"), entry(OTHER, container="c2")
    found = decide_orphans([old, new], pods(view(OTHER)), complete=True, now=NOW)
    assert [(one.attachment, one.why) for one in found] == [(old, Why.OTHER_UID)]


def test_R5_a_static_pod_is_known_by_its_mirrors_hash() -> None:
    assert reasons(entry(HASH), known=pods(view(OTHER, mirror=HASH))) == []


def test_R5_a_static_pod_runs_on_while_it_has_no_mirror_pod_and_ends_with_another_manifest() -> None:
    assert reasons(entry(HASH), known={}) == []
    assert reasons(entry(HASH), known=pods(view(OTHER, mirror=HASH[::-1]))) == [Why.OTHER_UID]
    assert reasons(entry(HASH), known=pods(view(OTHER, mirror=HASH, phase="Failed"))) == [Why.ENDED]


def test_R5_an_add_that_is_newer_than_the_watch_is_no_orphan() -> None:
    assert reasons(entry(created=NOW - YOUNG + 1), known={}) == []
    assert reasons(entry(created=NOW + 500), known={}) == []


def test_R5_a_completed_pods_address_is_free_again() -> None:
    assert reasons(entry(), known=pods(view(phase="Succeeded"))) == [Why.ENDED]


def test_R5_an_allocation_without_uid_is_nobodys_to_judge() -> None:
    assert reasons(entry(uid=""), known={}) == []


def test_R11_one_sighting_is_not_enough_and_a_new_add_counts_anew() -> None:
    first = decide_orphans([entry()], {}, complete=True, now=NOW)
    again = decide_orphans([entry()], {}, complete=True, now=NOW + 60)
    readded = decide_orphans([entry(created=5.0)], {}, complete=True, now=NOW + 60)
    assert seen_twice((), first) == ()
    assert seen_twice(first, again) == again
    assert seen_twice(first, readded) == ()


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from([UID, OTHER])), max_size=6))
def test_R5_a_pod_that_the_view_has_is_never_an_orphan(running: list[tuple[str, str]]) -> None:
    known = pods(*(view(uid, name) for name, uid in running))
    living = [entry(one.uid, one.name) for one in known.values()]
    assert decide_orphans(living, known, complete=True, now=NOW) == ()


def rebuilt(ip6: str | None = "2001:db8::7", ip4: str | None = "10.0.0.7", container: str = "c1") -> Attachment:
    return Attachment(container_id=ContainerID(container), ifname=IfName("eth0"), host_ifname="flkx", ip6=ip6, ip4=ip4)


def having(*addresses: str, name: str = "web-0", **more: object) -> PodView:
    return msgspec.structs.replace(view(name=name), pod_ips=addresses, **more)


def test_R5_a_rebuilt_allocation_is_the_pods_that_has_its_addresses() -> None:
    mine, other = having("2001:DB8:0::7", "10.0.0.7"), having("2001:db8::8", "10.0.0.8", name="web-1")
    assert list(find_owners([rebuilt()], [other, mine])) == [(rebuilt(), mine)]


@pytest.mark.parametrize(("attachment", "candidates"), [
    (rebuilt(), []),
    (rebuilt(), [having("2001:db8::7")]),
    (rebuilt(), [having("2001:db8::7", "10.0.0.8")]),
    (rebuilt(), [having("2001:db8::7", "10.0.0.7"), having("2001:db8::7", "10.0.0.7", name="web-1")]),
    (rebuilt(), [having("2001:db8::7", "10.0.0.7", host_network=True)]),
    (rebuilt(), [having("2001:db8::7", "10.0.0.7", phase="Succeeded")]),
    (rebuilt(), [having("nonsense", "10.0.0.7")]),
    (rebuilt(None, None), [having("2001:db8::7", "10.0.0.7")]),
    (entry(), [having("2001:db8::7", "10.0.0.7")]),
    (msgspec.structs.replace(rebuilt(), netns="/run/netns/podman"), [having("2001:db8::7", "10.0.0.7")]),
])
def test_R5_of_an_allocation_whose_pod_is_not_certain_nothing_is_said(
        attachment: Attachment, candidates: list[PodView]) -> None:
    assert list(find_owners([attachment], candidates)) == []
