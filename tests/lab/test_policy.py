"""NetworkPolicy as a node's agent enforces it, from manifests, on real packets."""

import re
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from tests.lab.conftest import fresh_name

from flock.model.family import FAMILIES, Family
from flock.testing.wait import wait_until
from flock_lab.cni import Pod
from flock_lab.host import Host
from flock_lab.lab import Lab
from flock_lab.manifests import pod as pod_manifest
from flock_lab.node import Node
from flock_lab.trace import ping, ping_argv

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

Rules = list[dict[str, object]]
FROM_FRIENDS: Rules = [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}]}]
WAIT = 0.25
"""Seconds for an answer on one machine; one that comes later is asked for again."""
_ANSWER = re.compile(r"bytes from .*icmp_seq=(\d+)")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.up(fresh_name(), nodes=2) as made:
        made.start()
        yield made


@pytest.fixture
def node(lab: Lab) -> Iterator[Node]:
    """The first node; the policies that a test wrote go."""
    node = lab.node(1)
    yield node
    for name in ("policy", "other", "blue", "far"):
        node.remove_manifest(name)
    node.remove_manifest("default")


@pytest.fixture(scope="module")
def server(lab: Lab) -> Pod:
    return labelled(lab.node(1), "server", {"app": "server"})


@pytest.fixture(scope="module")
def client(lab: Lab) -> Pod:
    return labelled(lab.node(1), "client", {"app": "stranger"})


def labelled(node: Node, name: str, labels: Mapping[str, str], **annotations: str) -> Pod:
    sandbox = node.sandbox(name)
    relabel(node, name, sandbox.uid, labels, annotations)
    return Pod(sandbox=sandbox, result=node.add(sandbox).must(f"ADD of {name}"))


def relabel(node: Node, name: str, uid: str, labels: Mapping[str, str],
            annotations: Mapping[str, str] | None = None) -> None:
    text = pod_manifest("default", name, uid=uid, node=node.name, image="example.test/x:1", labels=labels,
                        annotations=annotations)
    node.write_manifest(f"pod-{name}", text)


def write_policy(node: Node, name: str = "policy", **spec: object) -> None:
    node.write_manifest(name, yaml.safe_dump({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name},
        "spec": {"podSelector": {"matchLabels": {"app": "server"}}, **spec}}))


def reaches(host: Host, source: Pod, target: Pod, family: Family) -> bool:
    argv = ping_argv(target.address(family), count=1, wait=WAIT)
    return host.run(*argv, netns=source.netns, check=False).returncode == 0


def answers(log: Path) -> int:
    return len(_ANSWER.findall(log.read_text()))


def must_become(node: Node, source: Pod, target: Pod, *, open_: bool) -> None:
    for family in FAMILIES:
        wait_until(lambda one=family: reaches(node, source, target, one) is open_, 5.0,  # type: ignore[misc]
                   f"{source.name} {'reaches' if open_ else 'no longer reaches'} {target.name} by {family.label}")


def test_R15_a_policy_closes_opens_and_goes_while_pods_run(node: Node, server: Pod, client: Pod) -> None:
    must_become(node, client, server, open_=True)
    write_policy(node)
    must_become(node, client, server, open_=False)
    must_become(node, server, client, open_=True)
    relabel(node, "client", client.sandbox.uid, {"app": "friend"})
    write_policy(node, ingress=FROM_FRIENDS)
    must_become(node, client, server, open_=True)
    relabel(node, "client", client.sandbox.uid, {"app": "stranger"})
    must_become(node, client, server, open_=False)
    node.remove_manifest("policy")
    must_become(node, client, server, open_=True)


def test_R15_egress_closes_too(node: Node, server: Pod, client: Pod) -> None:
    write_policy(node, policyTypes=["Egress"])
    must_become(node, server, client, open_=False)
    must_become(node, client, server, open_=True)


def test_R15_the_node_always_reaches_its_pods(node: Node, server: Pod, client: Pod) -> None:
    write_policy(node, policyTypes=["Ingress", "Egress"])
    must_become(node, client, server, open_=False)
    for family in FAMILIES:
        assert ping(node, server.address(family)).received == 1


def test_R15_pods_of_other_nodes_are_known_by_their_status(lab: Lab, node: Node, server: Pod) -> None:
    far_node = lab.node(2)
    far = labelled(far_node, "far", {"app": "friend"})
    write_policy(node, ingress=FROM_FRIENDS)
    must_become(far_node, far, server, open_=False)
    text = yaml.safe_load(pod_manifest("default", "far", uid=far.sandbox.uid, node=far_node.name, image="x:1",
                                       labels={"app": "friend"}))
    text["status"] = {"phase": "Running", "podIPs": [{"ip": str(far.address(family))} for family in FAMILIES]}
    node.write_manifest("far", yaml.safe_dump(text))
    must_become(far_node, far, server, open_=True)


@pytest.mark.parametrize("open_", [True, False])
def test_R15_a_pod_is_isolated_before_its_first_packet(node: Node, client: Pod, *, open_: bool) -> None:
    """Somebody asks for it all the time, before it is there and after."""
    if not open_:
        write_policy(node)
    heard = 0
    for number in range(10):
        # A released address rests.
        address = node.plan.cidrs[Family.IPV6][(0xA000 if open_ else 0xC000) + number]
        name = f"early-{'open' if open_ else 'closed'}-{number}"
        stream = node.spawn("ping", "-n", "-i", "0.002", str(address), log=name, netns=client.netns)
        new = labelled(node, name, {"app": "server"}, ipv6=str(address))
        assert new.address(Family.IPV6) == address
        if open_:
            log = node.log(name)
            wait_until(lambda log=log: answers(log), 5.0, "an answer")  # type: ignore[misc]
        else:
            assert ping(node, address).received == 1
        node.remove(new)
        stream.terminate()
        stream.wait(10.0)
        heard += answers(node.log(name))
    assert (heard > 0) is open_


def test_R15_what_is_denied_stays_denied_while_the_agent_is_dead_and_starts(
        node: Node, server: Pod, client: Pod) -> None:
    write_policy(node)
    must_become(node, client, server, open_=False)
    denied = node.spawn("ping", "-n", "-i", "0.005", str(server.address(Family.IPV6)), log="denied", netns=client.netns)
    node.kill_agent()
    node.start_agent()
    node.wait_ready()
    node.stop_agent()
    node.start_agent()
    node.wait_ready()
    denied.terminate()
    denied.wait(10.0)
    assert answers(node.log("denied")) == 0


@pytest.mark.parametrize("harm", [
    "flush ruleset", "delete table inet flock", "flush chain inet flock feg", "flush map inet flock inm",
    "delete chain inet flock fin",
])
def test_R15_what_a_stranger_does_to_the_rules_is_undone(node: Node, server: Pod, client: Pod, harm: str) -> None:
    write_policy(node)
    must_become(node, client, server, open_=False)
    node.run("nft", harm)
    must_become(node, client, server, open_=False)
    node.remove_manifest("policy")
    must_become(node, client, server, open_=True)


def test_a_bad_policy_is_refused_and_the_last_good_one_stays(node: Node, server: Pod, client: Pod) -> None:
    write_policy(node)
    must_become(node, client, server, open_=False)
    write_policy(node, ingress=[{"from": [{"ipBlock": {"cidr": "10.0.0.0/99"}}]}])
    wait_until(lambda: "is not a CIDR" in node.agent_log(), 5.0, "the problem in the log")
    must_become(node, client, server, open_=False)


def test_R15_a_set_that_a_stranger_emptied_is_filled_again(node: Node, server: Pod, client: Pod) -> None:
    relabel(node, "client", client.sandbox.uid, {"app": "friend"})
    write_policy(node, ingress=FROM_FRIENDS)
    must_become(node, client, server, open_=True)
    wait_until(lambda: set_of_friends(node), 5.0, "a set with the friend")
    name = set_of_friends(node)
    node.run("nft", "flush", "set", "inet", "flock", name)
    wait_until(lambda: set_of_friends(node) == name, 5.0, "the friend in the set again")
    must_become(node, client, server, open_=True)
    relabel(node, "client", client.sandbox.uid, {"app": "stranger"})


def set_of_friends(node: Node) -> str:
    """The set that holds an IPv6 address, "" while none does."""
    listed = node.run("nft", "list", "table", "inet", "flock").stdout
    found = re.search(r"set (s\w+_6) \{\s+type ipv6_addr\s+elements", listed)
    return found[1] if found else ""


def test_R15_rules_that_are_written_anew_cost_an_open_pod_no_packet(node: Node, server: Pod, client: Pod) -> None:
    """As at the first start of an agent that enforces policy, under pods that run."""
    must_become(node, client, server, open_=True)
    address = server.address(Family.IPV6)
    stream = node.spawn("ping", "-n", "-i", "0.002", str(address), log="open", netns=client.netns)
    for _ in range(5):
        before = answers(node.log("open"))
        node.run("nft", "delete", "table", "inet", "flock")
        wait_until(lambda: "hook forward" in node.run("nft", "list", "ruleset").stdout, 5.0, "the frame")
        wait_until(lambda count=before: answers(node.log("open")) > count + 50, 5.0, "answers")  # type: ignore[misc]
    stream.send_signal(signal.SIGINT)
    stream.wait(10.0)
    said = re.search(r"(\d+) packets transmitted, (\d+) received", node.log("open").read_text())
    assert said is not None
    assert int(said[1]) - int(said[2]) <= 1  # the one under way at the end


def test_R15_a_pod_that_is_followed_by_another_of_its_name_stays_closed(node: Node, client: Pod) -> None:
    """Its object is gone and its successor's is there while its sandbox still runs."""
    old = labelled(node, "twin", {"app": "server"})
    write_policy(node)
    must_become(node, client, old, open_=False)
    relabel(node, "twin", "another-uid", {"app": "stranger"})
    wait_until(lambda: "another" in node.path("/etc/flock/manifests/pod-twin.yaml").read_text(), 5.0, "the file")
    must_become(node, client, labelled(node, "after-twin", {"app": "stranger"}), open_=True)
    for family in FAMILIES:
        assert not reaches(node, client, old, family)
    node.remove_manifest("pod-twin")
    must_become(node, client, labelled(node, "after-gone", {"app": "stranger"}), open_=True)
    for family in FAMILIES:
        assert not reaches(node, client, old, family)


def flockctl(node: Node, *words: str) -> tuple[int, str]:
    done = node.run(sys.executable, "-m", "flock.cli.main", *words, check=False)
    return done.returncode, done.stdout + done.stderr


def test_an_operator_sees_which_policy_closes_a_pod(node: Node, server: Pod, client: Pod) -> None:
    write_policy(node, "closed")
    must_become(node, client, server, open_=False)
    code, said = flockctl(node, "policy", "show")
    assert code == 0
    assert re.search(r"default/server +default/closed +open", said)
    code, said = flockctl(node, "policy", "explain", "default/client", "default/server", "--port", "80")
    assert code == 1
    assert "isolated by default/closed, and no rule allows it" in said
    assert str(server.address(Family.IPV4)) in said
    code, said = flockctl(node, "policy", "explain", "default/server", "default/client", "--protocol", "icmp")
    assert (code, "no policy selects it" in said) == (0, True)
    code, said = flockctl(node, "policy", "explain", "default/nobody", "default/client", "--port", "80")
    assert (code, said) == (1, "flockctl: pod default/nobody has no address that this node knows\n")
    node.remove_manifest("closed")
