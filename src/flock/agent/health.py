"""/healthz, /readyz and /metrics over HTTP, in a thread of their own.

/healthz: 200 while the agent's loops run, with each loop's state. /readyz: 200 once the agent serves CNI. /metrics: the
Prometheus text format. A scrape is ten milliseconds of work, so it must not run in the event loop.

If the process dies on any line: a scrape fails.
"""

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from flock.errors import IOFailure

log = logging.getLogger("flock.health")


class HealthSource(Protocol):
    """What the server asks. Both are called from its threads."""

    def ready(self) -> tuple[bool, str]: ...

    def health(self) -> tuple[bool, dict[str, object]]: ...


class _Quiet(WSGIRequestHandler):
    timeout = 10

    def log_message(self, format: str, *args: object) -> None:
        log.debug(format, *args)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Bind without looking the host's name up, which costs 5 s where no DNS answers."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class HealthServer:
    """Serves until the process ends; ``fold`` brings the metrics up to date before each scrape."""

    def __init__(
        self, listen: tuple[str, int], source: HealthSource, registry: CollectorRegistry, fold: Callable[[], None]
    ) -> None:
        self._source = source
        self._fold = fold
        self._metrics = make_wsgi_app(registry)
        kind = _Server6 if ":" in listen[0] else _Server
        try:
            self._server = kind(listen, _Quiet)
        except OSError as error:
            raise IOFailure(f"the health server can't listen on {listen[0]} port {listen[1]}", str(error)) from error
        self._server.set_app(self._answer)
        # The poll is only for close(): a long one keeps an idle agent asleep.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(30,), name="health", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def start(self) -> None:
        self._thread.start()

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            self._fold()
            answer: Iterable[bytes] = self._metrics(environ, start)
            return answer
        if path == "/readyz":
            good, text = self._source.ready()
            body = (text + "\n").encode()
        elif path == "/healthz":
            good, state = self._source.health()
            body = json.dumps(state, indent=1, default=str).encode() + b"\n"
        else:
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"/healthz, /readyz or /metrics\n"]
        start("200 OK" if good else "503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
        return [body]
