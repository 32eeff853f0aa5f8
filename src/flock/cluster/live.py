"""Single objects as the API server has them now, for when the view's moment of delay would matter.

A read without a resource version is answered from etcd's quorum: what it says happened before is true.

If the process dies on any line: nothing is written.
"""

from typing import TypeVar

from flock.api.names import parse_object_name
from flock.api.objects import NamespaceView, PodView
from flock.cluster.client import ApiClient
from flock.cluster.errors import ApiNotFound
from flock.cluster.resources import NAMESPACES, Resource, namespaces, pods_of
from flock.cluster.watch import Damaged
from flock.errors import IOFailure

V = TypeVar("V")


class LiveReads:
    """None where there is no such object; a FlockError where nothing is known."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._pods = pods_of("")
        self._namespaces = namespaces()

    async def pod(self, namespace: str, name: str) -> PodView | None:
        if not (_is_name(namespace) and _is_name(name)):
            return None
        return await self._read(self._pods, f"{NAMESPACES}/{namespace}/pods/{name}")

    async def namespace(self, name: str) -> NamespaceView | None:
        if not _is_name(name):
            return None
        return await self._read(self._namespaces, f"{NAMESPACES}/{name}")

    async def _read(self, resource: Resource[V], path: str) -> V | None:
        try:
            body = await self._client.get(path)
        except ApiNotFound:
            return None
        found = resource.reader.one(body)
        if isinstance(found.value, Damaged):
            raise IOFailure(f"{found.value.name} can't be used", found.value.reason)
        return found.value


def _is_name(text: str) -> bool:
    """Whether an object may have this name: a name that isn't one could lead to another path."""
    try:
        parse_object_name(text)
    except ValueError:
        return False
    return True
