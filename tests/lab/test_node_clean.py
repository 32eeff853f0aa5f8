"""``flockctl node``: programs put on a node, and flock taken off one, on a node where all of it is real."""

import sys

from flock.model import ownership as own
from flock.testing.wait import wait_until
from flock_lab.lab import Lab
from flock_lab.node import Node


def flockctl(node: Node, *words: str) -> tuple[int, str]:
    done = node.run(sys.executable, "-m", "flock.cli.main", "node", *words, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_node_with_pods_isnt_cleaned_and_one_without_keeps_nothing_of_flock(lab_name: str) -> None:
    with Lab.up(lab_name, nodes=1) as lab:
        node = lab.node(1)
        lab.start()
        node.write_config({"masquerade4": True})
        shipped = node.path("/run/shipped")
        shipped.mkdir()
        for name in ("flock", "portmap"):
            (shipped / name).write_bytes(node.path(own.CNI_BIN_DIR / "flock").read_bytes())
        assert flockctl(node, "install", "--from", "/run/shipped")[0] == 0
        pod = node.pod("last")
        for words in (["clean"], ["clean", "--force"]):
            code, said = flockctl(node, *words)
            assert (code, "an agent runs on this node" in said) == (1, True), said
        node.stop_agent()
        node.kill_bird()
        code, said = flockctl(node, "clean")
        assert (code, "1 pods have addresses" in said) == (1, True), said
        assert node.path(own.CNI_CONF_DIR / own.CONFLIST_NAME).exists(), "nothing was done"
        node.remove(pod)  # to the queue, which no agent will drain; its link goes with its netns, a moment later
        wait_until(lambda: flockctl(node, "clean")[0] == 0, 20.0, "a clean node")
        must_be_clean(node)
        assert flockctl(node, "clean")[0] == 0, "again does no harm"


def must_be_clean(node: Node) -> None:
    assert list(node.path(own.CNI_CONF_DIR).iterdir()) == []
    assert list(node.path(own.CNI_BIN_DIR).iterdir()) == []
    assert list(node.path(own.RUN_DIR).iterdir()) == []
    assert list(node.path(own.BIRD_CONFIG.parent).iterdir()) == []
    assert "flock" not in node.run("nft", "list", "ruleset").stdout
    for family in ("-4", "-6"):
        for proto in (str(own.PROTO_HOME), str(own.PROTO_ANNOUNCED)):
            assert node.run("ip", family, "route", "show", "table", "all", "proto", proto).stdout == ""
