"""What an agent writes to the Kubernetes API: one condition of its Node, its NodeConfig's status, Events.

Invariant: each write touches only what is flock's: the one condition of that type (a strategic merge by type, which no
other writer's conditions notice; server-side apply would do the same, by force against whoever wrote last), the status
subresource of this node's own NodeConfig, Events of flock's own naming.

If the process dies on any line: a write happened or it didn't; the next start writes what differs.
"""

from collections.abc import Mapping

import msgspec

from flock.cluster.client import MERGE_PATCH, STRATEGIC_MERGE_PATCH, ApiClient
from flock.cluster.resources import NODE_CONFIGS, NODES

_ENCODE = msgspec.json.Encoder(order="deterministic").encode


class ApiWrites:
    """Errors are those of ``flock.cluster.errors``; whoever calls tries again."""

    def __init__(self, client: ApiClient, node: str) -> None:
        self._client = client
        self._node = node

    async def node_condition(self, condition: Mapping[str, object]) -> None:
        """Set one condition of this Node."""
        body = _ENCODE({"status": {"conditions": [condition]}})
        await self._client.patch(f"{NODES}/{self._node}/status", body, STRATEGIC_MERGE_PATCH)

    async def read_status(self) -> Mapping[str, object]:
        """The status of this node's NodeConfig; empty where it has none. ApiNotFound: no such NodeConfig."""
        found = msgspec.json.decode(await self._client.get(f"{NODE_CONFIGS}/{self._node}"))
        status = found.get("status") if isinstance(found, dict) else None
        return status if isinstance(status, dict) else {}

    async def status(self, status: Mapping[str, object]) -> None:
        """Replace the named parts of this node's NodeConfig's status; lists are replaced whole."""
        await self._client.patch(f"{NODE_CONFIGS}/{self._node}/status", _ENCODE({"status": status}), MERGE_PATCH)

    async def create_event(self, namespace: str, event: Mapping[str, object]) -> None:
        """ApiConflict: there is one of that name."""
        await self._client.create(_events(namespace), _ENCODE(event))

    async def repeat_event(self, namespace: str, name: str, changes: Mapping[str, object]) -> None:
        """Say that it happened again. ApiNotFound: the API server has forgotten it."""
        await self._client.patch(f"{_events(namespace)}/{name}", _ENCODE(changes), MERGE_PATCH)


def _events(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/events"
