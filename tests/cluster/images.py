"""Images without a registry: a docker-archive of a few lines, from busybox-static and a pause of ten lines of C.

The same bytes for the same programs, so a runtime that has an image already says so. ctr and podman both load it.
"""

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

from flock_lab.native import build

PAUSE = "flock.test/pause:1"
TOOLS = "flock.test/tools:1"
_APPLETS = ("sh", "ping", "ip", "httpd", "wget", "sleep", "cat")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_archive(path: Path, machine: str) -> Path:
    """Write both images into one archive and hand back its path."""
    busybox = shutil.which("busybox")
    assert busybox is not None, "busybox-static isn't installed (scripts/setup cluster-packages)"
    pause = build(Path(__file__).with_name("pause.c"), "-static")
    images = {
        PAUSE: (_layer({"pause": pause.read_bytes()}, {}), ["/pause"]),
        TOOLS: (_layer({"bin/busybox": Path(busybox).read_bytes(), "www/index.html": b"served by a pod\n"},
                       {f"bin/{name}": "busybox" for name in _APPLETS}), ["/bin/sleep", "3600"]),
    }
    manifest = []
    with tarfile.open(path, "w") as archive:
        for tag, (layer, command) in images.items():
            config = _config(layer, command, _MACHINES[machine])
            names = [f"{hashlib.sha256(data).hexdigest()}.{kind}" for data, kind in ((config, "json"), (layer, "tar"))]
            for name, data in zip(names, (config, layer), strict=True):
                _add(archive, name, data)
            manifest.append({"Config": names[0], "RepoTags": [tag], "Layers": [names[1]]})
        _add(archive, "manifest.json", json.dumps(manifest).encode())
    return path


def _layer(programs: Mapping[str, bytes], links: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("bin", "www", "etc", "tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        for name, data in programs.items():
            _add(tar, name, data)
        for name, target in links.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
    return buffer.getvalue()


def _config(layer: bytes, command: list[str], architecture: str) -> bytes:
    return json.dumps({
        "architecture": architecture, "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }).encode()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o755
    tar.addfile(info, io.BytesIO(data))
