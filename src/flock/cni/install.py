"""What a runtime finds of flock on a node: the shim among its plugins, and the conflist that names it.

Both appear by rename: a reader sees all or nothing, and a shim that is being executed isn't written to. The temporary
name doesn't end in ``.conf``, ``.conflist`` or ``.json``, and lies in the same folder: containerd's watcher reloads on
RENAME, not on CREATE. The conflist stays until flock is uninstalled: a runtime without one calls its node NotReady.

``portmap`` (hostPort) and ``bandwidth`` are chained where they are installed. Debian 12's portmap knows no 1.1.0, and a
chain speaks only what all of it speaks.

If the process dies on any line: the old file stands or the new one does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from flock.cni.netconf import DEFAULT_VERSION, VERSIONS
from flock.errors import DecodeFailure, FlockError, IOFailure
from flock.model.ownership import CONFLIST_NAME, SHIM_NAME
from flock.model.text import shown
from flock.system.commands import run
from flock.system.files import ensure_folder, read_bytes, remove, write_atomic

NETWORK = "flock"
CHAINED = {"portmap": "portMappings", "bandwidth": "bandwidth"}
"""Plugins that may follow flock, and the capability that each is there for."""

VERSION_DEADLINE = 5.0
_SUFFIXES = (".conf", ".conflist", ".json")


class _VersionReply(msgspec.Struct):
    supported: tuple[str, ...] = msgspec.field(name="supportedVersions", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflistReport:
    """``left_out`` has the reason for each plugin that is installed and couldn't be chained."""

    changed: bool
    chained: tuple[str, ...]
    left_out: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Another CNI's configuration beside flock's; the first by name ``wins``."""

    name: str
    wins: bool


def install_shim(source: Path, bin_dir: Path) -> bool:
    """Put the shim where runtimes look for it; True if it wasn't there in this form."""
    program = read_bytes(source)
    if program is None:
        raise IOFailure(f"the shim {source} is missing")
    ensure_folder(bin_dir)
    target = bin_dir / SHIM_NAME
    if target.is_file() and target.stat().st_mode & 0o777 == 0o755 and read_bytes(target) == program:
        return False
    write_atomic(target, program, 0o755)
    return True


async def write_conflist(conf_dir: Path, bin_dir: Path) -> ConflistReport:
    """Ask the plugins that could be chained, and write the conflist if its bytes change."""
    speaks: dict[str, frozenset[str]] = {}
    left_out: dict[str, str] = {}
    for plugin in CHAINED:
        program = bin_dir / plugin
        if not program.exists():
            continue
        try:
            speaks[plugin] = await plugin_versions(program)
        except FlockError as error:
            left_out[plugin] = str(error)
    chained = choose_chain(speaks)
    left_out |= {name: "has no version in common with the others" for name in speaks if name not in chained}
    data = render_conflist(chained, common_versions([speaks[name] for name in chained]))
    ensure_folder(conf_dir)
    path = conf_dir / CONFLIST_NAME
    changed = not path.is_file() or read_bytes(path) != data
    if changed:
        write_atomic(path, data, 0o644)
    return ConflistReport(changed=changed, chained=chained, left_out=left_out)


def remove_conflist(conf_dir: Path) -> bool:
    """At uninstall alone."""
    return remove(conf_dir / CONFLIST_NAME)


async def plugin_versions(program: Path) -> frozenset[str]:
    """What a plugin's VERSION says."""
    # A plugin sees the environment of its runtime; `env -i` keeps the agent's own out of it.
    argv = ["env", "-i", "CNI_COMMAND=VERSION", str(program)]
    done = await run(argv, VERSION_DEADLINE, b'{"cniVersion":"%s"}' % DEFAULT_VERSION.encode())
    if not done.ok:
        raise IOFailure(f"{program} doesn't answer VERSION: {done.ended}", shown(done.text))
    try:
        return frozenset(msgspec.json.decode(done.stdout, type=_VersionReply).supported)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeFailure(f"{program} answers VERSION with something else", shown(done.stdout)) from error


def common_versions(speaks: Sequence[frozenset[str]]) -> tuple[str, ...]:
    """What flock and all of these speak, oldest first."""
    return tuple(version for version in VERSIONS if all(version in one for one in speaks))


def choose_chain(speaks: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """The plugins, in order, that leave at least one version that every runtime knows (1.0.0 or older)."""
    chain: tuple[str, ...] = ()
    for name in CHAINED:
        if name not in speaks:
            continue
        common = common_versions([speaks[other] for other in (*chain, name)])
        if any(version <= DEFAULT_VERSION for version in common):
            chain = (*chain, name)
    return chain


def render_conflist(chained: Sequence[str], versions: Sequence[str]) -> bytes:
    """The conflist. ``cniVersion`` is for runtimes that don't know ``cniVersions`` (libcni before 1.2).

    Those can't read a result of 1.1.0, though they would run ADD: so it is 1.0.0 at most.
    """
    plugins: list[dict[str, object]] = [{"type": SHIM_NAME}]
    plugins += [{"type": name, "capabilities": {CHAINED[name]: True}} for name in chained]
    conflist = {
        "cniVersion": max(version for version in versions if version <= DEFAULT_VERSION),
        "cniVersions": list(versions),
        "name": NETWORK,
        "plugins": plugins,
    }
    return msgspec.json.format(msgspec.json.encode(conflist), indent=2) + b"\n"


def rivals(conf_dir: Path) -> tuple[Rival, ...]:
    """Configurations of other CNIs that a runtime sees beside flock's. Runtimes take the first by name."""
    try:
        names = sorted(path.name for path in conf_dir.iterdir() if path.suffix in _SUFFIXES)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise IOFailure(f"{conf_dir} can't be read", error.strerror or str(error)) from error
    return tuple(Rival(name=name, wins=name < CONFLIST_NAME) for name in names if name != CONFLIST_NAME)
