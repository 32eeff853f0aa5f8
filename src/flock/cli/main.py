"""``flockctl``, also found as ``kubectl flock``: what an operator looks with.

If the process dies on any line: nothing was changed; every command but ``lab`` and ``node`` only reads.
"""

import sys
from importlib import import_module
from importlib.util import find_spec

import click

from flock import __version__
from flock.cli.check import check
from flock.cli.crd import crd
from flock.cli.ip import ip
from flock.cli.node import node
from flock.cli.pods import pods
from flock.cli.policy import policy
from flock.cli.render import render
from flock.cli.status import status
from flock.errors import FlockError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="flockctl")
def cli() -> None:
    """Look at flock on this node: its agent, its pods' addresses, its routes."""


for command in (status, pods, ip, policy, check, render, crd, node):
    cli.add_command(command)
# The image of the agent brings no lab.
if find_spec("flock_lab") is not None:
    cli.add_command(import_module("flock.cli.lab").lab)


def main() -> None:
    """Run one command; errors are one sentence and exit status 1, a broken pipe is silent."""
    try:
        cli(standalone_mode=True)
    except FlockError as error:
        click.echo(f"flockctl: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
