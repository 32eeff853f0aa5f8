"""The programs that flock's image brings to a node: the shim, and the reference plugins that follow it in the chain.

By rename, so that a program that is being executed is never written to. Invariant: a plugin that somebody else put
there is left as it is: a ledger beside the programs holds the digests of what flock put there, and only those are
replaced or removed. The shim's name is flock's own.

If the process dies on any line: a program is the old or the new one. The ledger is written after the programs, so one
that it doesn't list yet counts as somebody else's, and stays as it is until it is removed by hand.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from flock.errors import IOFailure
from flock.model.ownership import SHIM_NAME
from flock.system.files import ensure_folder, read_bytes, remove, write_atomic

LEDGER = ".flock-programs.json"
"""No runtime takes it for a plugin: it isn't executable."""


class Outcome(msgspec.Struct, frozen=True):
    """What was done with one program: ``installed``, ``unchanged``, or ``kept`` because it is somebody else's."""

    name: str
    done: str


def install_programs(source: Path, bin_dir: Path) -> tuple[Outcome, ...]:
    """Install every file of ``source``; IOFailure names what can't be read or written."""
    ensure_folder(bin_dir)
    ledger = dict(_read_ledger(bin_dir))
    outcomes = tuple(_install_each(source, bin_dir, ledger))
    data = msgspec.json.format(msgspec.json.encode(ledger, order="deterministic"), indent=2) + b"\n"
    if read_bytes(bin_dir / LEDGER) != data:
        write_atomic(bin_dir / LEDGER, data, 0o644)
    return outcomes


def _install_each(source: Path, bin_dir: Path, ledger: dict[str, str]) -> Iterator[Outcome]:
    programs = sorted(path for path in source.iterdir() if path.is_file()) if source.is_dir() else []
    if not programs:
        raise IOFailure(f"{source} has no programs to install")
    for path in programs:
        program = read_bytes(path)
        if program is None:
            raise IOFailure(f"the program {path} is missing")
        there = read_bytes(bin_dir / path.name)
        if there not in (None, program) and not _is_ours(bin_dir / path.name, ledger):
            yield Outcome(path.name, "kept")
            continue
        ledger[path.name] = _digest(program)
        if there == program and (bin_dir / path.name).stat().st_mode & 0o777 == 0o755:
            yield Outcome(path.name, "unchanged")
            continue
        write_atomic(bin_dir / path.name, program, 0o755)
        yield Outcome(path.name, "installed")


def remove_programs(bin_dir: Path) -> tuple[str, ...]:
    """Take away what the ledger lists and is still as flock put it there, the shim in any case; the names."""
    ledger = _read_ledger(bin_dir)
    names = (name for name in sorted({*ledger, SHIM_NAME}) if _is_ours(bin_dir / name, ledger))
    gone = [name for name in names if remove(bin_dir / name)]
    remove(bin_dir / LEDGER)
    return tuple(gone)


def _is_ours(path: Path, ledger: Mapping[str, str]) -> bool:
    there = read_bytes(path)
    return there is not None and (path.name == SHIM_NAME or ledger.get(path.name) == _digest(there))


def _read_ledger(bin_dir: Path) -> Mapping[str, str]:
    """An unreadable one lists nothing: what isn't surely flock's is left alone. A name never leaves the folder."""
    try:
        found = msgspec.json.decode(read_bytes(bin_dir / LEDGER) or b"{}", type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return {name: digest for name, digest in found.items() if name == Path(name).name}


def _digest(program: bytes) -> str:
    return hashlib.sha256(program).hexdigest()
