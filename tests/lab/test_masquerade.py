"""masquerade4: towards a world that has no route back to pods, with real packets."""

import contextlib
import os
import select
import statistics
import sys
import time
from collections.abc import Iterator
from ipaddress import IPv4Network, collapse_addresses

import pytest
from tests.lab.conftest import fresh_name
from tests.lab.test_flockctl import as_json, flockctl

from flock.model.family import Family
from flock.testing.wait import wait_until
from flock_lab import manifests
from flock_lab.cni import Pod
from flock_lab.host import Host
from flock_lab.lab import Lab
from flock_lab.world import OUTSIDE, WHOAMI, make_world, serve_whoami

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

CLUSTER = ("10.64.1.0/24", "10.64.2.0/24")
TABLE = "flock_masquerade"
BAR = 0.1
TIMES = 5


class Talk:
    """One connection of a pod to somebody, that goes on; ``sees`` is whom the other end takes the pod for, now."""

    def __init__(self, ground: "Ground", target: object) -> None:
        self._process = ground.node.pipe(sys.executable, WHOAMI, "talk", str(target), netns=ground.pod.netns)
        self.sees()

    def sees(self) -> str:
        assert self._process.stdout is not None
        now = time.monotonic()
        for line in self._process.stdout:
            at, _, seen = line.decode().partition(" ")
            if float(at) > now:
                return seen.strip().removeprefix("::ffff:")
        raise AssertionError("the connection broke")

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10.0)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Ground:
    """Two nodes with masquerade4, each knowing the other's NodeConfig; pods on both; the world behind the router."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.node, self.other = lab.nodes
        for node, peer in ((self.node, self.other), (self.other, self.node)):
            node.write_manifest("peer", manifests.node_config(peer.plan))
            node.write_config({"masquerade4": True})
        lab.start()
        self.pod, self.far = self.node.pod("here"), self.other.pod("there")
        self.near = self.node.pod("near")
        self.pods = (self.pod, self.near)
        make_world(lab)
        for host, netns in ((self.other, self.far.netns), (self.node, self.near.netns), (self.other, None),
                            (self.node, None)):
            serve_whoami(host, netns)

    def seen(self, target: object, kind: str = "tcp", pod: Pod | None = None) -> str:
        """Which source address a target sees of a pod, or ""."""
        argv = [sys.executable, WHOAMI, kind, str(target)]
        done = self.node.run(*argv, netns=(pod or self.pod).netns, check=False)
        return done.stdout.strip().removeprefix("::ffff:")

    def older(self) -> list[str]:
        """The pods' own addresses, as networks, where they aren't in the node's CIDR any more."""
        addresses = (IPv4Network(str(pod.address(Family.IPV4))) for pod in self.pods)
        return [str(network) for network in collapse_addresses(addresses)]

    @property
    def node_address(self) -> str:
        return str(self.node.plan.address(Family.IPV4))

    @property
    def pod_address(self) -> str:
        return str(self.pod.address(Family.IPV4))

    def table(self) -> str:
        """The table with the handles, which tell what was written anew."""
        return self.node.run("nft", "-a", "list", "table", "ip", TABLE, check=False).stdout

    def await_table(self, *, there: bool = True) -> None:
        wait_until(lambda: bool(self.table()) is there, 10.0, f"the table {'there' if there else 'gone'}")

    def await_outside(self, *cidrs: str) -> None:
        """Wait until the kernel has these as the cluster's."""
        wait_until(lambda: self._outside() == sorted(cidrs), 10.0, f"{cidrs} as the cluster's")

    def _outside(self) -> list[str]:
        told = as_json(self.node, "status")["agent"]["masquerade4"]
        right = flockctl(self.node, "check").returncode == 0
        return sorted(told["outside"]) if told is not None and right else []

    def restart(self) -> None:
        self.node.kill_agent()
        self.node.start_agent()
        self.node.wait_ready()


@pytest.fixture(scope="module")
def made() -> Iterator[Ground]:
    with Lab.up(fresh_name(), nodes=2) as lab:
        yield Ground(lab)


@pytest.fixture
def ground(made: Ground) -> Ground:
    """For a test that changes nothing."""
    return made


@pytest.fixture
def changing(made: Ground) -> Iterator[Ground]:
    """For a test that changes something, which is put back."""
    yield made
    made.node.write_manifest("peer", manifests.node_config(made.other.plan))
    made.node.write_config({"masquerade4": True})
    if made.node.agent is None or made.node.agent.poll() is not None:
        made.node.start_agent()
        made.node.wait_ready()
    made.await_outside(*CLUSTER)


@pytest.fixture
def talk(ground: Ground) -> Iterator[Talk]:
    """A translated connection to the world."""
    made = Talk(ground, OUTSIDE[Family.IPV4])
    yield made
    made.close()


def test_the_world_sees_the_node(ground: Ground) -> None:
    for kind in ("tcp", "udp"):
        assert ground.seen(OUTSIDE[Family.IPV4], kind) == ground.node_address


def test_IPv6_is_never_translated(ground: Ground) -> None:
    for kind in ("tcp", "udp"):
        assert ground.seen(OUTSIDE[Family.IPV6], kind) == str(ground.pod.address(Family.IPV6))


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_pods_see_pods_of_their_node_and_of_others(ground: Ground, kind: str) -> None:
    for target in (ground.near, ground.far):
        for family in (Family.IPV4, Family.IPV6):
            assert ground.seen(target.address(family), kind) == str(ground.pod.address(family))


def test_another_node_sees_the_node_and_the_own_one_sees_the_pod(ground: Ground) -> None:
    assert ground.seen(ground.other.plan.address(Family.IPV4)) == ground.node_address
    assert ground.seen(ground.node.plan.address(Family.IPV4)) == ground.pod_address


def test_without_it_the_world_has_no_way_back(changing: Ground) -> None:
    changing.node.write_config()
    changing.await_table(there=False)
    assert changing.seen(OUTSIDE[Family.IPV4]) == ""
    assert changing.seen(changing.far.address(Family.IPV4)) == changing.pod_address
    changing.node.write_config({"masquerade4": True})
    changing.await_table()
    assert changing.seen(OUTSIDE[Family.IPV4]) == changing.node_address


def test_who_knocks_since_before_it_was_switched_on_is_let_in(changing: Ground) -> None:
    """Where something else keeps conntrack at work, a flow is judged by its first packet alone."""
    node = changing.node
    node.run("nft", "add table ip other; add chain ip other post { type nat hook postrouting priority srcnat; }; "
                    "add rule ip other post meta mark 0x4000 masquerade")
    node.write_config()
    changing.await_table(there=False)
    knocking = node.pipe(sys.executable, WHOAMI, "knock", str(OUTSIDE[Family.IPV4]), netns=changing.pod.netns)
    assert knocking.stdout is not None
    assert knocking.stdout.readline() == b"knocking\n"
    pod = f"src={changing.pod_address} dst={OUTSIDE[Family.IPV4]}"
    wait_until(lambda: pod in node.run("conntrack", "-L", "-p", "udp").stdout, 10.0, "a flow in vain")
    node.write_config({"masquerade4": True})
    answer = knocking.communicate(timeout=20.0)[0].decode().strip()
    assert answer.removeprefix("::ffff:") == changing.node_address
    node.run("nft", "delete table ip other")


def test_a_restart_moves_no_flow_and_writes_nothing(changing: Ground, talk: Talk) -> None:
    before = changing.table()
    changing.node.kill_agent()
    assert changing.seen(OUTSIDE[Family.IPV4]) == changing.node_address
    changing.node.start_agent()
    changing.node.wait_ready()
    assert talk.sees() == changing.node_address
    assert changing.table() == before


def test_new_CIDRs_move_no_flow_and_older_pods_are_translated_still(changing: Ground, talk: Talk) -> None:
    changing.node.write_config({"masquerade4": True, "cidr4": ["10.64.77.0/24"]})
    changing.await_outside("10.64.77.0/24", "10.64.2.0/24", *changing.older())
    assert talk.sees() == changing.node_address
    assert changing.seen(OUTSIDE[Family.IPV4]) == changing.node_address
    late = changing.node.pod("late")
    assert changing.seen(OUTSIDE[Family.IPV4], pod=late) == changing.node_address
    changing.node.remove(late)


def test_the_cluster_is_what_every_NodeConfig_has(changing: Ground) -> None:
    to_far = changing.far.address(Family.IPV4)
    changing.node.remove_manifest("peer")
    changing.await_outside("10.64.1.0/24")
    assert changing.seen(to_far) == changing.node_address
    changing.node.write_manifest("peer", manifests.node_config(changing.other.plan))
    changing.await_outside(*CLUSTER)
    assert changing.seen(to_far) == changing.pod_address


def test_without_a_NodeConfig_it_stays_for_pods_that_run(changing: Ground, talk: Talk) -> None:
    before = changing.table()
    changing.node.remove_manifest("nodeconfig")
    wait_until(lambda: as_json(changing.node, "status")["agent"]["cidr4"] == [], 10.0, "an agent without a NodeConfig")
    assert changing.table() == before
    changing.node.run("nft", "delete", "table", "ip", TABLE)
    changing.await_table()
    assert changing.seen(OUTSIDE[Family.IPV4]) == changing.node_address
    assert talk.sees() == changing.node_address


_CHAIN = "ip flock_masquerade postrouting"
STRANGERS = {
    "delete table": "delete table ip flock_masquerade",
    "flush ruleset": "flush ruleset",
    "flush table": "flush table ip flock_masquerade",
    "add rule": f"add rule {_CHAIN} counter drop",
    "insert rule": f"insert rule {_CHAIN} return",
    "dormant": "add table ip flock_masquerade { flags dormant; }",
    "foreign chain": "add chain ip flock_masquerade mine { type filter hook output priority 0; policy drop; }",
    "delete chain": f"flush chain {_CHAIN}; delete chain {_CHAIN}",
    "other hook": f"flush chain {_CHAIN}; delete chain {_CHAIN}; "
                  f"add chain {_CHAIN} {{ type nat hook postrouting priority 50; }}",
}


@pytest.mark.parametrize("command", STRANGERS.values(), ids=STRANGERS)
def test_what_a_stranger_does_to_it_is_undone_at_once(changing: Ground, command: str) -> None:
    rule = _rules(changing)
    times = []
    with contextlib.closing(_Generations(changing.node)) as generations:
        for _ in range(TIMES):
            changing.node.run("nft", command)
            done = generations.read()
            times.append(generations.read() - done)
            wait_until(lambda: _rules(changing) == rule, 5.0, "the table as it was")
    assert statistics.median(times) < BAR, f"seconds: {times}"
    assert changing.seen(OUTSIDE[Family.IPV4]) == changing.node_address


def test_what_others_do_to_their_tables_wakes_it_and_changes_nothing(ground: Ground) -> None:
    before = ground.table()
    for number in range(20):
        ground.node.run("nft", f"add table ip kube-proxy; add chain ip kube-proxy c{number}")
    ground.node.run("nft", "delete table ip kube-proxy")
    assert ground.table() == before
    assert as_json(ground.node, "check")["node"] == []


def _rules(ground: Ground) -> str:
    return ground.node.run("nft", "list", "table", "ip", TABLE, check=False).stdout


class _Generations:
    """Transactions of a host, as ``nft monitor`` tells them."""

    def __init__(self, host: Host) -> None:
        self._process = host.pipe("nft", "monitor")
        assert self._process.stdout is not None
        self._descriptor = self._process.stdout.fileno()
        self._left = b""
        for _ in range(50):
            host.run("nft", "add table ip probe; delete table ip probe")
            if self._more(0.1):
                break
        while self._more(0.2):
            pass
        self._left = b""

    def read(self) -> float:
        """Wait for the next, and say when that was."""
        while b"# new generation" not in self._left:
            assert self._more(5.0), f"no transaction came; {self._left!r}"
        self._left = self._left.partition(b"# new generation")[2]
        return time.monotonic()

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10.0)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _more(self, seconds: float) -> bool:
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return False
        self._left += os.read(self._descriptor, 65536)
        return True


def test_flockctl_tells_of_it(ground: Ground) -> None:
    node = ground.node
    assert as_json(node, "status")["agent"]["masquerade4"] == {
        "sources": ["10.64.1.0/24"], "outside": ["10.64.1.0/24", "10.64.2.0/24"], "error": ""}
    assert "masquerade 10.64.1.0/24 outside of 10.64.1.0/24, 10.64.2.0/24" in flockctl(node, "status").stdout
    answer = as_json(node, "render")
    assert answer["nft"] in flockctl(node, "render").stdout
    dry = as_json(node, "render", "--manifests", "/etc/flock/manifests", "--node", node.name)
    assert dry["nft"] == answer["nft"] != ""
    assert as_json(node, "check")["node"] == []


def test_a_node_without_nft_serves_and_says_so(changing: Ground) -> None:
    """The program can't be run; what is there already works on, and it is mended once it can."""
    node = changing.node
    program = node.run("sh", "-c", "readlink -f $(command -v nft)").stdout.strip()
    node.run("mount", "--bind", "/dev/null", program)
    try:
        node.write_config({"masquerade4": True, "cidr4": ["10.64.78.0/24"]})
        wait_until(lambda: "nft can't be run" in flockctl(node, "status").stdout, 10.0, "a problem in the status")
        assert changing.seen(OUTSIDE[Family.IPV4]) == changing.node_address
        late = node.pod("late")
        assert changing.seen(OUTSIDE[Family.IPV4], pod=late) == ""
        assert as_json(node, "check", code=1)["node"] != []
        changing.restart()
        assert node.status().code == 0
        node.remove(late)
    finally:
        node.run("umount", program)
    changing.await_outside("10.64.78.0/24", "10.64.2.0/24", *changing.older())
    assert as_json(node, "status")["agent"]["masquerade4"]["error"] == ""


def test_an_agent_whose_masquerade4_is_off_needs_no_nft(changing: Ground) -> None:
    """It takes away what a former agent left without it, too."""
    node = changing.node
    node.kill_agent()
    node.write_config()
    program = node.run("sh", "-c", "readlink -f $(command -v nft)").stdout.strip()
    node.run("mount", "--bind", "/dev/null", program)
    try:
        node.start_agent()
        node.wait_ready()
    finally:
        node.run("umount", program)
    assert changing.table() == ""
    assert as_json(node, "status")["agent"]["loops"]["masquerade"]["failures"] == 0
