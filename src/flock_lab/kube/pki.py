"""The certificates and tokens of a cluster, made by openssl in a folder of the host's own.

Invariant: nothing of it is of use outside the lab: the authority is new each time, and so is every token.

If the process dies on any line: the folder goes with the host.
"""

import secrets
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flock.model.family import Address
from flock_lab.kube.plan import User

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc")
# Python 3.13 and later want every extension that RFC 5280 wants.
_CONFIG = """
[req]
prompt = no
distinguished_name = name
[name]
CN = flock-lab
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pki:
    """One cluster's authority, and the tokens by which its API server knows users."""

    folder: Path
    _tokens: dict[User, str] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path, names: Sequence[str], addresses: Iterable[Address]) -> "Pki":
        """A fresh authority, a serving certificate for these names, and a key for service accounts."""
        folder.mkdir(mode=0o700)
        made = cls(folder=folder)
        listed = [*(f"DNS:{name}" for name in names), *(f"IP:{address}" for address in addresses)]
        made.path("openssl.cnf").write_text(_CONFIG.format(names=", ".join(listed)))
        made._certify("ca", "ca", [])
        made._certify("server", "server", ["-CA", made.text("ca.crt"), "-CAkey", made.text("ca.key")])
        made._openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256",
                      "-out", made.text("accounts.key"))
        made._openssl("pkey", "-in", made.text("accounts.key"), "-pubout", "-out", made.text("accounts.pub"))
        return made

    @property
    def authority(self) -> str:
        """The certificate that clients check the server's by, as PEM."""
        return self.path("ca.crt").read_text()

    def path(self, name: str) -> Path:
        return self.folder / name

    def text(self, name: str) -> str:
        return str(self.path(name))

    def token(self, user: User) -> str:
        """The user's token; the API server knows those that were asked for before it started."""
        return self._tokens.setdefault(user, secrets.token_hex(16))

    def token_file(self) -> str:
        """``--token-auth-file``: token, user, UID, groups."""
        return "".join(f'{token},"{user.name}","{user.name}","{",".join(user.groups)}"\n'
                       for user, token in self._tokens.items())

    def _certify(self, name: str, section: str, issuer: Sequence[str]) -> None:
        self._openssl("req", "-x509", "-config", self.text("openssl.cnf"), "-extensions", section, "-days", "30",
                      *_CURVE, "-keyout", self.text(f"{name}.key"), "-out", self.text(f"{name}.crt"), *issuer)

    @staticmethod
    def _openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=30)
