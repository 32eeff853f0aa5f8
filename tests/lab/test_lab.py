"""The lab itself: it is private to the machine that it runs on, and nothing of it stays, however it ends."""

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from flock.model.family import FAMILIES, Family
from flock.testing.wait import wait_until
from flock_lab import state
from flock_lab.lab import Lab
from flock_lab.plan import WORLD, plan_node
from flock_lab.state import LabError, ProcessMark
from flock_lab.trace import ping

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

# Where the tests run in the background of a shell, SIGINT is ignored, and children inherit that.
_CRASHING = """
import signal, sys
from flock_lab.lab import Lab
signal.signal(signal.SIGINT, signal.default_int_handler)
with Lab.up(sys.argv[1]) as lab:
    lab.router.start_bird()
    lab.node(1).run("ip", "netns", "add", "pod")
    lab.node(1).spawn("sleep", "1000", log="sleep", netns="pod")
    print("up", flush=True)
    signal.pause()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a lab could leave on the machine."""

    links: str
    mounts: str
    names: frozenset[str]
    folders: frozenset[str]

    @classmethod
    def seen(cls) -> "Machine":
        places = ("/etc/flock", "/etc/cni", "/opt/cni", "/var/lib/cni", "/run/flock", "/run/flock-lab")
        run_netns = Path("/run/netns")
        return cls(
            links=subprocess.run(["ip", "-o", "link"], check=True, capture_output=True, text=True).stdout,
            mounts=Path("/proc/self/mountinfo").read_text(),
            names=frozenset(path.name for path in run_netns.iterdir()) if run_netns.is_dir() else frozenset(),
            folders=frozenset(place for place in places if Path(place).exists()),
        )


def _namespaces(pid: int | str) -> set[int]:
    found = set()
    for name in ("net", "mnt", "pid", "uts"):
        with contextlib.suppress(OSError):
            found.add(Path(f"/proc/{pid}/ns/{name}").stat().st_ino)
    return found


class Held:
    """The namespaces of a lab, held by descriptors: the kernel gives a freed one's number to the next at once."""

    def __init__(self, name: str) -> None:
        record = state.load(name)
        marks = state.marked(record.token) if record else []
        self._files: list[int] = []
        for path in (Path(f"/proc/{mark.pid}/ns/{kind}") for mark in marks for kind in ("net", "mnt", "pid", "uts")):
            with contextlib.suppress(OSError):
                self._files.append(os.open(path, os.O_RDONLY))
        self.numbers = {os.fstat(file).st_ino for file in self._files} - _namespaces("self")

    def must_be_left_by_all(self) -> None:
        """A zombie holds nothing; the machine's first process collects those of a lab that was killed."""
        left = [f"{entry.name} {(entry / 'cmdline').read_bytes()!r}" for entry in Path("/proc").iterdir()
                if entry.name.isdigit() and ProcessMark.of(int(entry.name)) and _namespaces(entry.name) & self.numbers]
        for file in self._files:
            os.close(file)
        assert left == [], "processes are left in the lab's namespaces"


def must_be_gone(before: Machine, held: Held) -> None:
    held.must_be_left_by_all()
    wait_until(lambda: Machine.seen() == before, 10.0, f"{Machine.seen()} as {before}")


def _crashing(name: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", _CRASHING, name], stdout=subprocess.PIPE, text=True)


def test_hosts_reach_each_other_on_both_families(lab_name: str) -> None:
    with Lab.up(lab_name, nodes=2) as lab:
        for node in lab.nodes:
            for family in FAMILIES:
                answer = ping(node, node.plan.links[family].router, count=2)
                assert (answer.sent, answer.received) == (2, 2), answer.text


def test_a_node_sees_its_own_folders_and_the_machine_none_of_them(lab_name: str) -> None:
    before = Machine.seen()
    with Lab.up(lab_name, nodes=1) as lab:
        node = lab.node(1)
        assert node.run("ls", "/etc/flock").stdout.split() == ["bird", "manifests"]
        assert node.run("sh", "-c", "ls /sys/class/net; hostname").stdout.split() == ["eth0", "lo", "node-1"]
        assert node.run("sh", "-c", "touch /opt/cni/bin/x /var/lib/cni/x /etc/cni/net.d/x /run/x").returncode == 0
        during = Machine.seen()
        assert (during.links, during.mounts, during.names) == (before.links, before.mounts, before.names)
        assert during.folders - before.folders <= {"/run/flock-lab"}
        held = Held(lab_name)
        assert len(held.numbers) == 8, "a net, mnt, pid and uts namespace for node and router"
    must_be_gone(before, held)


def test_a_node_is_fresh_so_that_only_the_agent_turns_forwarding_on(lab_name: str) -> None:
    with Lab.up(lab_name, nodes=1) as lab:
        paths = ("/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding")
        assert lab.node(1).run("cat", *paths).stdout.split() == ["0", "0"]


def test_two_labs_share_nothing(lab_name: str) -> None:
    with Lab.up(lab_name, nodes=1) as one, Lab.up(f"{lab_name}-b", nodes=1) as other:
        assert one.node(1).netns.stat().st_ino != other.node(1).netns.stat().st_ino
        one.node(1).write_manifest("only-here", "")
        assert not other.node(1).path("/etc/flock/manifests/only-here.yaml").exists()


def test_after_the_lab_process_is_killed_down_leaves_nothing(lab_name: str) -> None:
    before = Machine.seen()
    with _crashing(lab_name) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.kill()
    record = state.load(lab_name)
    assert record is not None
    assert state.marked(record.token), "it was meant to leave something"
    held = Held(lab_name)
    assert Lab.down(lab_name)
    assert state.marked(record.token) == []
    must_be_gone(before, held)
    assert not Lab.down(lab_name)


@pytest.mark.parametrize("milliseconds", [0, 5, 10, 20, 30, 45, 60, 80])
def test_killed_while_it_is_being_made_it_can_be_taken_down(lab_name: str, milliseconds: int) -> None:
    before = Machine.seen()
    with _crashing(lab_name) as process:
        wait_until((state.LABS_DIR / lab_name).is_dir, 10.0, "the lab's folder")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(milliseconds / 1000)
        process.kill()
    held = Held(lab_name)
    assert Lab.down(lab_name)
    must_be_gone(before, held)


def test_asked_to_end_the_lab_process_takes_its_lab_down(lab_name: str) -> None:
    before = Machine.seen()
    with _crashing(lab_name) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        held = Held(lab_name)
        process.send_signal(signal.SIGINT)
    must_be_gone(before, held)


def test_a_daemon_that_ended_by_itself_does_not_keep_its_host(lab_name: str) -> None:
    before = Machine.seen()
    with Lab.up(lab_name, nodes=1) as lab:
        ended = lab.node(1).spawn("true", log="true")
        stat = Path(f"/proc/{ended.pid}/stat")
        wait_until(lambda: ") Z " in stat.read_text(), 5.0, "a zombie that nobody has collected")
    assert ended.returncode == 0
    wait_until(lambda: Machine.seen() == before, 10.0, f"{Machine.seen()} as {before}")


def test_a_lab_in_use_is_left_alone(lab_name: str) -> None:
    with _crashing(lab_name) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        with pytest.raises(LabError, match=f"in use by the process {process.pid}"):
            Lab.down(lab_name)
        assert process.poll() is None
        process.kill()
    assert Lab.down(lab_name)


def test_a_name_that_is_taken_is_refused_and_the_first_lab_stands(lab_name: str) -> None:
    with Lab.up(lab_name, nodes=1) as lab:
        with pytest.raises(LabError, match=f"there is a lab {lab_name} already"):
            Lab.up(lab_name)
        assert lab.node(1).run("true").returncode == 0


_CONTENDING = """
import sys
from flock_lab import state
from flock_lab.lab import Lab
for _ in range(15):
    try:
        with Lab.up(sys.argv[1], nodes=1):
            pass
    except state.LabError:
        pass
    try:
        Lab.down(sys.argv[1])
    except state.LabError:
        pass
"""


def test_two_processes_that_contend_for_a_name_leave_nothing(lab_name: str) -> None:
    before = Machine.seen()
    processes = [subprocess.Popen([sys.executable, "-c", _CONTENDING, lab_name]) for _ in range(3)]
    assert [process.wait(60.0) for process in processes] == [0, 0, 0]
    left = [path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if _is_of(path, lab_name)]
    assert left == []
    assert not Lab.down(lab_name)
    wait_until(lambda: Machine.seen() == before, 10.0, f"{Machine.seen()} as {before}")


def _is_of(environ: Path, name: str) -> bool:
    with contextlib.suppress(OSError):
        return f"{state.TOKEN_VARIABLE}={name}-".encode() in environ.read_bytes()
    return False


@pytest.mark.parametrize("name", ["", ".", "..", "../etc", "a/b", "A", "-x", "x" * 41, "x\n"])
def test_a_name_that_could_be_another_folder_is_refused(name: str) -> None:
    for action in (Lab.down, Lab.up):
        with pytest.raises(LabError, match="is no name for a lab"):
            action(name)


def test_a_later_process_of_the_same_pid_is_not_taken_for_the_first() -> None:
    own = ProcessMark.of(os.getpid())
    assert own is not None
    assert own.alive
    stale = ProcessMark(pid=own.pid, started=own.started - 1)
    assert not stale.alive
    stale.kill()
    assert own.alive


def test_the_router_has_the_world_and_answers_for_it(lab_name: str) -> None:
    with Lab.up(lab_name, nodes=1) as lab:
        node = lab.node(1)
        for family in FAMILIES:
            node.run("ip", "route", "add", str(WORLD[family]), "via", str(node.plan.links[family].router))
            answer = ping(node, WORLD[family])
            assert answer.received == 1, answer.text


@pytest.mark.parametrize("number", [0, 61])
def test_there_are_only_so_many_nodes(number: int) -> None:
    with pytest.raises(ValueError, match=f"not {number}"):
        plan_node(number)


def test_no_two_nodes_share_a_number() -> None:
    plans = [plan_node(number) for number in range(1, 61)]
    for family in (Family.IPV6, Family.IPV4):
        assert len({plan.links[family].network for plan in plans} | {plan.cidrs[family] for plan in plans}) == 120
