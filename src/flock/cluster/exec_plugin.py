"""Credentials from a program (kubeconfig ``users[].user.exec``): run when there is none or the last one ends soon.

Source: the Kubernetes documentation, "client-go credential plugins", client.authentication.k8s.io v1 and v1beta1.

If the process dies on any line: the program may live on; it ends by itself.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from flock.api.problems import printable
from flock.cluster.access import checked_token
from flock.cluster.tls import Tls
from flock.errors import IOFailure, TryAgain
from flock.system.clock import Clock
from flock.system.commands import run

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
PATIENCE = 30.0
EARLY = timedelta(seconds=60)
"""A credential is renewed this long before it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecSettings:
    """``where`` is how the setting is called in messages: file and field."""

    where: str
    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cluster: Mapping[str, object] | None = None
    """What the program is told of the cluster, where ``provideClusterInfo`` asks for it."""


class _Status(msgspec.Struct):
    token: str | None = None
    clientCertificateData: str | None = None  # noqa: N815 - the API's spelling
    clientKeyData: str | None = None  # noqa: N815 - the API's spelling
    expirationTimestamp: datetime | None = None  # noqa: N815 - the API's spelling


class _Credential(msgspec.Struct):
    apiVersion: str  # noqa: N815 - the API's spelling
    kind: str
    status: _Status | None = None


class ExecPlugin:
    """A TokenSource. Calls at once share one run of the program."""

    def __init__(self, settings: ExecSettings, clock: Clock, tls: Tls | None) -> None:
        self._settings = settings
        self._clock = clock
        self._tls = tls
        self._lock = asyncio.Lock()
        self._status: _Status | None = None

    async def token(self) -> str | None:
        async with self._lock:
            if self._status is None or self._ends_soon(self._status):
                self._status = await self._ask()
                if self._status.clientCertificateData and self._status.clientKeyData and self._tls is not None:
                    self._tls.show(self._status.clientCertificateData.encode(), self._status.clientKeyData.encode())
            return self._status.token

    def renew(self) -> None:
        self._status = None

    def _ends_soon(self, status: _Status) -> bool:
        ends = status.expirationTimestamp
        return ends is not None and self._clock.wall() >= (ends - EARLY).timestamp()

    async def _ask(self) -> _Status:
        settings = self._settings
        spec: dict[str, object] = {"interactive": False}
        if settings.cluster is not None:
            spec["cluster"] = settings.cluster
        info = {"apiVersion": settings.api_version, "kind": "ExecCredential", "spec": spec}
        env = {**os.environ, **dict(settings.env), "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        done = await run([settings.command, *settings.args], PATIENCE, env=env)
        if not done.ok:
            # Its errors only: what it printed on stdout may be a credential.
            said = printable(done.stderr.decode(errors="replace").strip(), 300)
            raise TryAgain(f"{settings.where}: {settings.command} failed ({done.ended})", said)
        return self._read(done.stdout)

    def _read(self, output: bytes) -> _Status:
        where = f"{self._settings.where}: what {self._settings.command} printed can't be used"
        try:
            found = msgspec.json.decode(output, type=_Credential)
        except (msgspec.DecodeError, RecursionError) as error:
            raise IOFailure(where, "it is no ExecCredential") from error
        status = found.status
        if found.kind != "ExecCredential" or found.apiVersion != self._settings.api_version or status is None:
            raise IOFailure(where, f"it must be an ExecCredential of {self._settings.api_version} with a status")
        if status.token is None and not (status.clientCertificateData and status.clientKeyData):
            raise IOFailure(where, "its status has neither a token nor a certificate with its key")
        if status.expirationTimestamp is not None and status.expirationTimestamp.tzinfo is None:
            raise IOFailure(where, "status.expirationTimestamp has no time zone")
        try:
            if status.token is not None:
                checked_token(status.token)
        except ValueError as error:
            raise IOFailure(where, f"status.token {error}") from error
        return status
