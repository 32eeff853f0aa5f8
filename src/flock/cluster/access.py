"""Where the API server is and how it learns who asks: URL, TLS, and a token that changes under a running agent.

Invariant: a token is never older than a minute's look at its file, is never shown in a text, and a file that can't be
read for a moment (a Secret just being swapped) leaves the last token in use.

If the process dies on any line: nothing is kept here.
"""

import os
from pathlib import Path
from typing import Protocol

from flock.cluster.tls import Tls
from flock.errors import InvalidConfig, IOFailure
from flock.system.clock import Clock

REREAD = 60.0
"""Seconds after which a token file is read again even if it looks unchanged (a file system may not tell)."""

TOKEN_LIMIT = 64 * 1024


class TokenSource(Protocol):
    """What makes the Authorization header."""

    async def token(self) -> str | None:
        """The token of the moment; None where there is none (a client certificate speaks)."""

    def renew(self) -> None:
        """The server refused the last one: don't give it again without a new look."""


class StaticToken:
    """A token that never changes, or none."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    async def token(self) -> str | None:
        return self._token

    def renew(self) -> None:
        pass


class TokenFile:
    """A file that holds nothing but the token; the kubelet replaces it long before the token expires."""

    def __init__(self, path: Path, clock: Clock, *, field: str) -> None:
        self._path = path
        self._clock = clock
        self._field = field
        self._token: str | None = None
        self._seen: tuple[int, int, int] | None = None
        self._read_at = 0.0

    async def token(self) -> str | None:
        # A stat and, once a minute, a read of a kilobyte from a tmpfs: less than a thread would cost.
        try:
            status = os.stat(self._path)
            seen = (status.st_ino, status.st_size, status.st_mtime_ns)
            if self._token is None or seen != self._seen or self._clock.monotonic() - self._read_at >= REREAD:
                self._token = self._read()
                self._seen, self._read_at = seen, self._clock.monotonic()
        except (OSError, IOFailure) as error:
            if self._token is None:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                raise IOFailure(f"{self._field}: the token file {self._path} can't be used", str(reason)) from error
        return self._token

    def renew(self) -> None:
        self._seen = None

    def _read(self) -> str:
        with open(self._path, "rb") as file:
            data = file.read(TOKEN_LIMIT + 1)
        try:
            return checked_token(data.decode("ascii").strip())
        except (UnicodeDecodeError, ValueError) as error:
            raise IOFailure("it must hold one line of printable ASCII, the token") from error


def checked_token(text: str) -> str:
    """A token that may go into a header; ValueError where it could break out of it."""
    if not text or len(text) > TOKEN_LIMIT or not (text.isascii() and text.isprintable() and " " not in text):
        raise ValueError("must be one word of printable ASCII")
    return text


class ClusterAccess:
    """One API server, and one identity at it."""

    def __init__(self, server: str, *, tls: Tls | None = None, tokens: TokenSource | None = None) -> None:
        self.server = checked_server(server)
        self.tls = tls
        self.tokens: TokenSource = tokens or StaticToken(None)

    async def authorization(self) -> str | None:
        """The Authorization header of the moment."""
        token = await self.tokens.token()
        return f"Bearer {token}" if token is not None else None

    def refused(self) -> None:
        """The server answered 401."""
        self.tokens.renew()


def checked_server(text: str) -> str:
    """An http or https URL without what doesn't belong there; InvalidConfig names the rule."""
    scheme, _, rest = text.partition("://")
    host, _, path = rest.partition("/")
    if scheme not in {"http", "https"} or not host or any(char in rest for char in "?#@ \\") or not rest.isprintable():
        raise InvalidConfig("the API server's URL must be http(s)://HOST[:PORT][/PATH]", "credentials don't go there")
    return f"{scheme}://{host}/{path}".rstrip("/")
