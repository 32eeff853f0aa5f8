"""A certificate authority for tests, by the program ``openssl``.

If the process dies on any line: files stay in the test's own folder.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """A CA of its own in ``folder``."""

    def __init__(self, folder: Path, name: str = "test-ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._own = Pair(certificate=folder / f"{name}.crt", key=folder / f"{name}.key")
        self._made = 0
        _openssl("req", "-x509", *_NEW_KEY, "-keyout", self._own.key, "-out", self._own.certificate,
                 "-days", "30", "-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE")

    @property
    def certificate(self) -> Path:
        return self._own.certificate

    def issue(self, name: str, *alternatives: str, organisation: str = "") -> Pair:
        """A certificate for a server (``alternatives``: ``DNS:…``, ``IP:…``) or a client (its user and group)."""
        self._made += 1
        stem = self._folder / f"{name.replace(':', '-')}-{self._made}"
        pair = Pair(certificate=stem.with_suffix(".crt"), key=stem.with_suffix(".key"))
        request, extensions = stem.with_suffix(".csr"), stem.with_suffix(".ext")
        group = f"/O={organisation}" if organisation else ""
        _openssl("req", "-new", *_NEW_KEY, "-keyout", pair.key, "-out", request, "-subj", f"{group}/CN={name}")
        lines = ["extendedKeyUsage=serverAuth,clientAuth"]
        if alternatives:
            lines.append(f"subjectAltName={','.join(alternatives)}")
        extensions.write_text("\n".join(lines) + "\n")
        _openssl("x509", "-req", "-in", request, "-CA", self._own.certificate, "-CAkey", self._own.key,
                 "-CAcreateserial", "-out", pair.certificate, "-days", "30", "-extfile", extensions)
        return pair


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {words[0]}: {done.stderr.strip()}")
