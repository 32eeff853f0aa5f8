"""What ``kubectl apply`` takes of NodeConfigs is what the agent takes: the same objects for its parser and for a real
kube-apiserver that has the CRD (where its programs are built, as for ``make test-cluster``).
"""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.contract.node_configs import BAD, GOOD, STRICTER, Change, node_config

from flock.api.crd import node_config_crd
from flock.api.node_config import parse_node_config
from flock.api.problems import InvalidObject
from flock.cluster.client import ApiClient
from flock.cluster.errors import ApiConflict, ApiNotFound, ApiRefused
from flock.cluster.resources import NODE_CONFIGS
from flock.errors import FlockError
from flock.system.clock import SystemClock
from flock.testing.wait import await_until
from flock_lab import real_api

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STRICT = {"fieldValidation": "Strict", "dryRun": "All"}


def agent_says(thing: object) -> str:
    """Why the agent refuses it, or ""."""
    try:
        parse_node_config(thing, strict=True)
    except InvalidObject as error:
        return str(error)
    return ""


@pytest.mark.parametrize("change", GOOD, ids=str)
def test_the_agent_takes(change: Change) -> None:
    assert agent_says(node_config(change)) == ""


@pytest.mark.parametrize("change", BAD, ids=str)
def test_the_agent_refuses(change: Change) -> None:
    assert agent_says(node_config(change))


@pytest.mark.parametrize("change", STRICTER, ids=str)
def test_the_agent_takes_what_only_the_server_refuses(change: Change) -> None:
    assert agent_says(node_config(change)) == ""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_api.RealApi]:
    if not real_api.available():
        pytest.skip("no kube-apiserver: run .venv/bin/python -m flock_lab.gobuild kubernetes")
    with real_api.running(tmp_path_factory.mktemp("crd")) as running:
        yield running


@pytest_asyncio.fixture
async def client(real: real_api.RealApi) -> AsyncIterator[ApiClient]:
    """A client of a server that serves NodeConfigs."""
    async with contextlib.AsyncExitStack() as stack:
        client = ApiClient(real.access, SystemClock())
        stack.push_async_callback(client.close)
        await await_until(lambda: client.get("/api/v1/namespaces/default"), 60, "the API server answers",
                          forgive=(FlockError,))
        with contextlib.suppress(ApiConflict):
            await client.create(CRDS, json.dumps(node_config_crd()).encode())
        await await_until(lambda: client.get(NODE_CONFIGS), 30, "NodeConfigs are served", forgive=(FlockError,))
        await await_until(lambda: server_says(client, node_config({"spec": 1})), 30, "and checked")
        yield client


async def server_says(client: ApiClient, thing: dict[str, Any]) -> str:
    """Why the API server refuses it, or ""."""
    try:
        await client.create(NODE_CONFIGS, json.dumps(thing).encode(), STRICT)
    except (ApiRefused, ApiNotFound) as error:
        return str(error)
    return ""


async def disagreements(client: ApiClient, changes: Sequence[Change], *, taken: bool) -> list[tuple[Change, str]]:
    found = []
    for change in changes:
        said = await server_says(client, node_config(change))
        if taken is bool(said):
            found.append((change, said))
    return found


async def test_the_server_takes_what_the_agent_takes(client: ApiClient) -> None:
    assert await disagreements(client, GOOD, taken=True) == []


async def test_the_server_refuses_what_the_agent_refuses(client: ApiClient) -> None:
    assert await disagreements(client, BAD, taken=False) == []


async def test_the_server_is_stricter_where_it_is_said(client: ApiClient) -> None:
    assert await disagreements(client, STRICTER, taken=False) == []


async def test_what_the_server_stores_the_agent_takes(client: ApiClient) -> None:
    """The server gives back what it was given, or something that means the same."""
    for change in GOOD:
        thing = node_config(change)
        answer = json.loads(await client.create(NODE_CONFIGS, json.dumps(thing).encode(), STRICT))
        assert parse_node_config({key: answer[key] for key in ("apiVersion", "kind", "metadata", "spec")}, strict=True
                                 ).spec == parse_node_config(thing, strict=True).spec


async def test_a_refusal_names_field_and_rule(client: ApiClient) -> None:
    said = await server_says(client, node_config({"spec.cidr4": ["10.0.0.0/24", "10.0.0.128/25"],
                                                  "spec.hostRoutes": ["192.0.2.0/24"]}))
    assert "spec.cidr4" in said
    assert "none that overlaps another" in said
    assert "hostRoutes must lie in the node's CIDRs" in said


def test_there_are_more_than_a_hundred() -> None:
    assert len(GOOD) + len(BAD) > 100


def test_the_deployed_file_has_no_tabs() -> None:
    assert "\t" not in (Path(__file__).resolve().parents[2] / "deploy" / "kubernetes" / "crd.yaml").read_text()
