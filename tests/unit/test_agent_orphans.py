"""R5: which allocations have outlived their pods, and above all which have not."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from flock.agent.orphans import YOUNG, Why, decide_orphans, seen_twice
from flock.api.objects import PodView
from flock.model.attachment import Attachment
from flock.model.ids import ContainerID, IfName

NOW = 10_000.0


def entry(uid: str = "uid-1", pod: str = "web-0", container: str = "c1", created: float = 0.0) -> Attachment:
    return Attachment(container_id=ContainerID(container), ifname=IfName("eth0"), host_ifname="flkx", namespace="ns",
                      pod=pod, uid=uid, created=created)


def pods(*views: PodView) -> Mapping[tuple[str, str], PodView]:
    return {(view.namespace, view.name): view for view in views}


def view(uid: str = "uid-1", name: str = "web-0", phase: str = "Running", mirror: str = "") -> PodView:
    return PodView(namespace="ns", name=name, uid=uid, phase=phase, mirror_hash=mirror)


def reasons(*attachments: Attachment, known: Mapping[tuple[str, str], PodView], complete: bool = True) -> list[Why]:
    return [one.why for one in decide_orphans(attachments, known, complete=complete, now=NOW)]


def test_R5_a_pod_that_is_gone_leaves_an_orphan() -> None:
    assert reasons(entry(), known={}) == [Why.NO_POD]


def test_R5_nothing_is_judged_from_a_partial_view() -> None:
    assert reasons(entry(), known={}, complete=False) == []


def test_R5_of_a_name_that_was_reused_only_the_old_one_goes() -> None:
    old, new = entry("uid-1", container="c1"), entry("uid-2", container="c2")
    found = decide_orphans([old, new], pods(view("uid-2")), complete=True, now=NOW)
    assert [(one.attachment, one.why) for one in found] == [(old, Why.OTHER_UID)]


def test_R5_a_static_pod_is_known_by_its_mirrors_hash() -> None:
    assert reasons(entry("config-hash"), known=pods(view("uid-of-the-mirror", mirror="config-hash"))) == []


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


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["1", "2"])), max_size=6))
def test_R5_a_pod_that_the_view_has_is_never_an_orphan(running: list[tuple[str, str]]) -> None:
    known = pods(*(view(uid, name) for name, uid in running))
    living = [entry(one.uid, one.name) for one in known.values()]
    assert decide_orphans(living, known, complete=True, now=NOW) == ()
