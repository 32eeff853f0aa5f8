"""A kubeconfig file as a ``ClusterAccess``: tokens, token files, client certificates, exec plugins.

Invariant: a setting that flock can't honour (a proxy, another identity to act as, a retired auth provider) is refused
by name, since access that silently differs from kubectl's is worse than none. No message shows a secret.

Source: k8s.io/client-go, tools/clientcmd/api/v1/types.go. A path in the file counts from the file's folder.

If the process dies on any line: nothing is written.
"""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path

from flock.api.problems import show
from flock.cluster.access import ClusterAccess, StaticToken, TokenFile, TokenSource, checked_token
from flock.cluster.documents import read_documents
from flock.cluster.exec_plugin import VERSIONS, ExecPlugin, ExecSettings
from flock.cluster.tls import Pem, Tls, TlsSettings
from flock.cluster.yaml_values import ManifestError
from flock.errors import InvalidConfig, IOFailure
from flock.system.clock import Clock
from flock.system.files import read_bytes

_NOT_HONOURED = {
    "cluster": ("proxy-url",),
    "user": ("username", "password", "as", "as-uid", "as-groups", "as-user-extra", "auth-provider"),
}


class _Part:
    """One mapping of the file, and how it is called in messages."""

    def __init__(self, where: str, raw: object, folder: Path) -> None:
        if not isinstance(raw, Mapping):
            raise InvalidConfig(f"{where} {show(raw)} must be a mapping")
        self.where = where
        self.folder = folder
        self._raw = raw

    def wrong(self, key: str, rule: str) -> InvalidConfig:
        return InvalidConfig(f"{self.where}.{key} {rule}")

    def has(self, key: str) -> bool:
        return self._raw.get(key) not in (None, "", [], {})

    def raw(self, key: str) -> object:
        return self._raw.get(key)

    def text(self, key: str) -> str | None:
        value = self._raw.get(key)
        if value is None or value == "":
            return None
        if not isinstance(value, str) or "\0" in value:
            raise self.wrong(key, "must be a string")
        return value

    def flag(self, key: str) -> bool:
        value = self._raw.get(key)
        if value not in (None, True, False):
            raise self.wrong(key, "must be true or false")
        return value is True

    def path(self, key: str) -> Path | None:
        text = self.text(key)
        return None if text is None else self.folder / text

    def pem(self, key: str) -> Pem | None:
        """``KEY-data`` in base64 or the file ``KEY``; data win, as they do for kubectl."""
        data = self.text(f"{key}-data")
        if data is None:
            return self.path(key)
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise self.wrong(f"{key}-data", "must be base64") from error

    def part(self, key: str) -> "_Part":
        return _Part(f"{self.where}.{key}", self._raw.get(key), self.folder)

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._raw.get(key) or []
        if not isinstance(value, list) or not all(isinstance(one, str) and "\0" not in one for one in value):
            raise self.wrong(key, "must be a list of strings")
        return tuple(value)

    def refuse(self, kind: str) -> None:
        for key in _NOT_HONOURED[kind]:
            if self.has(key):
                raise self.wrong(key, "is not supported by flock")


def read_kubeconfig(path: Path, context: str | None, clock: Clock) -> ClusterAccess:
    """The access that ``context``, or else the file's ``current-context``, names."""
    top = _Part(f"kubeconfig {path}:", _read(path), path.parent)
    name = context or top.text("current-context")
    if name is None:
        raise top.wrong("current-context", "is missing, and no context was named")
    chosen = _named(top, "contexts", "context", name)
    cluster = _named(top, "clusters", "cluster", _needed(chosen, "cluster"))
    user = _named(top, "users", "user", user_name) if (user_name := chosen.text("user")) else None
    cluster.refuse("cluster")
    server = _needed(cluster, "server")
    tls = _tls(cluster, user) if server.startswith("https://") else None
    try:
        return ClusterAccess(server, tls=tls, tokens=_tokens(user, cluster, server, tls, clock) if user else None)
    except InvalidConfig as error:
        raise InvalidConfig(f"{cluster.where}.server {show(server)}: {error}") from error


def _read(path: Path) -> object:
    data = read_bytes(path)
    if data is None:
        raise IOFailure(f"kubeconfig {path} doesn't exist")
    try:
        documents = read_documents(data, as_json=data.lstrip().startswith(b"{"))
    except ManifestError as error:
        raise InvalidConfig(f"kubeconfig {path}: line {error.line} {error.message}") from error
    if len(documents) != 1:
        raise InvalidConfig(f"kubeconfig {path} must hold one document, not {len(documents)}")
    return documents[0].value


def _needed(part: _Part, key: str) -> str:
    text = part.text(key)
    if text is None:
        raise part.wrong(key, "is required")
    return text


def _named(top: _Part, listed: str, inner: str, name: str) -> _Part:
    entries = top.raw(listed)
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and entry.get("name") == name:
            return _Part(f"{top.where} {listed}[{name}].{inner}", entry.get(inner), top.folder)
    raise InvalidConfig(f"{top.where} {listed} has no entry named {show(name)}")


def _tls(cluster: _Part, user: _Part | None) -> Tls:
    certificate = user.pem("client-certificate") if user else None
    key = user.pem("client-key") if user else None
    if user is not None and (certificate is None) != (key is None):
        raise user.wrong("client-key" if key is None else "client-certificate", "is missing beside its other half")
    return Tls(TlsSettings(
        ca=cluster.pem("certificate-authority"),
        certificate=certificate,
        key=key,
        insecure=cluster.flag("insecure-skip-tls-verify"),
        server_name=cluster.text("tls-server-name"),
    ))


def _tokens(user: _Part, cluster: _Part, server: str, tls: Tls | None, clock: Clock) -> TokenSource | None:
    user.refuse("user")
    # The file wins over the text, as it does for kubectl.
    if (file := user.path("tokenFile")) is not None:
        return TokenFile(file, clock, field=f"{user.where}.tokenFile")
    if (text := user.text("token")) is not None:
        try:
            return StaticToken(checked_token(text))
        except ValueError as error:
            raise user.wrong("token", str(error)) from error
    if user.has("exec"):
        return ExecPlugin(_exec_settings(user.part("exec"), cluster, server), clock, tls)
    return None


def _exec_settings(part: _Part, cluster: _Part, server: str) -> ExecSettings:
    api_version = _needed(part, "apiVersion")
    if api_version not in VERSIONS:
        raise part.wrong("apiVersion", f"{show(api_version)} must be one of {', '.join(VERSIONS)}")
    if part.text("interactiveMode") == "Always":
        raise part.wrong("interactiveMode", '"Always" needs a terminal, and there is none')
    command = _needed(part, "command")
    if "/" in command:
        command = str(part.folder / command)
    return ExecSettings(
        where=part.where,
        api_version=api_version,
        command=command,
        args=part.texts("args"),
        env=_env(part),
        cluster=_told(cluster, server) if part.flag("provideClusterInfo") else None,
    )


def _env(part: _Part) -> tuple[tuple[str, str], ...]:
    entries = part.raw("env") or []
    found: list[tuple[str, str]] = []
    for entry in entries if isinstance(entries, list) else [entries]:
        one = _Part(f"{part.where}.env[{len(found)}]", entry, part.folder)
        name = _needed(one, "name")
        if "=" in name:
            raise one.wrong("name", "must not hold '='")
        found.append((name, one.text("value") or ""))
    return tuple(found)


def _told(cluster: _Part, server: str) -> Mapping[str, object]:
    ca = cluster.pem("certificate-authority")
    told: dict[str, object] = {"server": server}
    if cluster.flag("insecure-skip-tls-verify"):
        told["insecure-skip-tls-verify"] = True
    if (name := cluster.text("tls-server-name")) is not None:
        told["tls-server-name"] = name
    if ca is not None:
        text = ca if isinstance(ca, bytes) else read_bytes(ca) or b""
        told["certificate-authority-data"] = base64.b64encode(text).decode()
    return told
