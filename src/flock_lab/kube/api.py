"""The cluster's API as tests ask it: a connection from the router's namespace, kept open, and plain JSON.

It shares no code with the agent's client. Invariant: every question has a deadline.

If the process dies on any line: the connection is closed by the kernel.
"""

import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

from flock.model.family import Address
from flock_lab.host import Host
from flock_lab.inside import Entrance
from flock_lab.kube.plan import PORT

_LIMIT = 15.0
_LOST = (ConnectionError, http.client.HTTPException, TimeoutError, OSError)

Document = dict[str, Any]


class ApiFailure(Exception):
    """The API server's own "no"; ``code`` is its HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Api:
    """Questions to one API server; not for several threads at once."""

    def __init__(self, host: Host, address: Address, authority: str, token: str) -> None:
        self._host = host
        self._address = address
        self._context = ssl.create_default_context(cadata=authority)
        self._token = token
        self._connection: http.client.HTTPSConnection | None = None

    def get(self, path: str) -> Document:
        return self.ask("GET", path)

    def find(self, path: str) -> Document | None:
        """The same; None where there is none, or no answer yet: the storage of a new kind takes a moment (429)."""
        try:
            return self.get(path)
        except ApiFailure as error:
            if error.code in {404, 429}:
                return None
            raise

    def items(self, path: str) -> list[Document]:
        return list(self.get(path)["items"])

    def create(self, path: str, document: Mapping[str, object]) -> Document:
        return self.ask("POST", path, document)

    def merge(self, path: str, document: Mapping[str, object]) -> Document:
        return self.ask("PATCH", path, document, "application/merge-patch+json")

    def delete(self, path: str, grace: int | None = None) -> None:
        """Delete one object, or all of a collection; what is gone already is fine."""
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        try:
            self.ask("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
        except ApiFailure as error:
            if error.code != 404:
                raise

    def watch(self, path: str, see: Callable[[float, Document], bool], limit: float = 60.0) -> None:
        """Hand each event to ``see`` with the moment (monotonic) at which it came, until that says False.

        Blocks, on a connection and a thread of its own inside the host; ``limit`` is the longest silence.
        """
        entrance = Entrance(self._host.mark.pid)
        try:
            entrance.call(lambda: self._watch(path, see, limit))
        finally:
            entrance.close()

    def _watch(self, path: str, see: Callable[[float, Document], bool], limit: float) -> None:
        connection = http.client.HTTPSConnection(str(self._address), PORT, timeout=limit, context=self._context)
        try:
            connection.request("GET", f"{path}?watch=1", headers={"Authorization": f"Bearer {self._token}"})
            response = connection.getresponse()
            if response.status >= 400:
                raise ApiFailure(response.status, response.read().decode(errors="replace")[:1000])
            while line := response.readline():
                if not see(time.monotonic(), json.loads(line)):
                    return
        finally:
            connection.close()

    def ready(self) -> bool:
        """Whether the server says that it is; False for one that doesn't answer."""
        try:
            self._send("GET", "/readyz", None, "")
        except (ApiFailure, *_LOST):
            return False
        return True

    def ask(self, method: str, path: str, document: Mapping[str, object] | None = None,
            content_type: str = "application/json") -> Document:
        body = None if document is None else json.dumps(document).encode()
        # The server may have closed the connection long ago, and only what changes nothing can be asked twice.
        if method != "GET":
            self.close()
        try:
            answer = self._send(method, path, body, content_type)
        except _LOST:
            if method != "GET":
                raise
            answer = self._send(method, path, body, content_type)
        found: Document = json.loads(answer)
        return found

    def _send(self, method: str, path: str, body: bytes | None, content_type: str) -> bytes:
        return self._host.call(lambda: self._exchange(method, path, body, content_type))

    def _exchange(self, method: str, path: str, body: bytes | None, content_type: str) -> bytes:
        """One exchange, in the thread that is inside the host."""
        connection, self._connection = self._connection, None
        if connection is None:
            connection = http.client.HTTPSConnection(str(self._address), PORT, timeout=_LIMIT, context=self._context)
        try:
            headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            data = response.read()
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        if response.status >= 400:
            raise ApiFailure(response.status, data.decode(errors="replace")[:1000])
        return data

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
