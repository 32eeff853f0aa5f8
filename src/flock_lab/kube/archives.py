"""The images that a cluster's nodes are given: one archive in the cache, named by the hash of what is in it.

The e2e suite's agnhost lies on a whole Debian (``scripts/setup e2e-root``): specs run curl, dig, ss and the like in it.

If the process dies on any line: a temporary file stays in the cache.
"""

import hashlib
import os
import platform
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from flock_lab import images
from flock_lab.gobuild import NotBuilt
from flock_lab.images import Image
from flock_lab.kube import programs
from flock_lab.kube.plan import AGNHOST, BUSYBOX, COREDNS, GLIBC, IPTABLES, NGINX, PAUSE
from flock_lab.native import cache_folder


def archive() -> Path:
    """pause, busybox, agnhost and CoreDNS, under the names that Kubernetes and its e2e suite use."""
    return _archive([images.pause(PAUSE), images.tools(BUSYBOX), _agnhost({}), _coredns()])


def upstream() -> Path:
    """What only some of upstream's specs ask for: agnhost with more of what is in upstream's, and rarer images.

    All lie on the same Debian, so what upstream asks once by musl (agnhost is Alpine there) is asked by glibc twice.
    """
    coredns = {"coredns": programs.coredns().read_bytes()}
    return _archive([
        _agnhost({**coredns, **_certificate()}),
        # Whoever asks for it wants a pod that serves HTTP on port 80.
        Image(tag=NGINX, files={"agnhost": programs.agnhost().read_bytes()}, folders=(), base=_root(),
              entrypoint=["/agnhost"], command=["netexec", "--http-port=80"]),
        # No folders: one named bin would hide the Debian's, which is a link.
        Image(tag=GLIBC, files=coredns, folders=(), base=_root(), command=["/bin/bash"]),
        Image(tag=IPTABLES, files={}, folders=(), base=_root()),
    ])


def _archive(wanted: Sequence[Image]) -> Path:
    digest = hashlib.sha256(Path(images.__file__).read_bytes())
    for image in wanted:
        base = image.base.resolve().name if image.base is not None else ""
        digest.update(repr((image.tag, image.links, image.folders, base, image.entrypoint, image.command)).encode())
        for name, data in image.files.items():
            digest.update(name.encode() + hashlib.sha256(data).digest())
    target = cache_folder() / "images" / f"kubernetes-{digest.hexdigest()[:16]}.tar"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{target.name}.{os.getpid()}")
        images.write_archive(temporary, platform.machine(), wanted).replace(target)
    return target


def _agnhost(more: Mapping[str, bytes]) -> Image:
    """The e2e suite's jack of all trades."""
    return Image(tag=AGNHOST, files={"agnhost": programs.agnhost().read_bytes(), **more},
                 links={"agnhost-2": "agnhost"}, folders=("uploads",), base=_root(), entrypoint=["/agnhost"],
                 command=["pause"])


def _root() -> Path:
    root = cache_folder() / "images" / "e2e-root.tar"
    if not root.exists():
        raise NotBuilt("the e2e suite's image has no root yet: run scripts/setup e2e-root")
    return root


def _certificate() -> dict[str, bytes]:
    """What agnhost serves HTTPS by; nobody checks it. Made once, so the image stays the same."""
    folder = cache_folder() / "images" / "agnhost-tls"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made = Path(scratch, "made")
            made.mkdir()
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc",
                            "-subj", "/CN=localhost", "-days", "36500", "-keyout", made / "localhost.key",
                            "-out", made / "localhost.crt"], check=True, capture_output=True, timeout=30)
            made.rename(folder)
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def _coredns() -> Image:
    return Image(tag=COREDNS, files={"coredns": programs.coredns().read_bytes()}, folders=("etc", "tmp"),
                 entrypoint=["/coredns"])
