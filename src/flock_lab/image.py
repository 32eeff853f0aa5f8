"""``make image``: the two images of the Containerfile, built with buildah, as archives in the cache.

``python -m flock_lab.image`` builds what is missing and prints where it is. The base is a Debian made from packages by
mmdebstrap; FLOCK_BASE names an image to pull instead. Invariant: the folder's name holds the hash of everything that
goes into the images but the Debian packages, so a cluster never runs an image of other sources than these.

If the process dies on any line: a temporary folder stays in the cache; the next build starts anew beside it.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flock import __version__
from flock_lab.gobuild import NotBuilt, built
from flock_lab.native import cache_folder

_CHECKOUT = Path(__file__).resolve().parents[2]
CONTAINERFILE = _CHECKOUT / "Containerfile"
FILES = _CHECKOUT / "deploy" / "image"
BIRD_ENTRY = _CHECKOUT / "deploy" / "systemd" / "flock-bird"
RUNTIME = _CHECKOUT / "requirements" / "runtime.txt"
SOURCES = _CHECKOUT / "src" / "flock"
SHIM = _CHECKOUT / "build" / "shim" / platform.machine() / "flock"

NAMES = ("agent", "bird")
PLUGINS = ("bandwidth", "loopback", "portmap")
BASE = "docker.io/library/debian:trixie-slim"
SUITE = "trixie"
PYTHON = "3.13"
"""Debian 13's."""

TAG = __version__
_HOOK = 'rm -rf "$1"/var/cache/apt "$1"/var/lib/apt/lists/*; : >"$1"/etc/hostname; : >"$1"/etc/resolv.conf'
"""mmdebstrap copies the machine's name and resolver, which are nobody else's."""


def image(name: str) -> str:
    """An image's name, as ``deploy/`` has it."""
    return f"flock.fritzlab.net/{name}:{TAG}"


def archives() -> list[Path]:
    """The archives of both images; NotBuilt, with the command that builds them, where there are none."""
    folder = _target()
    if not folder.is_dir():
        raise NotBuilt("flock's images aren't built: run make image")
    return _in(folder)


def build() -> list[Path]:
    """The same, built where they are missing; a minute when they are."""
    with _locked():
        target = _target()
        if not target.is_dir():
            began = time.monotonic()
            with tempfile.TemporaryDirectory(dir=target.parent, prefix="image.") as scratch:
                output = Path(scratch, "archives")
                output.mkdir()
                _prepare_context(Path(scratch, "context"))
                _Buildah(Path(scratch)).make(Path(scratch, "context"), output)
                output.rename(target)
            _remove_others(target)
            _say(f"the images took {time.monotonic() - began:.0f} s")
    return _in(target)


def _in(folder: Path) -> list[Path]:
    return [folder / f"{name}.tar" for name in NAMES]


def _target() -> Path:
    digest = hashlib.sha256(repr((TAG, PYTHON, os.environ.get("FLOCK_BASE", ""), built("plugins").name)).encode())
    sources = [path for path in SOURCES.rglob("*") if path.suffix != ".pyc" and path.is_file()]
    others = [CONTAINERFILE, RUNTIME, BIRD_ENTRY, SHIM, *(path for path in FILES.rglob("*") if path.is_file())]
    for path in sorted([*sources, *others]):
        digest.update(str(path.relative_to(_CHECKOUT)).encode() + hashlib.sha256(path.read_bytes()).digest())
    return _folder() / f"flock-{digest.hexdigest()[:16]}"


def _folder() -> Path:
    folder = cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _remove_others(target: Path) -> None:
    """Images of former sources: nobody asks for them again, and each takes a quarter of a gigabyte."""
    for other in target.parent.glob("flock-*"):
        if other != target and other.stat().st_mtime < time.time() - 3600:
            shutil.rmtree(other, ignore_errors=True)


def _prepare_context(context: Path) -> None:
    """What the Containerfile copies."""
    shutil.copytree(FILES, context)
    shutil.copy(BIRD_ENTRY, context / "flock-bird")
    programs = context / "programs"
    programs.mkdir()
    for source in (SHIM, *(built("plugins") / name for name in PLUGINS)):
        shutil.copy(source, programs / source.name)
    library = context / "lib"
    machine = platform.machine()
    platforms = [f"--platform={name}_{machine}" for name in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", f"--target={library}",
         f"--python-version={PYTHON}", "--implementation=cp", *platforms, "--only-binary=:all:", "--require-hashes",
         f"--requirement={RUNTIME}"], check=True)
    shutil.copytree(SOURCES, library / "flock", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(library / "bin", ignore_errors=True)


class _Buildah:
    """buildah with a storage of its own, which goes with the scratch folder: the machine's is left alone."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._options = [f"--root={scratch / 'root'}", f"--runroot={scratch / 'run'}", "--storage-driver=vfs"]

    def make(self, context: Path, output: Path) -> None:
        try:
            self._fetch_base()
            for name in NAMES:
                _say(f"building {image(name)}")
                self._run("bud", "--isolation=chroot", "--pull-never", "--quiet", f"--target={name}",
                          f"--file={CONTAINERFILE}", f"--tag={image(name)}", str(context))
                self._run("push", "--quiet", image(name), f"docker-archive:{output / name}.tar:{image(name)}")
        finally:
            self._run("rmi", "--all", "--force", check=False)

    def _fetch_base(self) -> None:
        wanted = os.environ.get("FLOCK_BASE")
        if wanted:
            self._run("pull", "--quiet", wanted)
            self._run("tag", wanted, BASE)
            return
        container = self._run("from", "scratch")
        self._run("add", "--quiet", container, str(_debian()), "/")
        self._run("commit", "--quiet", "--rm", container, BASE)

    def _run(self, verb: str, *words: str, check: bool = True) -> str:
        done = subprocess.run(["buildah", *self._options, verb, *words], check=False, capture_output=True,
                              text=True)
        if check and done.returncode:
            raise RuntimeError(f"buildah {verb} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
        return done.stdout.strip()


def _debian() -> Path:
    """A Debian with the packages that both images need, made once from its packages."""
    packages = ",".join((FILES / "packages.txt").read_text().split())
    tar = _folder() / f"debian-{hashlib.sha256(repr((SUITE, packages, _HOOK)).encode()).hexdigest()[:16]}.tar"
    if not tar.exists():
        _say(f"making a Debian {SUITE}, once for this machine")
        temporary = tar.with_name(f"new-{tar.name}")
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", "--skip=output/dev",
                        "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
                        "--dpkgopt=path-exclude=/usr/share/man/*",
                        f"--customize-hook={_HOOK}", SUITE, str(temporary)],
                       check=True)
        temporary.replace(tar)
    return tar


@contextmanager
def _locked() -> Iterator[None]:
    with open(_folder() / "flock.lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(f"image: {text}", file=sys.stderr, flush=True)


def main() -> int:
    for path, name in zip(build(), NAMES, strict=True):
        print(f"{image(name)}  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
