"""``flockctl check``: what the store says against what the kernel has.

If the process dies on any line: nothing was changed.
"""

import click

from flock.agent.recovery import decide_recovery
from flock.cli.ask import ask
from flock.cli.local import stored, unfinished
from flock.cli.output import output_option, print_json, print_table
from flock.errors import AgentUnavailable
from flock.pods.wiring import PodWiring


@click.command()
@output_option
def check(output: str) -> None:
    """Compare the store with the kernel. Exit status 1 when something differs.

    With the agent every route, address and neighbour of each pod is compared, and the node's nft table of masquerade4;
    without it, whether each pod has its interface and each interface its pod.
    """
    node: list[str] = []
    try:
        answer = ask("check")
        differences: dict[str, list[str]] = answer["pods"]
        node = answer["node"]
    except AgentUnavailable:
        click.echo("the agent doesn't answer: interfaces and files alone are compared", err=True)
        differences = compare_files()
    found = [("the node", what) for what in node]
    found += [(key, what) for key, whats in differences.items() for what in whats]
    if output == "json":
        wrong = {key: whats for key, whats in differences.items() if whats}
        print_json({"pods": len(differences), "differences": wrong, "node": node})
    else:
        print_table(("ATTACHMENT", "DIFFERENCE"), found, f"{len(differences)} pods, all as they should be")
    if found:
        raise SystemExit(1)


def compare_files() -> dict[str, list[str]]:
    """The same join as the agent makes at its start, in words."""
    recovery = decide_recovery(stored(), [entry.key for entry in unfinished()], PodWiring().scan(), 0.0)
    said: dict[str, list[str]] = {str(entry.key): [] for entry in recovery.keep}
    said |= {str(key): ["an ADD that was not finished"] for key in recovery.tear_down}
    said |= {str(entry.key): [f"the interface {entry.host_ifname} is missing"] for entry in recovery.lost}
    said |= {str(entry.key): [f"the interface {entry.host_ifname} has no file"] for entry in recovery.rebuild}
    return said
