"""The images that a cluster's nodes are given: one archive in the cache, named by the hash of what is in it.

If the process dies on any line: a temporary file stays in the cache.
"""

import hashlib
import os
import platform
from pathlib import Path

from flock_lab import images
from flock_lab.images import Image
from flock_lab.kube import programs
from flock_lab.kube.plan import AGNHOST, BUSYBOX, PAUSE
from flock_lab.native import cache_folder


def archive() -> Path:
    """pause, busybox and agnhost, under the names that Kubernetes and its e2e suite use."""
    wanted = [images.pause(PAUSE), images.tools(BUSYBOX), _agnhost()]
    digest = hashlib.sha256(Path(images.__file__).read_bytes())
    for image in wanted:
        digest.update(repr((image.tag, image.links, image.entrypoint, image.command)).encode())
        for name, data in image.files.items():
            digest.update(name.encode() + hashlib.sha256(data).digest())
    target = cache_folder() / "images" / f"kubernetes-{digest.hexdigest()[:16]}.tar"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{target.name}.{os.getpid()}")
        images.write_archive(temporary, platform.machine(), wanted).replace(target)
    return target


def _agnhost() -> Image:
    """The e2e suite's jack of all trades, with a shell beside it."""
    files = {**images.busybox(), "agnhost": programs.agnhost().read_bytes()}
    return Image(tag=AGNHOST, files=files, links={**images.applets(), "agnhost-2": "agnhost"},
                 entrypoint=["/agnhost"], command=["pause"])
