"""ADD that can't succeed: one clear error, nothing left, and what was there before stays as it was."""

import ctypes
import os
import subprocess
from pathlib import Path

import pytest
from tests.kernel import oracle
from tests.kernel.ground import attachment, on_node, pings, plan, wire, with_pod

from flock.errors import AlreadyAttached, InvalidNetns, IOFailure
from flock.pods.wiring import PodWiring
from flock_lab.netns import Netns

pytestmark = pytest.mark.kernel

CLONE_NEWNS = 0x00020000


def flock_links(node: Netns) -> set[str]:
    return {name for name in oracle.link_names(node) if name.startswith("flk")}


def test_a_second_add_of_the_same_attachment_leaves_the_first_intact(node: Netns, pod: Netns) -> None:
    wiring = plan(attachment(1))
    first = wire(node, pod, wiring)
    with Netns.create() as other, pytest.raises(AlreadyAttached, match="is attached already"):
        wire(node, other, wiring)
    assert with_pod(node, pod, lambda pods, fd: pods.check(wiring, fd)) == ()
    assert pings(pod, "fe80::1%eth0", "169.254.1.1") == {"fe80::1%eth0": True, "169.254.1.1": True}
    link = oracle.link(node, wiring.host_ifname)
    assert link is not None
    assert link["index"] == first.host_ifindex


def test_an_interface_name_that_is_taken_in_the_pod_is_refused(node: Netns, pod: Netns) -> None:
    first = plan(attachment(1))
    wire(node, pod, first)
    with pytest.raises(AlreadyAttached, match="interface eth0 exists in the pod"):
        wire(node, pod, plan(attachment(2)))
    assert flock_links(node) == {first.host_ifname}
    assert with_pod(node, pod, lambda pods, fd: pods.check(first, fd)) == ()
    assert pings(pod, "2001:db8::11") == {"2001:db8::11": True}


def test_a_foreign_interface_of_that_name_in_the_pod_is_left_alone(node: Netns, pod: Netns) -> None:
    pod.command("ip", "link", "add", "eth0", "type", "bridge")
    with pytest.raises(AlreadyAttached, match="interface eth0 exists in the pod"):
        wire(node, pod, plan(attachment(1)))
    assert flock_links(node) == set()
    assert "eth0" in oracle.link_names(pod)


def test_a_failure_on_the_host_end_leaves_neither_end(node: Netns, pod: Netns) -> None:
    # IPv6 doesn't run on a link with an MTU below 1280, so its options are refused when both ends are there already.
    with pytest.raises(IOFailure, match=r"the kernel refused alias and options on the host end .* not supported"):
        wire(node, pod, plan(attachment(1, mtu=1000)))
    nothing_is_left(node, pod)


def test_a_failure_inside_the_pod_leaves_neither_end(node: Netns, pod: Netns) -> None:
    """IPv6 is off in the pod, and can't be switched on by an agent that has /proc/sys read-only."""
    pod.command("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")

    def read_only(pods: PodWiring, fd: int) -> None:
        private_mounts()
        for argv in (("--bind", "/proc/sys", "/proc/sys"), ("-o", "remount,ro,bind", "/proc/sys")):
            subprocess.run(["mount", *argv], check=True)
        pods.wire(plan(attachment(1)), fd)

    with pytest.raises(IOFailure, match=r"sysctl net/ipv6/conf/eth0/disable_ipv6 can't be set"):
        with_pod(node, pod, read_only)
    nothing_is_left(node, pod)


def private_mounts() -> None:
    """Give the calling thread, which ends soon, mounts of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.unshare(CLONE_NEWNS) == 0
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def nothing_is_left(node: Netns, pod: Netns) -> None:
    assert flock_links(node) == set()
    assert oracle.link_names(pod) == {"lo"}
    assert oracle.routes(node) == set()


def test_an_mtu_that_the_kernel_refuses_leaves_nothing(node: Netns, pod: Netns) -> None:
    with pytest.raises(IOFailure, match="the kernel refused link flk"):
        wire(node, pod, plan(attachment(1, mtu=20)))
    nothing_is_left(node, pod)


def refusal(node: Netns, path: Path) -> str:
    """What is said of a file that is no pod's namespace."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with pytest.raises(InvalidNetns) as caught:
            on_node(node, lambda pods: pods.wire(plan(attachment(1)), fd))
    finally:
        os.close(fd)
    assert flock_links(node) == set()
    return str(caught.value)


def test_a_file_is_no_netns(node: Netns, tmp_path: Path) -> None:
    (tmp_path / "netns").write_text("")
    assert "not a network namespace" in refusal(node, tmp_path / "netns")


def test_a_namespace_of_another_kind_is_no_netns(node: Netns) -> None:
    assert "another kind" in refusal(node, Path("/proc/self/ns/mnt"))


def test_the_nodes_own_netns_is_refused(node: Netns) -> None:
    assert "the node's own network namespace" in refusal(node, node.path)


def test_a_closed_descriptor_is_no_netns(node: Netns) -> None:
    with pytest.raises(InvalidNetns):
        on_node(node, lambda pods: pods.wire(plan(attachment(1)), 9999))


def test_a_netns_that_was_unnamed_meanwhile_is_wired_to_the_descriptor(node: Netns) -> None:
    """The shim's descriptor keeps the namespace alive, whatever happens to its path."""
    with Netns.create() as gone, gone.opened() as fd:
        gone.delete()
        wiring = plan(attachment(1))
        on_node(node, lambda pods: pods.wire(wiring, fd))
        assert flock_links(node) == {wiring.host_ifname}


def test_the_thread_is_home_again_after_every_outcome(node: Netns, pod: Netns) -> None:
    def outcomes(pods: PodWiring, fd: int) -> list[int]:
        home = os.stat("/proc/thread-self/ns/net").st_ino
        pods.wire(plan(attachment(1)), fd)
        with pytest.raises(AlreadyAttached):
            pods.wire(plan(attachment(2)), fd)
        pods.check(plan(attachment(1)), fd)
        return [home, os.stat("/proc/thread-self/ns/net").st_ino]

    before, after = with_pod(node, pod, outcomes)
    assert before == after


def test_no_descriptor_is_lost(node: Netns, pod: Netns) -> None:
    def leaks(pods: PodWiring, fd: int) -> int:
        wiring = plan(attachment(1))
        pods.unwire(wiring.host_ifname)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            pods.wire(wiring, fd)
            pods.check(wiring, fd)
            with pytest.raises(AlreadyAttached):
                pods.wire(wiring, fd)
            pods.unwire(wiring.host_ifname)
        return len(os.listdir("/proc/self/fd")) - before

    assert with_pod(node, pod, leaks) == 0
