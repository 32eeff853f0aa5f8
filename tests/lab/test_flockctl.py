"""flockctl on a real node: every command as a table and as JSON, with the agent and without it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from flock.model.family import Family
from flock_lab.cni import Pod
from flock_lab.node import Node

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

FLOCKCTL = str(Path(sys.executable).with_name("flockctl"))
ALGO = {"ip-algo": "namespace,pod,image"}


def flockctl(node: Node, *words: str) -> CompletedProcess[str]:
    return node.run(FLOCKCTL, *words, check=False)


def as_json(node: Node, *words: str, code: int = 0) -> Any:  # noqa: ANN401 - JSON
    done = flockctl(node, *words, "-o", "json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def pod(node: Node) -> Iterator[Pod]:
    made = node.pod("web", "shop", annotations=ALGO)
    yield made
    node.remove(made)


def test_status_of_an_agent_that_serves(node: Node) -> None:
    report = as_json(node, "status")
    assert report["agent"]["serving"]
    assert report["agent"]["node"] == node.name
    assert {*report["agent"]["cidr6"], *report["agent"]["cidr4"]} == set(map(str, node.plan.cidrs.values()))
    text = flockctl(node, "status").stdout
    assert "serving as node" in text
    assert "Established" in text


def test_status_names_a_rival_that_comes_first(node: Node) -> None:
    rival = node.path("/etc/cni/net.d/00-other.conflist")
    rival.write_text("{}")
    try:
        assert as_json(node, "status")["rivals"] == [{"name": rival.name, "wins": True}]
        assert f"{rival.name} comes first" in flockctl(node, "status").stdout
    finally:
        rival.unlink()


def test_pods_lists_them_with_and_without_the_agent(node: Node, pod: Pod) -> None:
    listed = {entry["pod"]: entry for entry in as_json(node, "pods")}
    assert listed["web"]["ip6"] == str(pod.address(Family.IPV6))
    assert "shop/web" in flockctl(node, "pods").stdout
    node.stop_agent()
    assert {entry["pod"] for entry in as_json(node, "pods")} >= {"web"}


def test_ip_decode_names_namespace_and_pod(node: Node, pod: Pod) -> None:
    decoded = as_json(node, "ip", "decode", str(pod.address(Family.IPV6)))
    by_field = {one["field"]: one["matches"] for one in decoded["fields"]}
    assert by_field["namespace"] == ["shop"]
    assert by_field["pod"] == ["web"]
    assert decoded["plausible"]
    assert decoded["holder"]["pod"] == "web"
    assert "in use here by shop/web" in flockctl(node, "ip", "decode", str(pod.address(Family.IPV6))).stdout


def test_ip_prefix_holds_every_pod_of_the_namespace(node: Node, pod: Pod) -> None:
    (prefix,) = as_json(node, "ip", "prefix", "shop")
    shown = flockctl(node, "ip", "prefix", "shop").stdout.strip()
    assert shown == prefix
    assert pod.address(Family.IPV6) in node.plan.cidrs[Family.IPV6]
    bits = int(prefix.split("/")[1])
    network = int(pod.address(Family.IPV6)) >> (128 - bits)
    assert flockctl(node, "ip", "prefix", "shop", "--cidr", str(node.plan.cidrs[Family.IPV6])).stdout.strip() == prefix
    decoded = as_json(node, "ip", "decode", str(pod.address(Family.IPV6)))
    assert network << (128 - bits) <= int(pod.address(Family.IPV6))
    assert decoded["cidr"] == str(node.plan.cidrs[Family.IPV6])


@pytest.mark.parametrize(("words", "said"), [
    (("ip", "decode", "nonsense"), "ADDRESS 'nonsense' is not an IP address"),
    (("ip", "decode", "10.0.0.1"), "ip-algo is for IPv6"),
    (("ip", "decode", "2001:db8:ffff::1"), "is in none of"),
    (("ip", "prefix", "x", "--ip-algo", "colour"), "--ip-algo"),
    (("ip", "prefix", "x", "--cidr", "10.0.0.0/8"), "no IPv6 CIDR"),
])
def test_wrong_words_get_one_sentence_and_no_traceback(node: Node, words: tuple[str, ...], said: str) -> None:
    done = flockctl(node, *words)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_check_finds_what_differs(node: Node, pod: Pod) -> None:
    assert as_json(node, "check")["differences"] == {}
    node.stop_agent()
    assert as_json(node, "check")["differences"] == {}
    node.run("ip", "link", "delete", pod.host_ifname)
    differences = as_json(node, "check", code=1)["differences"]
    assert any("is missing" in what for whats in differences.values() for what in whats)


def test_render_says_what_would_be_written(node: Node) -> None:
    answer = as_json(node, "render")
    assert answer["bird.conf"] == node.path("/etc/flock/bird/bird.conf").read_text()
    assert len(answer["summaries"]) == len(node.plan.cidrs)
    dry = as_json(node, "render", "--manifests", "/etc/flock/manifests", "--node", node.name)
    assert dry["summaries"] == answer["summaries"]


def test_without_the_agent_status_says_so_and_fails(node: Node) -> None:
    node.stop_agent()
    report = as_json(node, "status", code=1)
    assert not report["agent"]["serving"]
    assert "doesn't answer" in report["agent"]["error"]
    assert flockctl(node, "render").returncode == 1
