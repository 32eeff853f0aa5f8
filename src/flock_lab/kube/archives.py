"""The images that a cluster's nodes are given: one archive in the cache, named by the hash of what is in it.

The e2e suite's agnhost lies on a whole Debian (``scripts/setup e2e-root``): specs run curl, dig, ss and the like in it.

If the process dies on any line: a temporary file stays in the cache.
"""

import hashlib
import os
import platform
from pathlib import Path

from flock_lab import images
from flock_lab.gobuild import NotBuilt
from flock_lab.images import Image
from flock_lab.kube import programs
from flock_lab.kube.plan import AGNHOST, BUSYBOX, COREDNS, PAUSE
from flock_lab.native import cache_folder


def archive() -> Path:
    """pause, busybox, agnhost and CoreDNS, under the names that Kubernetes and its e2e suite use."""
    wanted = [images.pause(PAUSE), images.tools(BUSYBOX), _agnhost(), _coredns()]
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


def _agnhost() -> Image:
    """The e2e suite's jack of all trades."""
    root = cache_folder() / "images" / "e2e-root.tar"
    if not root.exists():
        raise NotBuilt("the e2e suite's image has no root yet: run scripts/setup e2e-root")
    return Image(tag=AGNHOST, files={"agnhost": programs.agnhost().read_bytes()}, links={"agnhost-2": "agnhost"},
                 folders=("uploads",), base=root, entrypoint=["/agnhost"], command=["pause"])


def _coredns() -> Image:
    return Image(tag=COREDNS, files={"coredns": programs.coredns().read_bytes()}, folders=("etc", "tmp"),
                 entrypoint=["/coredns"])
