"""DEL in its shapes: at once, in the background, many together; and what isn't flock's stays."""

import contextlib
import threading
from collections.abc import Iterator

import pytest
from tests.kernel import oracle
from tests.kernel.ground import attachment, on_node, plan, wire

from flock.errors import FlockError, IOFailure
from flock.netlink.events import LinkGone
from flock.netlink.monitor import Monitor
from flock.pods.wiring import PodWiring
from flock.testing.wait import wait_until
from flock_lab.netns import Netns

pytestmark = pytest.mark.kernel


class Answers:
    """Collects what ``gone`` is called with."""

    def __init__(self) -> None:
        self.errors: list[FlockError | None] = []

    def __call__(self, error: FlockError | None) -> None:
        self.errors.append(error)

    def wait(self, count: int) -> list[FlockError | None]:
        wait_until(lambda: len(self.errors) >= count, deadline=10, what=f"{count} links to be gone")
        return self.errors


@contextlib.contextmanager
def working(netns: Netns) -> Iterator[PodWiring]:
    """A PodWiring whose reapers run on the node."""
    pods = PodWiring()
    netns.run(pods.start)
    try:
        yield pods
    finally:
        pods.close()


def test_unwire_removes_both_ends_routes_and_all(node: Netns, pod: Netns) -> None:
    wiring = plan(attachment(1))
    wire(node, pod, wiring)
    assert on_node(node, lambda pods: pods.unwire(wiring.host_ifname))
    assert oracle.link_names(node) == oracle.link_names(pod) == {"lo"}
    assert oracle.routes(node) == set()


def test_unwire_of_what_is_gone_is_no_error(node: Netns, pod: Netns) -> None:
    wiring = plan(attachment(1))
    assert not on_node(node, lambda pods: pods.unwire(wiring.host_ifname))
    wire(node, pod, wiring)
    assert on_node(node, lambda pods: pods.unwire(wiring.host_ifname))
    assert not on_node(node, lambda pods: pods.unwire(wiring.host_ifname))


@pytest.mark.parametrize("alias", ["somebody else's", "flock:other:eth0", "flock:broken"])
def test_a_link_with_a_foreign_alias_is_left_alone(node: Netns, alias: str) -> None:
    name = plan(attachment(1)).host_ifname
    node.command("ip", "link", "add", name, "type", "veth", "peer", "name", "far")
    node.command("ip", "link", "set", name, "alias", alias)
    with pytest.raises(IOFailure, match="is not flock's"):
        on_node(node, lambda pods: pods.unwire(name))
    assert name in oracle.link_names(node)


def test_a_link_of_another_kind_is_left_alone(node: Netns) -> None:
    name = plan(attachment(1)).host_ifname
    node.command("ip", "link", "add", name, "type", "bridge")
    with pytest.raises(IOFailure, match="is not flock's"):
        on_node(node, lambda pods: pods.unwire(name))


def test_a_link_that_an_agent_left_without_alias_is_removed(node: Netns) -> None:
    name = plan(attachment(1)).host_ifname
    node.command("ip", "link", "add", name, "type", "veth", "peer", "name", "far")
    assert on_node(node, lambda pods: pods.unwire(name))
    assert name not in oracle.link_names(node)


def test_the_background_removal_answers_without_any_notice(node: Netns, pod: Netns) -> None:
    wiring, answers = plan(attachment(1)), Answers()
    wire(node, pod, wiring)
    with working(node) as pods:
        assert node.run(lambda: pods.unwire_async(wiring.host_ifname, answers))
        assert answers.wait(1) == [None]
        assert not node.run(lambda: pods.unwire_async(wiring.host_ifname, answers))
    assert oracle.link_names(node) == oracle.link_names(pod) == {"lo"}
    assert answers.errors == [None]


def test_when_the_notice_comes_both_ends_are_gone(node: Netns, pod: Netns) -> None:
    wiring, answers, noticed = plan(attachment(1)), Answers(), threading.Event()
    wired = wire(node, pod, wiring)
    monitor = node.run(Monitor.of_gone_links)
    with working(node) as pods, contextlib.closing(monitor):
        assert node.run(lambda: pods.unwire_async(wiring.host_ifname, answers))
        events = wait_until(monitor.read, what="the kernel's notice")
        seen = node.command("cat", "/proc/net/dev").stdout + pod.command("cat", "/proc/net/dev").stdout
        assert events == [LinkGone(ifindex=wired.host_ifindex, name=wiring.host_ifname)]
        assert wiring.host_ifname not in seen
        assert "eth0" not in seen
        pods.link_gone(wired.host_ifindex)
        noticed.set()
        answers.wait(1)
    assert answers.errors == [None]


def test_two_dels_of_one_link_are_both_answered_once(node: Netns, pod: Netns) -> None:
    wiring, answers = plan(attachment(1)), Answers()
    wire(node, pod, wiring)
    pods = PodWiring()
    assert node.run(lambda: pods.unwire_async(wiring.host_ifname, answers))
    assert node.run(lambda: pods.unwire_async(wiring.host_ifname, answers))
    node.run(pods.start)
    assert answers.wait(2) == [None, None]
    pods.close()


def test_many_at_once_are_all_answered_once_and_nobody_elses_link_goes(node: Netns) -> None:
    wirings = [plan(attachment(number)) for number in range(1, 41)]
    answers = Answers()
    node.command("ip", "link", "add", "bystander", "type", "veth", "peer", "name", "far")
    with contextlib.ExitStack() as stack:
        for wiring in wirings:
            wire(node, stack.enter_context(Netns.create()), wiring)
        pods = PodWiring()
        for wiring in wirings:
            node.run(lambda name=wiring.host_ifname: pods.unwire_async(name, answers))  # type: ignore[misc]
        # Started only now, so that whole groups wait for the reapers.
        node.run(pods.start)
        answers.wait(len(wirings))
        pods.close()
    assert answers.errors == [None] * len(wirings)
    assert oracle.link_names(node) == {"lo", "bystander", "far"}


def test_a_link_that_goes_by_itself_while_it_waits_is_gone(node: Netns, pod: Netns) -> None:
    wiring, answers = plan(attachment(1)), Answers()
    wire(node, pod, wiring)
    pods = PodWiring()
    assert node.run(lambda: pods.unwire_async(wiring.host_ifname, answers))
    node.command("ip", "link", "del", wiring.host_ifname)
    node.run(pods.start)
    assert answers.wait(1) == [None]
    pods.close()


def test_links_of_a_group_that_went_by_themselves_are_gone(node: Netns, pod: Netns) -> None:
    with Netns.create() as other:
        wirings = [plan(attachment(1)), plan(attachment(2))]
        wire(node, pod, wirings[0])
        wire(node, other, wirings[1])
        answers, pods = Answers(), PodWiring()
        for wiring in wirings:
            node.run(lambda name=wiring.host_ifname: pods.unwire_async(name, answers))  # type: ignore[misc]
        node.command("ip", "link", "del", wirings[0].host_ifname)
        node.run(pods.start)
        assert answers.wait(2) == [None, None]
        pods.close()
    assert oracle.link_names(node) == {"lo"}
