"""The control plane of a cluster: etcd, kube-apiserver, kube-controller-manager and kube-scheduler on one host.

Invariant: an API server is never left without its etcd: its graceful stop would hang for ever.

If the process dies on any line: all of it ends with its host.
"""

import signal
from dataclasses import dataclass, field
from pathlib import Path

from flock.model.family import parse_address
from flock.testing.wait import wait_until
from flock_lab.host import Host, Popen
from flock_lab.kube import documents, programs
from flock_lab.kube.api import Api
from flock_lab.kube.pki import Pki
from flock_lab.kube.plan import ADMIN, CONTROLLERS, DOMAIN, FOLDER, PORT, SCHEDULER, SERVICES, ClusterOptions, User
from flock_lab.plan import WORLD
from flock_lab.state import LabError

ETCD = "http://127.0.0.1:2379"
API_SERVER = "kube-apiserver"
_ETCD_PEER = "http://127.0.0.1:2380"
_DATA = "/run/etcd"
_PKI = f"{FOLDER}/pki"
_READY = 60.0
_STOP = 20.0
_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
          f"kubernetes.default.svc.{DOMAIN}")


@dataclass(slots=True, kw_only=True)
class ControlPlane:
    """``start_api`` first; ``start_controllers`` once it is ready."""

    host: Host
    options: ClusterOptions
    pki: Pki
    api: Api
    flags: list[str] = field(default_factory=list)
    _daemons: dict[str, Popen] = field(default_factory=dict)

    @classmethod
    def make(cls, host: Host, options: ClusterOptions) -> "ControlPlane":
        """Its files; nothing runs yet."""
        host.path(FOLDER).mkdir(parents=True)
        addresses = [*WORLD.values(), *(network[1] for network in SERVICES.values())]
        local = [parse_address(text) for text in ("127.0.0.1", "::1")]
        pki = Pki.make(host.path(_PKI), _NAMES, [*addresses, *local])
        api = Api(host, options.api_address, pki.authority, pki.token(ADMIN))
        made = cls(host=host, options=options, pki=pki, api=api)
        for name, user in (("controllers", CONTROLLERS), ("scheduler", SCHEDULER), ("admin", ADMIN)):
            made._write(f"{name}.kubeconfig", made.kubeconfig(user))
        return made

    def kubeconfig(self, user: User) -> str:
        """Access as that user; asked for before the start of the API server, which reads its tokens once."""
        return documents.kubeconfig(self.options.api_url, self.pki.authority, self.pki.token(user))

    # Daemons

    def start_api(self) -> None:
        """Start etcd and the API server without waiting for them."""
        self.start_etcd()
        self.start_apiserver()

    def start_etcd(self) -> None:
        self._daemons["etcd"] = self.host.spawn(
            programs.etcd(), f"--data-dir={_DATA}", f"--listen-client-urls={ETCD}", f"--advertise-client-urls={ETCD}",
            f"--listen-peer-urls={_ETCD_PEER}", f"--initial-advertise-peer-urls={_ETCD_PEER}",
            f"--initial-cluster=default={_ETCD_PEER}", "--unsafe-no-fsync", "--log-level=warn", log="etcd")

    def start_apiserver(self) -> None:
        self._write("tokens.csv", self.pki.token_file())
        ranges = ",".join(map(str, self.options.service_ranges))
        self._start(
            API_SERVER, f"--etcd-servers={ETCD}", f"--secure-port={PORT}", "--bind-address=::",
            f"--advertise-address={self.options.api_address}", f"--service-cluster-ip-range={ranges}",
            f"--tls-cert-file={_PKI}/server.crt", f"--tls-private-key-file={_PKI}/server.key",
            f"--client-ca-file={_PKI}/ca.crt", f"--token-auth-file={FOLDER}/tokens.csv",
            "--authorization-mode=Node,RBAC", "--allow-privileged", "--enable-admission-plugins=NodeRestriction",
            # Otherwise logs and exec look for the nodes' names in the DNS.
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
            f"--service-account-key-file={_PKI}/accounts.pub",
            f"--service-account-signing-key-file={_PKI}/accounts.key",
            "--cert-dir=/run/kube-apiserver", "--profiling=false", *self.flags)

    def await_api(self, deadline: float = _READY) -> None:
        process = self._daemons[API_SERVER]
        wait_until(lambda: self.api.ready() or process.poll() is not None, deadline, "an API server that is ready")
        if process.poll() is not None:
            raise LabError("the API server ended", self.host.tail(API_SERVER))

    def start_controllers(self) -> None:
        """Controllers and the scheduler; they give up when the API server doesn't answer yet."""
        common = ("--leader-elect=false", "--bind-address=127.0.0.1")
        self._start(
            "kube-controller-manager", f"--kubeconfig={FOLDER}/controllers.kubeconfig", *common,
            f"--root-ca-file={_PKI}/ca.crt", "--use-service-account-credentials",
            f"--service-account-private-key-file={_PKI}/accounts.key", "--cert-dir=/run/controllers")
        self._start("kube-scheduler", f"--kubeconfig={FOLDER}/scheduler.kubeconfig", *common)

    # Faults

    def kill(self, name: str) -> None:
        """End one daemon as a crash would."""
        process = self._daemons.pop(name)
        process.send_signal(signal.SIGKILL)
        self.host.await_exit(process, name, _STOP)

    def kill_apiserver(self) -> None:
        self.api.close()
        self.kill(API_SERVER)

    def freeze(self, name: str) -> None:
        """A daemon that accepts, and never answers."""
        self._daemons[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._daemons[name].send_signal(signal.SIGCONT)

    def _start(self, name: str, *flags: str) -> None:
        self._daemons[name] = self.host.spawn(*programs.daemon(name), *flags, log=name)

    def _write(self, name: str, text: str) -> Path:
        path = self.host.path(f"{FOLDER}/{name}")
        path.write_text(text)
        return path
