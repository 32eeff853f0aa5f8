"""``flockctl pods``: the pods of this node and their addresses.

If the process dies on any line: nothing was changed.
"""

import click
import msgspec

from flock.cli.local import stored
from flock.cli.output import output_option, print_json, print_table


@click.command()
@output_option
def pods(output: str) -> None:
    """The pods of this node and their addresses. Works without the agent."""
    entries = stored()
    if output == "json":
        print_json([msgspec.to_builtins(entry) for entry in entries])
        return
    print_table(
        ("POD", "INTERFACE", "IPV6", "IPV4", "HOST INTERFACE", "CONTAINER"),
        ((e.owner, e.ifname, e.ip6, e.ip4, e.host_ifname, e.container_id[:13]) for e in entries),
        "no pods on this node",
    )
