"""A real kube-apiserver with its etcd, for the time of some tests: nothing else of a cluster runs.

The programs come from the cache (``python -m flock_lab.gobuild kubernetes``), or from the folder that FLOCK_KUBERNETES
names.

If the process dies on any line: its children die with it (setpriv --pdeathsig); their files are in the test's folder.
"""

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flock.cluster.access import ClusterAccess, StaticToken
from flock.cluster.tls import Tls, TlsSettings
from flock.testing.certificates import Authority
from flock_lab.gobuild import NotBuilt, built

TOKEN = "admin-token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """How each is started: a program of its own, or one of several in the same file."""

    etcd: tuple[str, ...]
    apiserver: tuple[str, ...]


def find_programs() -> Programs | None:
    """The programs where they are built."""
    named = os.environ.get("FLOCK_KUBERNETES")
    try:
        folder = Path(named) if named else built("kubernetes")
    except (NotBuilt, OSError):
        return None
    etcd = next((path for name in ("etcd", "server") if (path := folder / name).exists()), None)
    alone, together = folder / "kube-apiserver", folder / "kubernetes"
    apiserver = (str(alone),) if alone.exists() else (str(together), "kube-apiserver") if together.exists() else None
    return Programs(etcd=(str(etcd),), apiserver=apiserver) if etcd is not None and apiserver is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RealApi:
    """A running one."""

    access: ClusterAccess
    folder: Path
    etcd: str


@contextlib.contextmanager
def running(programs: Programs, folder: Path, *extra: str) -> Iterator[RealApi]:
    """Start both; whoever uses it waits until it answers."""
    authority = Authority(folder)
    serving, accounts = authority.issue("api", "IP:127.0.0.1"), authority.issue("service-accounts")
    (folder / "tokens.csv").write_text(f"{TOKEN},admin,1,system:masters\n")
    etcd, peer, api = _free_ports(3)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_process(folder / "etcd.log", *programs.etcd, f"--data-dir={folder}/etcd",
                                     "--unsafe-no-fsync", f"--listen-client-urls=http://127.0.0.1:{etcd}",
                                     f"--advertise-client-urls=http://127.0.0.1:{etcd}",
                                     f"--listen-peer-urls=http://127.0.0.1:{peer}", "--log-level=error"))
        # Entered last, so ended first: without its etcd it would hang at its end.
        stack.enter_context(_process(
            folder / "apiserver.log", *programs.apiserver, f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--token-auth-file={folder}/tokens.csv", "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16", "--bind-address=127.0.0.1", f"--secure-port={api}",
            f"--tls-cert-file={serving.certificate}", f"--tls-private-key-file={serving.key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={accounts.certificate}", f"--service-account-signing-key-file={accounts.key}",
            "--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none", *extra))
        yield RealApi(folder=folder, etcd=f"http://127.0.0.1:{etcd}", access=ClusterAccess(
            f"https://127.0.0.1:{api}", tls=Tls(TlsSettings(ca=authority.certificate)), tokens=StaticToken(TOKEN)))


@contextlib.contextmanager
def _process(log: Path, *argv: str) -> Iterator[None]:
    with open(log, "wb") as file:
        process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *argv], stdout=file, stderr=file,
                                   stdin=subprocess.DEVNULL, cwd=log.parent)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]
