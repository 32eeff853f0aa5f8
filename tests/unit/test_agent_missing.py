"""An agent without a NodeConfig says so where somebody looks (R2)."""

import json
from pathlib import Path

import pytest

from flock.agent.api_source import ApiSource
from flock.agent.start import await_node_config
from flock.api.objects import NodeView
from flock.cluster.view import Snapshot, View
from flock.errors import NodeConfigMissing
from flock.system.clock import SystemClock
from flock.testing.api_server import ApiServer
from flock.testing.api_store import KINDS

EVENTS = next(kind for kind in KINDS if kind.plural == "events")


def kubeconfig(folder: Path, url: str) -> Path:
    path = folder / "kubeconfig"
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}], "users": [{"name": "u", "user": {}}]}))
    return path


async def test_R2_a_missing_node_config_is_an_event_on_the_node(tmp_path: Path) -> None:
    async with ApiServer() as api:
        api.put({"kind": "Node", "metadata": {"name": "n1", "uid": "node-uid"}})
        source = ApiSource(kubeconfig(tmp_path, api.url), "n1", SystemClock())
        await source.start()
        await source.listed()
        await source.tell_missing(NodeConfigMissing("NodeConfig n1 did not appear within 60 s"))
        await source.close()
        (event,) = [one.object for one in api.store.all(EVENTS)]
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid"}
    assert (event["reason"], event["message"]) == ("NodeConfigMissing", "NodeConfig n1 did not appear within 60 s")


async def test_R2_an_event_that_cant_be_written_is_no_other_error(tmp_path: Path) -> None:
    async with ApiServer() as api:
        api.put({"kind": "Node", "metadata": {"name": "n1"}})
        api.fail(403, path="/events")
        source = ApiSource(kubeconfig(tmp_path, api.url), "n1", SystemClock())
        await source.start()
        await source.listed()
        await source.tell_missing(NodeConfigMissing("x"))
        await source.close()


async def test_R2_a_node_config_that_cant_be_used_is_told_from_one_that_isnt_there() -> None:
    view = View()
    view.replace(Snapshot(nodes={"a": NodeView(name="a")}, refusal="spec.cidr6 must be a list", complete=True))
    with pytest.raises(NodeConfigMissing, match=r"can't be used: spec.cidr6 must be a list"):
        await await_node_config(view, "a", patience=0.01)


async def test_R2_an_unknown_node_config_is_told_from_a_missing_one() -> None:
    with pytest.raises(NodeConfigMissing, match=r"did not appear .* not everything that comes before it is known yet"):
        await await_node_config(View(), "a", patience=0.01)
