"""A real kube-apiserver with its etcd, for a test or a bench: nothing else of a cluster runs, and nobody is root.

The programs come from the cache (``python -m flock_lab.gobuild kubernetes``).

If the process dies on any line: its children die with it (setpriv --pdeathsig); their files are in the given folder.
"""

import contextlib
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flock.cluster.access import ClusterAccess, StaticToken
from flock.cluster.tls import Tls, TlsSettings
from flock.testing.certificates import Authority
from flock_lab.gobuild import NotBuilt, built
from flock_lab.kube import programs

TOKEN = "admin-token"


def available() -> bool:
    """Whether its programs are built."""
    try:
        built(programs.NAME)
    except NotBuilt:
        return False
    return True


class Daemon:
    """One program, which can be killed and started again as it was."""

    def __init__(self, log: Path, *argv: str) -> None:
        self._log = log
        self._argv = ["setpriv", "--pdeathsig", "KILL", *argv]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._log, "ab") as file:
            self._process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                             cwd=self._log.parent)

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """From now on its kernel accepts, and it never answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RealApi:
    """A running one; ``ca`` and TOKEN are what a client needs."""

    access: ClusterAccess
    ca: Path
    etcd: str
    apiserver: Daemon


@contextlib.contextmanager
def running(folder: Path, *flags: str) -> Iterator[RealApi]:
    """Start both; whoever uses it waits until it answers."""
    authority = Authority(folder)
    serving, accounts = authority.issue("api", "IP:127.0.0.1"), authority.issue("service-accounts")
    (folder / "tokens.csv").write_text(f"{TOKEN},admin,1,system:masters\n")
    client, peer, api = _free_ports(3)
    url = f"http://127.0.0.1:{client}"
    etcd = Daemon(folder / "etcd.log", programs.etcd(), f"--data-dir={folder}/etcd", "--unsafe-no-fsync",
                  f"--listen-client-urls={url}", f"--advertise-client-urls={url}",
                  f"--listen-peer-urls=http://127.0.0.1:{peer}", "--log-level=error")
    apiserver = Daemon(
        folder / "apiserver.log", *programs.daemon("kube-apiserver"), f"--etcd-servers={url}",
        f"--token-auth-file={folder}/tokens.csv", "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.96.0.0/16", "--bind-address=127.0.0.1", f"--secure-port={api}",
        f"--tls-cert-file={serving.certificate}", f"--tls-private-key-file={serving.key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={accounts.certificate}", f"--service-account-signing-key-file={accounts.key}",
        "--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none", *flags)
    access = ClusterAccess(f"https://127.0.0.1:{api}", tls=Tls(TlsSettings(ca=authority.certificate)),
                           tokens=StaticToken(TOKEN))
    with contextlib.ExitStack() as stack:
        # The API server ends first: without its etcd it would hang at its end.
        for daemon in (etcd, apiserver):
            stack.callback(daemon.kill)
            daemon.start()
        yield RealApi(access=access, ca=authority.certificate, etcd=url, apiserver=apiserver)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]
