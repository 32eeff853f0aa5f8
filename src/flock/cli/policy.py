"""``flockctl policy``: which NetworkPolicies select this node's pods, and whether a packet would pass.

If the process dies on any line: nothing was changed.
"""

from typing import Any

import click
import msgspec

from flock.cli.ask import ask
from flock.cli.output import output_option, print_json, print_table

PROTOCOLS = ("tcp", "udp", "sctp", "icmp")


@click.group()
def policy() -> None:
    """NetworkPolicies on this node. Asks the agent."""


@policy.command()
@output_option
def show(output: str) -> None:
    """The policies that select each pod of this node, for each direction."""
    found: list[dict[str, Any]] = ask("policy-show")
    if output == "json":
        print_json(found)
        return
    print_table(("POD", "INGRESS", "EGRESS"), (
        (one["pod"], _policies(one["ingress"]), _policies(one["egress"])) for one in found), "no pods on this node")


@policy.command()
@click.argument("source")
@click.argument("target")
@click.option("--protocol", type=click.Choice(PROTOCOLS), default="tcp", show_default=True)
@click.option("--port", type=int, help="The receiving pod's own port, not a Service's.")
@output_option
def explain(source: str, target: str, protocol: str, port: int | None, output: str) -> None:
    """Would a packet from SOURCE to TARGET pass this node, and which rule says so?

    Both are addresses or NAMESPACE/POD. Rules are counted from 0. Exit status 1 where any pair of addresses is denied.
    """
    body = msgspec.json.encode({"source": source, "target": target, "protocol": protocol, "port": port})
    found: list[dict[str, Any]] = ask("policy-explain", body)
    if output == "json":
        print_json(found)
    else:
        print_table(("FROM", "TO", "", "WHY"), (
            (one["source"], one["target"], "passes" if one["allowed"] else "DENIED", "; ".join(one["reasons"]))
            for one in found), "nothing to say")
    if not all(one["allowed"] for one in found):
        raise SystemExit(1)


def _policies(names: list[str] | None) -> str:
    return "open" if names is None else ", ".join(names)
