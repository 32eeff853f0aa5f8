"""``flockctl lab``: nodes, a router and real daemons on one machine, to look at and to try things on.

If the process dies on any line: ``flockctl lab down NAME`` takes away what was made.
"""

import os

import click

from flock_lab import holder, state
from flock_lab.lab import Lab
from flock_lab.plan import MAX_NODES
from flock_lab.state import LabError

DEFAULT = "lab"


@click.group()
def lab() -> None:
    """Whole nodes in namespaces of this machine: agents, BIRD, a router. Needs root."""


@lab.command()
@click.argument("name", default=DEFAULT)
@click.option("--nodes", type=click.IntRange(1, MAX_NODES), default=2, show_default=True, help="How many nodes.")
def up(name: str, nodes: int) -> None:
    """Make a lab that stays until it is taken down, and start everything in it."""
    with _told():
        made = Lab.up(name, nodes, stay=True)
        try:
            made.start()
        except BaseException:
            made.close()
            raise
        made.leave()
    click.echo(f"{name} is up: {made.record.hosts()}")
    click.echo(f"enter a host:  flockctl lab exec --lab {name} {made.nodes[0].name}")
    click.echo(f"take it down:  flockctl lab down {name}")


@lab.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--lab", "name", default=DEFAULT, show_default=True, help="Which lab.")
@click.option("--pod", "netns", help="One of the node's pods, as `ip netns` on the node names it.")
@click.argument("host")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def exec_(name: str, netns: str | None, host: str, command: tuple[str, ...]) -> None:
    """Run a COMMAND (a shell, if none is given) on a HOST of a lab, or inside one of its pods."""
    with _told():
        record = state.load(name)
        if record is None:
            raise LabError(f"there is no lab {name}", f"there is: {', '.join(state.names()) or 'none'}")
        argv = holder.enter_argv(record.holder(host), list(command) or [os.environ.get("SHELL", "sh")], netns)
    os.execvp(argv[0], argv)  # noqa: S606 - a terminal is handed on, with no process between


@lab.command()
@click.argument("name", default=DEFAULT)
def down(name: str) -> None:
    """Take a lab down, also one that a crash has left: nothing of it stays."""
    with _told():
        existed = Lab.down(name)
    click.echo(f"{name} is down" if existed else f"there is no lab {name}")


@lab.command("list")
def list_() -> None:
    """Name the labs that are up."""
    for name in state.names():
        record = state.load(name)
        click.echo(f"{name}: {record.hosts() if record else 'left by a crash'}")


class _told:  # noqa: N801 - reads as a word of the language
    """Errors of the lab, as a message and an exit code in the place of a traceback."""

    def __enter__(self) -> None:
        if os.geteuid() != 0:
            raise click.ClickException("a lab needs root: it makes namespaces, mounts and links")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (LabError, AssertionError)):
            raise click.ClickException(str(error)) from error
