"""The store's file system is full or read-only: ADD fails with code 5, leaves nothing, and works when it can again."""

import errno
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_interface

import pytest
from tests.crash.client import CONF, code_of
from tests.crash.node import RUN, CrashNode
from tests.crash.probe import Pinger, interfaces, left_behind, missing_inside, unreadable

from flock.cni.frames import RawReply
from flock_lab.bare import BareNode, BarePod

pytestmark = pytest.mark.crash

IO_FAILURE = 5
SIZE = 1 << 20
INODES = 300


@contextmanager
def no_space(node: BareNode) -> Iterator[None]:
    """Every block is taken; inodes are left, so that a file can be made and not written."""
    node.run("mount", "-o", f"remount,size={SIZE}", str(RUN))
    ballast = node.path(RUN / "ballast")
    with open(ballast, "wb", buffering=0) as file:
        exhaust(lambda _: file.write(bytes(1024)))
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def no_inodes(node: BareNode) -> Iterator[None]:
    """No file can be made."""
    node.run("mount", "-o", f"remount,nr_inodes={INODES}", str(RUN))
    folder = node.path(RUN / "ballast")
    folder.mkdir()
    exhaust(lambda number: (folder / str(number)).touch())
    try:
        yield
    finally:
        shutil.rmtree(folder)


@contextmanager
def read_only(node: BareNode) -> Iterator[None]:
    """A read-only mount on top: the one below can't become it while the agent's lock file is open for writing."""
    node.run("mount", "--bind", str(RUN), str(RUN))
    node.run("mount", "-o", "remount,bind,ro", str(RUN))
    try:
        yield
    finally:
        node.run("umount", str(RUN))


def exhaust(step: Callable[[int], object]) -> None:
    """Do it until there is no space left."""
    for number in itertools.count():
        try:
            step(number)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return


FAULTS = {"no space": no_space, "no inodes": no_inodes, "read only": read_only}


@pytest.fixture(scope="module")
def node() -> Iterator[CrashNode]:
    with CrashNode.up() as node:
        node.start()
        assert node.await_serving(), node.log_end()
        yield node


@pytest.mark.parametrize("fault", FAULTS)
def test_add_fails_with_code_5_and_leaves_nothing(node: CrashNode, fault: str) -> None:
    pid = node.agent.pid
    pods = {name: BarePod.make() for name in ("before", "during")}
    result = add(node, "before", pods["before"])
    with FAULTS[fault](node.node):
        for _ in range(3):
            reply = node.client.add("during", pods["during"].netns, pods["during"].fd)
            assert isinstance(reply, RawReply)
            error = json.loads(reply.body)
            assert (reply.code, error["code"]) == (IO_FAILURE, IO_FAILURE)
            assert "during" in error["msg"] + error.get("details", "")
        assert interfaces(pods["during"]) == set()
        assert not [name for name in left_behind(node.node) if "during" in name]
        assert len([name for name in left_behind(node.node) if name.startswith("link")]) == 1
        assert node.serving(), "STATUS speaks of the agent alone"
        check = node.client.check("before", pods["before"].netns, pods["before"].fd, result)
        assert code_of(check) == 0
        assert works(node, pods["before"], result)
    again = add(node, "during", pods["during"])
    assert works(node, pods["during"], again)
    for name in pods:
        reply = node.client.delete(name)
        assert code_of(reply) == 0
    assert left_behind(node.node) == []
    assert unreadable(node.node) == []
    assert (node.alive, node.agent.pid) == (True, pid)
    assert "Traceback" not in node.take_log()


@pytest.mark.parametrize("fault", FAULTS)
def test_del_is_answered_and_ends_when_it_can(node: CrashNode, fault: str) -> None:
    """A DEL may fail while nothing can be written, but clearly; the next one succeeds, and no address is lost."""
    pod = BarePod.make()
    add(node, "leaving", pod)
    with FAULTS[fault](node.node):
        reply = node.client.delete("leaving")
        assert code_of(reply) in (0, IO_FAILURE), reply
    reply = node.client.delete("leaving")
    assert code_of(reply) == 0
    assert left_behind(node.node) == []
    add(node, "leaving", pod)
    node.client.delete("leaving")
    assert "Traceback" not in node.take_log()


def test_an_agent_that_starts_on_a_full_disk_serves_when_there_is_space(node: CrashNode) -> None:
    pod = BarePod.make()
    result = add(node, "standing", pod)
    with no_space(node.node):
        node.kill()
        node.start()
        assert works(node, pod, result)
    while not node.await_serving():
        node.start()
    check = node.client.check("standing", pod.netns, pod.fd, result)
    assert code_of(check) == 0
    reply = node.client.delete("standing")
    assert code_of(reply) == 0
    assert left_behind(node.node) == []


def add(node: CrashNode, name: str, pod: BarePod) -> dict[str, object]:
    reply = node.client.add(name, pod.netns, pod.fd)
    assert isinstance(reply, RawReply)
    assert reply.code == 0, reply.body
    result: dict[str, object] = json.loads(reply.body)
    assert result["cniVersion"] == CONF["cniVersion"]
    return result


def works(node: CrashNode, pod: BarePod, result: dict[str, object]) -> bool:
    ips = result["ips"]
    assert isinstance(ips, list)
    addresses = [str(ip_interface(ip["address"]).ip) for ip in ips]
    pinger = Pinger(node.node)
    try:
        return len(addresses) == 2 and not missing_inside(pod, addresses) and not pinger.silent(addresses)
    finally:
        pinger.close()
