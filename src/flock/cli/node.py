"""``flockctl node``: what is put on a node before the agent runs, and taken off it when flock goes.

If the process dies on any line: run it again; each step is done or not, and none of them twice.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from flock.agent.summaries import ensure_summaries
from flock.cni.install import remove_conflist
from flock.cni.programs import install_programs, remove_programs
from flock.errors import FlockFailure, IOFailure
from flock.model import ownership as own
from flock.pods.wiring import PodWiring
from flock.policy.kernel import PolicyTable
from flock.routing.masquerade_table import MasqueradeTable

SHIPPED = Path("/opt/flock/programs")


@click.group()
def node() -> None:
    """Prepare this node for flock, or take flock off it. Needs root."""


@node.command()
@click.option("--from", "source", type=click.Path(path_type=Path), default=SHIPPED, show_default=True,
              help="The folder of programs.")
@click.option("--bin-dir", type=click.Path(path_type=Path), default=own.CNI_BIN_DIR, show_default=True,
              help="Where the runtime looks for CNI plugins.")
def install(source: Path, bin_dir: Path) -> None:
    """Install the shim and the plugins that follow it, by rename. A plugin of somebody else's is left alone."""
    for outcome in install_programs(source, bin_dir):
        click.echo(f"{outcome.done:10} {bin_dir / outcome.name}")


@node.command()
@click.option("--force", is_flag=True, help="Even if there are pods; they lose their network.")
def clean(force: bool) -> None:
    """Take flock off this node: its configuration for the runtime, its programs, routes, tables and files.

    The agent and BIRD must have ended: it refuses while an agent runs, forced or not. Pods that have addresses of
    flock's keep it from going, unless it is forced.
    """
    with _without_agent():
        _clean(force)


def _clean(force: bool) -> None:
    # Links, not allocations: a DEL that came after the agent's end is queued, and its allocation stays.
    pods = len(PodWiring().scan())
    if pods and not force:
        raise FlockFailure(f"{pods} pods have addresses of flock's", "end them first (kubectl drain), or say --force")
    if remove_conflist(own.CNI_CONF_DIR):
        click.echo(f"removed    {own.CNI_CONF_DIR / own.CONFLIST_NAME}")
    for name in remove_programs(own.CNI_BIN_DIR):
        click.echo(f"removed    {own.CNI_BIN_DIR / name}")
    for change in ensure_summaries(frozenset()):
        click.echo(f"removed    blackhole {change.removesuffix(' removed')}")
    if MasqueradeTable().remove():
        click.echo("removed    the nft table of masquerade4")
    with closing(PolicyTable()) as policy:
        if policy.remove():
            click.echo("removed    the nft table of policy")
    for folder in (own.RUN_DIR, own.BIRD_CONFIG.parent):
        if _empty(folder):
            click.echo(f"emptied    {folder}")


@contextmanager
def _without_agent() -> Iterator[None]:
    """Hold the node's lock, which an agent keeps until it is through: one that is still ending would write anew."""
    try:
        lock = os.open(own.LOCK_FILE, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    except OSError as error:
        raise IOFailure(f"{own.LOCK_FILE} can't be opened", error.strerror or str(error)) from error
    try:
        _take(lock)
        yield
    finally:
        os.close(lock)


def _take(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FlockFailure("an agent runs on this node", f"end it first; it holds {own.LOCK_FILE}") from error


def _empty(folder: Path) -> bool:
    """Remove what is in a folder of flock's own; the folder may be a mount, and stays."""
    try:
        entries = list(folder.iterdir())
        for entry in entries:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink(missing_ok=True)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise IOFailure(f"{folder} can't be emptied", error.strerror or str(error)) from error
    return bool(entries)
