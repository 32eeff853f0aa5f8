"""What the agent waits for at its start: its NodeConfig (R2) and a whole view (R4)."""

import asyncio
from pathlib import Path

import pytest

from flock.agent.start import await_node_config
from flock.agent.unserved import unserved
from flock.api.node_config import parse_node_config
from flock.cluster.manifests import ManifestsFolder
from flock.cluster.view import Snapshot, View
from flock.errors import NodeConfigMissing, TryAgain

CONFIG = {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "a"},
          "spec": {"cidr6": ["2001:db8::/64"]}}

POD = """
apiVersion: v1
kind: Pod
metadata: {name: here, namespace: ns}
spec: {nodeName: a}
"""


async def test_R2_a_node_config_that_does_not_come_is_a_clear_error() -> None:
    with pytest.raises(TryAgain, match=r"NodeConfig a did not appear within 0\.01 s"):
        await await_node_config(View(), "a", patience=0.01)


async def test_R2_the_wait_ends_when_it_appears() -> None:
    view = View()
    waiting = asyncio.ensure_future(await_node_config(view, "a", patience=5.0))
    await asyncio.sleep(0)
    view.replace(Snapshot(node_configs={"a": parse_node_config(CONFIG, strict=True)}))
    await waiting
    assert view.node_config("a") is not None


async def test_a_node_that_was_served_is_not_kept_waiting_for_what_is_known_not_to_be_there() -> None:
    view = View()
    waiting = asyncio.ensure_future(await_node_config(view, "a", served=True))
    await asyncio.sleep(0)
    assert not waiting.done()
    view.replace(Snapshot(complete=True))
    with pytest.raises(NodeConfigMissing, match="NodeConfig a "):
        await waiting
    with pytest.raises(NodeConfigMissing, match="not everything that comes before it is known yet"):
        await await_node_config(View(), "a", 0.01, served=True)


async def test_R4_nothing_is_known_before_the_whole_folder_was_read(tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text(POD)
    folder = ManifestsFolder(tmp_path, "a", asyncio.get_running_loop())
    before = folder.view.snapshot
    await folder.start()
    folder.close()
    assert (before.complete, dict(before.pods)) == (False, {})
    assert folder.view.complete
    assert folder.view.pod("ns", "here") is not None


def test_what_is_configured_without_effect_is_named() -> None:
    spec = {"cidr6": ["2001:db8::/64"], "anycast": [{"cidr": "2001:db8:53::/64"}],
            "bgp": {"asn": 64513, "mesh": True}}
    sentences = unserved(parse_node_config({**CONFIG, "spec": spec}, strict=True).spec)
    named = [sentence.split(" has ")[0] for sentence in sentences]
    assert named == ["spec.anycast", "spec.bgp.mesh"]
    assert not list(unserved(parse_node_config(CONFIG, strict=True).spec))
