"""What an agent writes, asked of the fake API server and of a real one that has the CRD: nothing is lost, nothing of
others is touched, and failures are those that the loops know.
"""

import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.contract.test_api_server import Server, decode, opened, real_server

from flock.agent.conditions import Condition, FamilyUse, conditions_of
from flock.agent.event_log import EventLog, Subject, Told
from flock.agent.node_status import build_status
from flock.api.crd import node_config_crd
from flock.api.names import API_VERSION
from flock.api.node_config import NodeConfig, NodeConfigSpec
from flock.cluster.errors import ApiConflict, ApiForbidden, ApiNotFound
from flock.cluster.resources import NODE_CONFIGS, NODES
from flock.cluster.writes import ApiWrites
from flock.errors import FlockError
from flock.model.family import Family
from flock.testing.wait import await_until
from flock_lab import real_api

WALL = 1_800_000_000.0
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_api.RealApi | None]:
    folder: Path = tmp_path_factory.mktemp("writes")
    yield from real_server(folder)


@pytest_asyncio.fixture(params=["fake", "real"])
async def server(request: pytest.FixtureRequest, real: real_api.RealApi | None) -> AsyncIterator[Server]:
    async for one in opened(request.param, real if request.param == "real" else None):
        if request.param == "real":
            await define(one)
        yield one


async def define(server: Server) -> None:
    try:
        await server.create(CRDS, node_config_crd())
    except ApiConflict:
        return
    await await_until(lambda: server.client.get(NODE_CONFIGS), 30, "the CRD's objects", forgive=(FlockError,))


@pytest.fixture
def name() -> str:
    """Of a Node and its NodeConfig, which live in no namespace."""
    return f"node-{next(NUMBERS)}"


async def make_node(server: Server, name: str, *conditions: Mapping[str, str]) -> None:
    await server.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                                "status": {"conditions": list(conditions)}})


async def make_config(server: Server, name: str) -> dict[str, Any]:
    return await server.create(NODE_CONFIGS, {
        "apiVersion": API_VERSION, "kind": "NodeConfig", "metadata": {"name": name}, "spec": {"mtu": 1500}})


async def read(server: Server, path: str) -> dict[str, Any]:
    return decode(await server.client.get(path))


# The Node's condition


async def test_R6_one_condition_is_written_and_the_others_stay(server: Server, name: str) -> None:
    await make_node(server, name, {"type": "Ready", "status": "True", "reason": "KubeletReady"},
                    {"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated", "message": "m"})
    writes = ApiWrites(server.client, name)
    await writes.node_condition({
        "type": "NetworkUnavailable", "status": "False", "reason": "FlockIsServing", "message": "flock serves",
        "lastHeartbeatTime": "2027-01-15T08:00:00Z", "lastTransitionTime": "2027-01-15T08:00:00Z"})
    found = {one["type"]: one for one in (await read(server, f"{NODES}/{name}"))["status"]["conditions"]}
    assert found["NetworkUnavailable"] == {
        "type": "NetworkUnavailable", "status": "False", "reason": "FlockIsServing", "message": "flock serves",
        "lastHeartbeatTime": "2027-01-15T08:00:00Z", "lastTransitionTime": "2027-01-15T08:00:00Z"}
    assert found["Ready"]["reason"] == "KubeletReady"


async def test_R6_a_condition_that_was_never_there_is_made(server: Server, name: str) -> None:
    await make_node(server, name, {"type": "Ready", "status": "True"})
    await ApiWrites(server.client, name).node_condition({"type": "NetworkUnavailable", "status": "False"})
    assert {one["type"] for one in (await read(server, f"{NODES}/{name}"))["status"]["conditions"]} == {
        "Ready", "NetworkUnavailable"}


async def test_R6_a_node_that_is_not_registered_yet_is_not_found(server: Server, name: str) -> None:
    with pytest.raises(ApiNotFound):
        await ApiWrites(server.client, name).node_condition({"type": "NetworkUnavailable", "status": "False"})


# The NodeConfig's status


def full_status(name: str) -> dict[str, object]:
    """A status in which every field is there."""
    config = NodeConfig(name=name, generation=1, unknown=("spec.colour",), spec=NodeConfigSpec(
        cidr6=(IPv6Network("2001:db8::/64"),), cidr4=(IPv4Network("10.0.0.0/24"),)))
    uses = [FamilyUse(family=Family.IPV6, used=1, resting=2, free=None),
            FamilyUse(family=Family.IPV4, used=1, resting=2, free=0)]
    conditions: list[Condition] = list(conditions_of(config, overlaps=(), refused_peers={"b": "why"}, uses=uses))
    peers: list[dict[str, object]] = [
             {"name": "a", "address": "2001:db8::1", "asn": 64512, "state": "Established",
              "since": "2027-01-15T08:00:00Z", "imported": 2, "exported": 1},
             {"name": "b", "state": "LeftOut", "reason": "why"}]
    return build_status(config, {}, conditions=conditions, uses=uses, peers=peers, wall=WALL)


async def test_a_status_is_kept_whole_and_the_spec_is_not_touched(server: Server, name: str) -> None:
    made = await make_config(server, name)
    writes = ApiWrites(server.client, name)
    assert await writes.read_status() == {}
    await writes.status(full_status(name))
    found = await read(server, f"{NODE_CONFIGS}/{name}")
    assert found["status"] == full_status(name), "the schema knows every field"
    assert (found["spec"], found["metadata"]["generation"]) == (made["spec"], made["metadata"]["generation"])
    assert await writes.read_status() == full_status(name)


async def test_the_same_status_again_changes_nothing_that_a_watch_would_see(server: Server, name: str) -> None:
    await make_config(server, name)
    writes = ApiWrites(server.client, name)
    versions = []
    for _ in range(2):
        await writes.status(full_status(name))
        versions.append((await read(server, f"{NODE_CONFIGS}/{name}"))["metadata"]["resourceVersion"])
    assert versions[0] == versions[1]


async def test_lists_of_a_status_are_replaced_whole(server: Server, name: str) -> None:
    await make_config(server, name)
    writes = ApiWrites(server.client, name)
    await writes.status(full_status(name))
    await writes.status({"peers": [], "peersUp": ""})
    found = await writes.read_status()
    assert (found["peers"], found["peersUp"]) == ([], "")
    assert found["conditions"] == full_status(name)["conditions"]


async def test_the_status_of_no_node_config_is_not_found(server: Server, name: str) -> None:
    writes = ApiWrites(server.client, name)
    with pytest.raises(ApiNotFound):
        await writes.read_status()
    with pytest.raises(ApiNotFound):
        await writes.status({"peersUp": "0/0"})


# Events


def noted(*, namespace: str, message: str = "no free address", kind: str = "Pod") -> tuple[EventLog, Told]:
    log = EventLog("n1", "salt")
    version = "v1" if kind == "Pod" else API_VERSION
    log.note(Subject(api_version=version, kind=kind, namespace=namespace, name="web-0", uid="u"), "NoFreeAddress",
             message, WALL)
    (told,) = log.due(0.0)
    return log, told


async def test_an_event_is_made_once_and_counts_from_then_on(server: Server) -> None:
    writes, namespace = ApiWrites(server.client, "n1"), server.namespace
    log, told = noted(namespace=namespace)
    await writes.create_event(namespace, log.document(told))
    with pytest.raises(ApiConflict):
        await writes.create_event(namespace, log.document(told))
    log.note(told.subject, told.reason, told.message, WALL + 60)
    await writes.repeat_event(namespace, log.name(told), log.changes(told))
    found = await read(server, f"/api/v1/namespaces/{namespace}/events/{log.name(told)}")
    assert (found["count"], found["firstTimestamp"], found["lastTimestamp"]) == (
        2, "2027-01-15T08:00:00Z", "2027-01-15T08:01:00Z")
    assert (found["type"], found["reason"], found["message"]) == ("Warning", "NoFreeAddress", "no free address")
    assert found["involvedObject"]["uid"] == "u"


async def test_an_event_about_what_has_no_namespace_lives_in_default(server: Server) -> None:
    log, told = noted(namespace="", kind="NodeConfig", message=f"by {server.namespace}")
    await ApiWrites(server.client, "n1").create_event(told.namespace, log.document(told))
    assert (await read(server, f"/api/v1/namespaces/default/events/{log.name(told)}"))["count"] == 1


async def test_the_longest_message_is_taken_whatever_it_is_made_of(server: Server) -> None:
    log, told = noted(namespace=server.namespace, message="ü" * 5000)
    await ApiWrites(server.client, "n1").create_event(server.namespace, log.document(told))


async def test_events_without_a_place_are_not_found(server: Server) -> None:
    writes = ApiWrites(server.client, "n1")
    log, told = noted(namespace="nowhere")
    with pytest.raises(ApiNotFound):
        await writes.create_event("nowhere", log.document(told))
    with pytest.raises(ApiNotFound):
        await writes.repeat_event(server.namespace, log.name(told), log.changes(told))


async def test_a_namespace_that_is_being_deleted_takes_no_events(
        server: Server, request: pytest.FixtureRequest) -> None:
    if "real" not in request.node.name:
        pytest.skip("the fake's namespaces are gone at once")
    await server.send("DELETE", f"/api/v1/namespaces/{server.namespace}")
    log, told = noted(namespace=server.namespace)
    with pytest.raises(ApiForbidden) as caught:
        await ApiWrites(server.client, "n1").create_event(server.namespace, log.document(told))
    assert caught.value.status == 403
