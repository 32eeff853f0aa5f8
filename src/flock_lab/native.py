"""Small C programs and libraries that benches and tests need, compiled at run time, once, into the cache.

Invariant: the file's name holds the hash of source and flags, so a changed source is never run in its old form.

If the process dies on any line: at most a temporary file stays in the cache.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

FLAGS = ("-O2", "-Wall", "-Wextra", "-Werror", "-pthread")


class NoCompiler(RuntimeError):
    """Neither a C compiler nor zig is there."""


def cache_folder() -> Path:
    """Where built things are kept: FLOCK_CACHE, as scripts/setup has it."""
    return Path(os.environ.get("FLOCK_CACHE", "/var/cache/flock"))


def build(source: Path, *flags: str) -> Path:
    """The path of ``source``, compiled; ``-shared`` and the like are given in ``flags``."""
    options = [*FLAGS, *flags]
    digest = hashlib.sha256(repr(options).encode() + source.read_bytes()).hexdigest()[:16]
    target = cache_folder() / "native" / f"{source.stem}-{digest}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{target.name}.{os.getpid()}")
        subprocess.run([*_compiler(), *options, "-o", str(temporary), str(source)], check=True)
        temporary.replace(target)
    return target


def _compiler() -> list[str]:
    for name in ("gcc", "cc", "clang"):
        if path := shutil.which(name):
            return [path]
    for python in (*sorted(cache_folder().glob("zig-*/bin/python")), Path(sys.executable)):
        if subprocess.run([python, "-c", "import ziglang"], capture_output=True, check=False).returncode == 0:
            return [str(python), "-m", "ziglang", "cc"]
    raise NoCompiler("no C compiler: install gcc, or run scripts/setup zig")
