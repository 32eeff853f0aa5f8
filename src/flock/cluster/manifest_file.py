"""One file of a manifests folder, from bytes to objects, and the files of a folder, from objects to a snapshot. Pure.

What a folder may hold: NodeConfig, Namespace, Pod and NetworkPolicy, or a List of these. Any other kind is a problem: a
mistyped word must not look like a removed object.

Invariant: a file with any problem gives no new objects; what it said last in order stays (``keep_good``). One thing is
milder: a bad BGP peer that the file's last state didn't have is reported and left out, since a node without its
NodeConfig is worse off than a node without one neighbour. Of an object in two files, the first by file name
wins and the other is reported.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import PurePath

import msgspec

from flock.api.names import API_VERSION
from flock.api.network_policy import POLICY_API_VERSION, NetworkPolicy, parse_network_policy
from flock.api.node_config import NodeConfig, parse_node_config
from flock.api.objects import NamespaceView, PodView, parse_namespace, parse_pod
from flock.api.problems import ABSENT, InvalidObject, Problem
from flock.cluster.documents import Lines, read_documents
from flock.cluster.view import Snapshot, SourceProblem
from flock.cluster.yaml_values import Document, ManifestError

SUFFIXES = (".yaml", ".yml", ".json")
MOST_PROBLEMS = 100


Parsed = NodeConfig | NamespaceView | PodView | NetworkPolicy
Identity = tuple[str, str, str]


class Sourced(msgspec.Struct, frozen=True):
    """An object and where it stands."""

    thing: Parsed
    document: int
    line: int

    @property
    def identity(self) -> Identity:
        """Kind, namespace and name: what may be there once."""
        kind = {NodeConfig: "NodeConfig", NamespaceView: "Namespace", PodView: "Pod", NetworkPolicy: "NetworkPolicy"}
        namespace = self.thing.namespace if isinstance(self.thing, (PodView, NetworkPolicy)) else ""
        return kind[type(self.thing)], namespace, self.thing.name


class FileState(msgspec.Struct, frozen=True, kw_only=True):
    """What one file says, or last said in order, and what is wrong with it now."""

    file: str
    digest: bytes = b""
    objects: tuple[Sourced, ...] = ()
    problems: tuple[SourceProblem, ...] = ()


class _Item(msgspec.Struct, frozen=True):
    """An object to be read: where it stands, and its path in its document where that is a List."""

    document: Document
    path: str
    raw: object


def is_manifest(name: str) -> bool:
    """Whether a file of this name is read: hidden ones are an editor's or a half-written copy."""
    return not name.startswith(".") and name.endswith(SUFFIXES)


def read_file(file: str, data: bytes, before: FileState | None = None) -> FileState:
    """The new state of a file from its bytes; never raises."""
    digest = hashlib.sha256(data).digest()
    if before is not None and before.digest == digest:
        return before
    if before is not None and before.objects and not data.strip():
        return keep_good(before, file, "is empty; to remove its objects, remove the file", digest)
    try:
        documents = read_documents(data, as_json=PurePath(file).suffix == ".json")
    except ManifestError as error:
        problem = SourceProblem(file, error.document, error.line, error.message)
        return FileState(file=file, digest=digest, objects=before.objects if before else (), problems=(problem,))
    return _read_objects(file, data, documents, before, digest)


def keep_good(before: FileState | None, file: str, message: str, digest: bytes = b"") -> FileState:
    """A file that can't be used as a whole: its last good objects, and the reason."""
    problem = SourceProblem(file, 0, 0, message)
    return FileState(file=file, digest=digest, objects=before.objects if before else (), problems=(problem,))


def _read_objects(
    file: str, data: bytes, documents: list[Document], before: FileState | None, digest: bytes
) -> FileState:
    lines = Lines(data)
    good: list[Sourced] = []
    bad: list[SourceProblem] = []
    mild: list[SourceProblem] = []
    seen: dict[Identity, Sourced] = {}

    def note(item: _Item, error: InvalidObject, into: list[SourceProblem]) -> None:
        for problem in error.problems:
            line = lines.find(item.document, f"{item.path}{problem.field}")
            text = f"{error.subject}: {problem}" if error.subject else str(problem)
            into.append(SourceProblem(file, item.document.number, line, text))

    for item in _items(documents):
        if len(bad) >= MOST_PROBLEMS:
            break
        try:
            thing = _parse(item.raw)
        except InvalidObject as error:
            note(item, error, bad)
            continue
        if isinstance(thing, NodeConfig) and thing.spec.bgp is not None:
            for peer in thing.spec.bgp.bad_peers:
                wrong = InvalidObject(peer.problems, f"NodeConfig {thing.name}")
                note(item, wrong, bad if peer.name in _good_peers(before, thing.name) else mild)
        found = Sourced(thing, item.document.number, item.document.line)
        twin = seen.setdefault(found.identity, found)
        if twin is not found:
            bad.append(SourceProblem(file, found.document, found.line, _twice(found, f"line {twin.line}")))
        good.append(found)
    objects = tuple(good) if not bad else before.objects if before is not None else ()
    return FileState(file=file, digest=digest, objects=objects, problems=tuple((bad + mild)[:MOST_PROBLEMS]))


def _good_peers(before: FileState | None, name: str) -> frozenset[str]:
    """The neighbours that a NodeConfig of this file has had so far."""
    things = [found.thing for found in before.objects] if before is not None else []
    configs = [one for one in things if isinstance(one, NodeConfig) and one.name == name]
    return frozenset(peer.name for one in configs if one.spec.bgp is not None for peer in one.spec.bgp.peers)


def _items(documents: list[Document]) -> Iterator[_Item]:
    for document in documents:
        raw = document.value
        inner = raw.get("items") if isinstance(raw, dict) and raw.get("kind") == "List" else None
        if isinstance(inner, list):
            for index, one in enumerate(inner):
                yield _Item(document, f"items[{index}].", one)
        else:
            yield _Item(document, "", raw)


def _twice(found: Sourced, where: str) -> str:
    kind, namespace, name = found.identity
    return f"{kind} {namespace + '/' if namespace else ''}{name} is there already ({where})"


def _parse(raw: object) -> Parsed:
    if not isinstance(raw, dict):
        raise InvalidObject([Problem("", raw, "is no object: it must be a mapping")])
    kind = raw.get("kind")
    if kind == "NodeConfig":
        _check_version(raw, API_VERSION)
        return parse_node_config(raw, strict=True, peers_apart=True)
    known = _KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        expected = ", ".join(["NodeConfig", *_KINDS])
        raise InvalidObject([Problem("kind", kind, f"is not one that a manifests folder may hold ({expected})")])
    version, parse = known
    _check_version(raw, version)
    return parse(raw)


def _check_version(raw: Mapping[str, object], expected: str) -> None:
    if raw.get("apiVersion") != expected:
        raise InvalidObject([Problem("apiVersion", raw.get("apiVersion", ABSENT), f'must be "{expected}"')])


_KINDS: Mapping[str, tuple[str, Callable[[object], Parsed]]] = {
    "Namespace": ("v1", parse_namespace),
    "Pod": ("v1", parse_pod),
    "NetworkPolicy": (POLICY_API_VERSION, partial(parse_network_policy, strict=True)),
}


def assemble(files: Mapping[str, FileState], node: str) -> Snapshot:
    """What all files of a folder say together. A pod without ``nodeName`` is taken for one of this node."""
    problems: list[SourceProblem] = []
    chosen: dict[Identity, tuple[str, Sourced]] = {}
    for file in sorted(files):
        problems.extend(files[file].problems)
        for found in files[file].objects:
            winner, _ = chosen.setdefault(found.identity, (file, found))
            if winner != file:
                problems.append(SourceProblem(file, found.document, found.line, _twice(found, f"file {winner} wins")))
    things = [found.thing for _, found in chosen.values()]
    return Snapshot(
        node_configs={one.name: one for one in things if isinstance(one, NodeConfig)},
        namespaces={one.name: one for one in things if isinstance(one, NamespaceView)},
        pods={(one.namespace, one.name): _placed(one, node) for one in things if isinstance(one, PodView)},
        policies={(one.namespace, one.name): one for one in things if isinstance(one, NetworkPolicy)},
        problems=tuple(problems),
        complete=True,
    )


def _placed(pod: PodView, node: str) -> PodView:
    return pod if pod.node_name else msgspec.structs.replace(pod, node_name=node)
