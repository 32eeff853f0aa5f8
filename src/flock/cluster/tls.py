"""TLS to the API server: the CA that is believed, the client certificate that is shown, read again when they change.

A CA and certificates are rotated under a running agent by replacing files. Each connection asks for the context of the
moment; it is made anew when a file's identity (inode, size, times) has changed. Files that can't be used just then,
a key before its certificate, say, leave the last good context in place.

If the process dies on any line: nothing is written; certificates that came as text live in memory files (memfd), since
OpenSSL reads them from files alone, and a secret has no business on a disk.
"""

import contextlib
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flock.errors import IOFailure

Pem = Path | bytes
"""A file, or what would be in it."""

_Identity = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """``ca`` None: what the system trusts. ``server_name``: what the certificate must say, where not the URL's host."""

    ca: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    insecure: bool = False
    server_name: str | None = None


class Tls:
    """Hands out the SSL context of the moment."""

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self.trouble = ""
        """Why the files as they are now can't be used; empty where they are in use."""
        self._context: ssl.SSLContext | None = None
        self._made_of: tuple[_Identity | None, ...] = ()

    def context(self) -> ssl.SSLContext:
        """The same object until a file changes; IOFailure where there never was a good one."""
        identities = tuple(_identity(pem) for pem in (self.settings.ca, self.settings.certificate, self.settings.key))
        if self._context is not None and identities == self._made_of:
            return self._context
        try:
            self._context = _make(self.settings)
        except (OSError, ValueError) as error:
            self.trouble = _explain(self.settings, error)
            if self._context is None:
                raise IOFailure("TLS to the API server can't be set up", self.trouble) from error
        else:
            self.trouble = ""
        self._made_of = identities
        return self._context

    def show(self, certificate: bytes, key: bytes) -> None:
        """Show this certificate from now on (an exec plugin gave it)."""
        now = self.settings
        self.settings = TlsSettings(ca=now.ca, certificate=certificate, key=key, insecure=now.insecure,
                                    server_name=now.server_name)
        self._made_of = ()


def _make(settings: TlsSettings) -> ssl.SSLContext:
    if settings.ca is None:
        context = ssl.create_default_context()
    else:
        text = settings.ca if isinstance(settings.ca, bytes) else settings.ca.read_bytes()
        context = ssl.create_default_context(cadata=text.decode("ascii"))
    # Python 3.13 asks for an authority key identifier, which CAs of clusters (self-made, years old) often lack.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if settings.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.certificate is not None and settings.key is not None:
        with _as_file(settings.certificate) as certificate, _as_file(settings.key) as key:
            # The password is never asked for at a terminal: an encrypted key is an error.
            context.load_cert_chain(certificate, key, password=lambda: "")
    return context


@contextlib.contextmanager
def _as_file(pem: Pem) -> Iterator[str]:
    if isinstance(pem, Path):
        yield str(pem)
        return
    descriptor = os.memfd_create("flock-pem", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _identity(pem: Pem | None) -> _Identity | None:
    """What changes when a file is replaced; a mounted Secret's link leads to another inode then."""
    if not isinstance(pem, Path):
        return None
    try:
        status = os.stat(pem)
    except OSError:
        return (0, 0, 0, 0)
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_dev)


def _explain(settings: TlsSettings, error: Exception) -> str:
    files = [str(pem) for pem in (settings.ca, settings.certificate, settings.key) if isinstance(pem, Path)]
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return f"{', '.join(files) or 'the certificates given as text'}: {error}"
