"""A Kubernetes API server for tests, in the test's own process: strict like the real one, and able to fail on demand.

``tests/contract/test_api_server.py`` holds it to what a real kube-apiserver does. What it knows: lists in pages of one
moment, watches with bookmarks and replay, compaction, the four kinds of patch, status subresources, conflicts,
graceful deletion of pods, bearer tokens, TLS. Faults are methods and attributes of ``ApiServer``.

If the process dies on any line: nothing is left.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec
from aiohttp import web

from flock.testing.api_list import (
    BadRequest,
    Selects,
    decode_continue,
    encode_continue,
    read_selectors,
    render_added,
    render_bookmark,
    render_error,
    render_event,
    render_list,
    status,
)
from flock.testing.api_store import KINDS, Key, Kind, Object, Store, Stored
from flock.testing.api_writes import Refused, Write, Writes


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request that came in."""

    method: str
    path: str
    query: Mapping[str, str]
    token: str

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch", "") in {"1", "true"}

    @property
    def is_list(self) -> bool:
        return self.method == "GET" and "limit" in self.query


@dataclass(slots=True, kw_only=True)
class Fault:
    """What the next ``times`` requests whose path has ``path`` in it get, of lists, watches or both."""

    status: int
    path: str = ""
    times: int = 1
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    watch: bool | None = None
    skip: int = 0

    def fits(self, seen: Seen) -> bool:
        if self.times <= 0 or self.path not in seen.path or self.watch not in {None, seen.is_watch}:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True


@dataclass(slots=True, eq=False)
class _Watch:
    """One open watch: where it is, and lines that a test wants to see in it."""

    kind: Kind
    selects: Selects
    version: int
    bookmarks: bool
    wake: asyncio.Event
    injected: list[bytes] = field(default_factory=list)
    over: bool = False


class ApiServer:
    """``await start()`` opens it at ``url``, on the same port again after ``stop()``."""

    def __init__(self, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.store = Store()
        self.store.listeners.append(self._wake)
        self.tokens: dict[str, str] | None = None
        """Tokens that are let in and whose they are; None: anybody."""
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.mute = False
        """Requests are taken and never answered, watches go silent; as for a stopped process with a living kernel."""
        self.withhold = False
        """Watches say nothing of what happens, without an error."""
        self._host = host
        self._port = 0
        self._tls = tls
        self._runner: web.AppRunner | None = None
        self._watches: set[_Watch] = set()
        self._pages: dict[int, dict[Kind, list[Stored]]] = {}
        self._writes = Writes(self.store)
        for name in ("default", "kube-system"):
            self.put({"kind": "Namespace", "metadata": {"name": name}})

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self._port}"

    async def start(self) -> str:
        app = web.Application(client_max_size=16 << 20)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self.url

    async def stop(self) -> None:
        """End every connection and take no new ones; what it holds stays."""
        runner, self._runner = self._runner, None
        self.end_watches()
        if runner is not None:
            await runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # What a test does to it

    def put(self, thing: Object, raw: bytes | None = None) -> Stored:
        """Create or change an object, its status included, as other components would."""
        return self.store.put(_kind_of(thing), thing, raw)

    def remove(self, kind: str, name: str, namespace: str = "") -> Stored | None:
        """Take an object away at once."""
        return self.store.remove(_kind_of({"kind": kind}), (namespace, name))

    def compact(self) -> None:
        """Forget history: continue tokens and watches from before get 410."""
        self.store.compact()
        self._pages.clear()

    def fail(self, code: int, *, path: str = "", times: int = 1, watch: bool | None = None, skip: int = 0,
             body: bytes | None = None, **headers: str) -> None:
        """Let requests fail. A header's name has ``_`` for ``-``."""
        text = msgspec.json.encode(status(code, "", "made to fail by a test")) if body is None else body
        self.faults.append(Fault(status=code, path=path, times=times, watch=watch, skip=skip, body=text,
                                 headers={name.replace("_", "-"): value for name, value in headers.items()}))

    def inject(self, line: bytes, plural: str = "") -> None:
        """Put a line as it is into every open watch (of ``plural``)."""
        for watch in self._watches:
            if plural in {"", watch.kind.plural}:
                watch.injected.append(line)
                watch.wake.set()

    def bookmark(self) -> None:
        """Send a bookmark to every watch that takes them."""
        for watch in self._watches:
            if watch.bookmarks:
                watch.injected.append(render_bookmark(watch.kind, self.store.version))
                watch.wake.set()

    def end_watches(self) -> None:
        """End every open watch, politely."""
        for watch in self._watches:
            watch.over = True
            watch.wake.set()

    @property
    def connections(self) -> list[object]:
        """The open connections."""
        server = self._runner.server if self._runner is not None else None
        return list(server.connections) if server is not None else []

    def cut(self) -> None:
        """Break every connection without a word."""
        for connection in self.connections:
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()

    def watching(self, plural: str) -> int:
        """How many watches of a resource are open."""
        return sum(watch.kind.plural == plural for watch in self._watches)

    def asked(self, plural: str, *, watch: bool) -> int:
        """How many lists or watches of a resource were asked for."""
        asked = [seen for seen in self.seen if seen.path.endswith(f"/{plural}")]
        return sum(seen.is_watch if watch else seen.is_list for seen in asked)

    # Requests

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        seen = Seen(method=request.method, path=request.path, query=query, token=token)
        self.seen.append(seen)
        if self.mute:
            await asyncio.Event().wait()
        for fault in self.faults:
            if fault.fits(seen):
                return web.Response(status=fault.status, headers=fault.headers, body=fault.body,
                                    content_type="application/json")
        try:
            if self.tokens is not None and token not in self.tokens:
                raise Refused(401, "Unauthorized", "Unauthorized")
            return await self._answer(request, seen)
        except Refused as error:
            return _json(status(error.code, error.reason, str(error)), error.code)
        except BadRequest as error:
            return _json(status(400, "BadRequest", str(error)), 400)

    async def _answer(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        kind, namespace, name, sub = _route(seen.path)
        if request.method == "GET" and not name:
            selects = _in_namespace(read_selectors(kind, seen.query), namespace)
            if seen.is_watch:
                return await self._watch(request, kind, selects, seen.query)
            return self._list(kind, selects, seen.query)
        key: Key = (namespace, name)
        if request.method == "GET":
            return web.Response(body=self._writes.existing(kind, key).raw, content_type="application/json")
        code, answer = self._writes.write(kind, key, Write(
            method=request.method, sub=sub, query=seen.query, content_type=request.content_type,
            body=await request.read()))
        return _json(answer, code)

    def _list(self, kind: Kind, selects: Selects, query: Mapping[str, str]) -> web.Response:
        limit = _number(query, "limit")
        asked = query.get("resourceVersion", "")
        if token := query.get("continue", ""):
            if asked not in {"", "0"}:
                raise BadRequest("resourceVersion: Forbidden: resourceVersion is forbidden for continue")
            at = decode_continue(token)
            if at.version not in self._pages:
                raise Refused(410, "Expired", "The provided continue parameter is too old to display a consistent list "
                              "result. You can start a new list without the continue parameter")
            version, everything = at.version, self._pages[at.version][kind]
            items = [one for one in everything if one.key > at.start and selects(one)]
        else:
            _version(asked)
            version = self.store.version
            everything = self.store.all(kind)
            items = [one for one in everything if selects(one)]
        page = items[:limit] if limit else items
        left = len(items) - len(page)
        continue_ = ""
        if left:
            self._pages.setdefault(version, {})[kind] = everything
            continue_ = encode_continue(version, page[-1].key)
        return web.Response(body=render_list(kind, page, version, continue_, left), content_type="application/json")

    async def _watch(self, request: web.Request, kind: Kind, selects: Selects,
                     query: Mapping[str, str]) -> web.StreamResponse:
        asked = _version(query.get("resourceVersion", ""))
        seconds = _number(query, "timeoutSeconds") or 1800
        watch = _Watch(kind, selects, asked or self.store.version,
                       query.get("allowWatchBookmarks", "") in {"1", "true"}, asyncio.Event())
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if asked and asked < self.store.compacted:
            await response.write(render_error(status(
                410, "Expired", f"too old resource version: {asked} ({self.store.compacted})")))
            return response
        if not asked:
            watch.injected += [render_added(one) for one in self.store.all(kind) if selects(one)]
        self._watches.add(watch)
        watch.wake.set()
        try:
            async with asyncio.timeout(seconds):
                await self._stream(watch, response)
        except TimeoutError:
            if watch.bookmarks and not self._quiet:
                await response.write(render_bookmark(kind, self.store.version))
        except ConnectionError:
            pass
        finally:
            self._watches.discard(watch)
        return response

    @property
    def _quiet(self) -> bool:
        return self.mute or self.withhold

    async def _stream(self, watch: _Watch, response: web.StreamResponse) -> None:
        while not watch.over:
            await watch.wake.wait()
            watch.wake.clear()
            if self._quiet:
                continue
            injected, watch.injected = watch.injected, []
            lines = injected + [
                line for change in self.store.since(watch.version)
                if change.last.kind is watch.kind and (line := render_event(change, watch.selects)) is not None
            ]
            watch.version = self.store.version
            if lines:
                await response.write(b"".join(lines))

    def _wake(self) -> None:
        for watch in self._watches:
            watch.wake.set()


def _route(path: str) -> tuple[Kind, str, str, str]:
    """Kind, namespace, name and subresource of a path."""
    for kind in KINDS:
        if not path.startswith(f"{kind.prefix}/"):
            continue
        words = path.removeprefix(f"{kind.prefix}/").split("/")
        namespace = ""
        if kind.namespaced and len(words) >= 3 and words[0] == "namespaces":
            namespace, words = words[1], words[2:]
        if words[0] == kind.plural and len(words) <= 3 and all(words):
            name, sub = [*words[1:], "", ""][:2]
            known = sub in ({"", "status"} if kind.status else {""})
            if known and (not name or bool(namespace) is kind.namespaced):
                return kind, namespace, name, sub
    raise Refused(404, "NotFound", "the server could not find the requested resource")


def _kind_of(thing: Mapping[str, Any]) -> Kind:
    version = thing.get("apiVersion")
    return next(kind for kind in KINDS if kind.kind == thing["kind"] and version in {None, kind.api_version})


def _in_namespace(selects: Selects, namespace: str) -> Selects:
    return (lambda one: one.key[0] == namespace and selects(one)) if namespace else selects


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    if text and not text.isdigit():
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text or "0")


def _version(text: str) -> int:
    if text and not text.isdigit():
        raise Refused(400, "BadRequest", f'Invalid value: "{text}": strconv.ParseUint: invalid syntax')
    return int(text or "0")


def _json(body: Mapping[str, object], code: int) -> web.Response:
    return web.Response(status=code, body=msgspec.json.encode(body), content_type="application/json")
