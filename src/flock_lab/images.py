"""Images without a registry: docker-archives of a few lines, from busybox-static and a pause of ten lines of C.

The same bytes for the same programs, so a runtime that has an image already says so. ctr and podman both load it.

If the process dies on any line: a half-written archive has no reader yet; the next run writes it anew.
"""

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flock_lab.native import build

PAUSE = "flock.test/pause:1"
TOOLS = "flock.test/tools:1"
BUSYBOX = "bin/busybox"
_APPLETS = ("sh", "ping", "ip", "httpd", "wget", "nc", "sleep", "cat", "ls", "hostname", "true", "false", "touch", "rm",
            "test", "date", "echo", "nslookup")
_FOLDERS = ("bin", "www", "etc", "tmp")
_WRITABLE = ("tmp", "uploads")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One image: its name, its files (all of them programs), links among them, and what it runs.

    ``base``: a tar file of a whole root that lies below them, as a layer of its own.
    """

    tag: str
    files: Mapping[str, bytes]
    links: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[str] = _FOLDERS
    base: Path | None = None
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()

    def layer(self) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name in self.folders:
                folder = tarfile.TarInfo(name)
                folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name in _WRITABLE else 0o755
                tar.addfile(folder)
            for name, data in self.files.items():
                _add(tar, name, data)
            for name, target in self.links.items():
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, target
                tar.addfile(link)
        return buffer.getvalue()

    def config(self, layers: Sequence[str], architecture: str) -> bytes:
        """The image's configuration; ``layers`` are SHA-256 digests, the lowest first."""
        return json.dumps({
            "architecture": architecture, "os": "linux",
            "config": {"Entrypoint": list(self.entrypoint), "Cmd": list(self.command),
                       "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin:/"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in layers]},
        }).encode()


def pause(tag: str = PAUSE) -> Image:
    """What a sandbox is; also the lightest container there is."""
    program = build(Path(__file__).with_name("pause.c"), "-static")
    return Image(tag=tag, files={"pause": program.read_bytes()}, command=["/pause"])


def tools(tag: str = TOOLS) -> Image:
    """A shell and what a test asks of a container."""
    return Image(tag=tag, files={**busybox(), "www/index.html": b"served by a pod\n"}, links=applets(),
                 command=["/bin/sleep", "3600"])


def busybox() -> dict[str, bytes]:
    program = shutil.which("busybox")
    assert program is not None, "busybox-static isn't installed (scripts/setup cluster-packages)"
    return {BUSYBOX: Path(program).read_bytes()}


def applets() -> dict[str, str]:
    return {f"bin/{name}": "busybox" for name in _APPLETS}


def write_archive(path: Path, machine: str, images: Sequence[Image] = ()) -> Path:
    """Write images (pause and tools, if none is named) into one archive and hand back its path."""
    manifest = []
    with tarfile.open(path, "w") as archive:
        for image in images or (pause(), tools()):
            top = image.layer()
            layers = [digest_of(image.base)] if image.base is not None else []
            # Several images may lie on one base: it is in the archive once.
            if image.base is not None and f"{layers[0]}.tar" not in archive.getnames():
                archive.add(image.base.resolve(), f"{layers[0]}.tar")
            layers.append(hashlib.sha256(top).hexdigest())
            _add(archive, f"{layers[-1]}.tar", top)
            config = image.config(layers, _MACHINES[machine])
            name = f"{hashlib.sha256(config).hexdigest()}.json"
            _add(archive, name, config)
            manifest.append({"Config": name, "RepoTags": [image.tag], "Layers": [f"{digest}.tar" for digest in layers]})
        _add(archive, "manifest.json", json.dumps(manifest).encode())
    return path


def digest_of(path: Path) -> str:
    """The SHA-256 of a file that may be large."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o755
    tar.addfile(info, io.BytesIO(data))
