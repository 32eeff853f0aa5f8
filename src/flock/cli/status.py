"""``flockctl status``: is flock well on this node, and if not, why.

If the process dies on any line: nothing was changed.
"""

from typing import Any

import click

from flock.agent.life import last_life_sign
from flock.cli.ask import ask
from flock.cli.local import released, stored, unfinished
from flock.cli.output import output_option, print_json, print_table
from flock.cni.install import rivals
from flock.errors import AgentUnavailable
from flock.model.ownership import CNI_CONF_DIR, CONFLIST_NAME
from flock.system.clock import SystemClock


@click.command()
@output_option
def status(output: str) -> None:
    """Whether the agent serves, its loops, BIRD's sessions, what is wrong. Exit status 1 when it doesn't serve."""
    report = gather()
    if output == "json":
        print_json(report)
    else:
        _print(report)
    if not report["agent"]["serving"]:
        raise SystemExit(1)


def gather() -> dict[str, Any]:
    """Everything that can be said, agent or not."""
    try:
        agent: dict[str, Any] = ask("status")
    except AgentUnavailable as error:
        agent = {"serving": False, "error": str(error), "alive": _last_sign()}
    return {
        "agent": agent,
        "store": {"pods": len(stored()), "unfinished": len(unfinished()), "quarantined": len(released())},
        "conflist": (CNI_CONF_DIR / CONFLIST_NAME).is_file(),
        "rivals": [{"name": rival.name, "wins": rival.wins} for rival in rivals(CNI_CONF_DIR)],
    }


def _last_sign() -> str:
    last = last_life_sign()
    return "never seen since boot" if last is None else f"last seen {SystemClock().uptime() - last:.0f} s ago"


def _print(report: dict[str, Any]) -> None:
    agent = report["agent"]
    if agent["serving"]:
        click.echo(f"agent      serving as node {agent['node']}, version {agent['version']}")
        click.echo(f"addresses  {', '.join(agent['cidr6'] + agent['cidr4']) or 'no CIDRs'}, MTU {agent['mtu']}")
        click.echo(f"router ID  {agent['router_id']}")
    else:
        click.echo(f"agent      not serving: {agent.get('error', 'it is starting')}; {agent.get('alive', '')}")
    if masquerade := agent.get("masquerade4"):
        click.echo(f"masquerade {', '.join(masquerade['sources'])} outside of {', '.join(masquerade['outside'])}")
        if masquerade["error"]:
            click.echo(f"masquerade FAILS: {masquerade['error']}")
    store = report["store"]
    click.echo(f"pods       {store['pods']}, unfinished {store['unfinished']}, in quarantine {store['quarantined']}")
    click.echo(f"conflist   {'in place' if report['conflist'] else 'missing: runtimes have no network'}")
    for rival in report["rivals"]:
        effect = "comes first, so runtimes use it instead of flock" if rival["wins"] else "comes after flock's"
        click.echo(f"rival      {rival['name']} {effect}")
    _print_trouble(agent)
    if agent.get("sessions"):
        print_table(
            ("PEER", "NEIGHBOR", "AS", "STATE", "SINCE", "SAYS"),
            ((s["description"] or s["protocol"], s["neighbor"], s["neighbor_asn"], s["bgp_state"] or s["state"],
              s["since"], s["last_error"] or s["info"]) for s in agent["sessions"]),
            "",
        )


def _print_trouble(agent: dict[str, Any]) -> None:
    for problem in agent.get("problems", ()):
        click.echo(f"problem    {problem}")
    for sentence in agent.get("unserved", ()):
        click.echo(f"unserved   {sentence}")
    for name, loop in agent.get("loops", {}).items():
        if loop["error"]:
            click.echo(f"loop       {name} fails ({loop['failures']} times): {loop['error']}")
    for name, api in agent.get("api", {}).items():
        if api["error"]:
            click.echo(f"API server {name} can't be followed ({api['failures']} times): {api['error']}")
    for peer, reason in agent.get("peers_refused", {}).items():
        click.echo(f"peer       {peer} left out: {reason}")
