"""``flockctl render``: what flock would write for a folder of manifests, nothing done.

If the process dies on any line: nothing was changed.
"""

import asyncio
import sys
from ipaddress import IPv4Address
from pathlib import Path

import click

from flock.cli.ask import ask
from flock.cli.output import output_option, print_json
from flock.cluster.manifests import ManifestsFolder
from flock.cluster.view import Snapshot
from flock.errors import FlockFailure
from flock.routing.bird_config import bird_inputs, render_bird
from flock.routing.masquerade import plan_masquerade, render_masquerade
from flock.routing.router_id import choose_router_id
from flock.routing.summary import plan_summary


@click.command()
@click.option("--manifests", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Render this folder instead of asking the agent.")
@click.option("--node", help="Whose NodeConfig; needed with --manifests.")
@output_option
def render(manifests: Path | None, node: str | None, output: str) -> None:
    """What would be written: BIRD's configuration, the summary routes, and the nft table of masquerade4.

    Of the running agent, or of a folder of manifests before any agent sees it; problems of the folder go to standard
    error, and the exit status is 1.
    """
    if manifests is None:
        answer, bad = ask("render"), False
    elif node is None:
        raise click.UsageError("--manifests needs --node")
    else:
        answer, bad = asyncio.run(_of_folder(manifests, node))
    if output == "json":
        print_json(answer)
    else:
        click.echo("\n".join(answer["summaries"]))
        if answer["nft"]:
            click.echo(f"\n# nft -f -\n{answer['nft']}", nl=False)
        click.echo(f"\n# /etc/flock/bird/bird.conf\n{answer['bird.conf']}", nl=False)
    if bad:
        sys.exit(1)


async def _of_folder(path: Path, node: str) -> tuple[dict[str, object], bool]:
    folder = ManifestsFolder(path, node, asyncio.get_running_loop())
    await folder.start()
    snapshot: Snapshot = folder.view.snapshot
    folder.close()
    for problem in snapshot.problems:
        click.echo(f"flockctl: {problem}", err=True)
    config = snapshot.node_configs.get(node)
    if config is None:
        raise FlockFailure(f"{path} has no NodeConfig {node}", f"it has: {', '.join(snapshot.node_configs) or 'none'}")
    configured: IPv4Address | None = config.spec.bgp.router_id if config.spec.bgp is not None else None
    masquerade = plan_masquerade(config.spec, snapshot.node_configs.values(), ())
    rendered = render_bird(bird_inputs(config, choose_router_id(configured, (), node)))
    return {
        "bird.conf": rendered.text,
        "summaries": [f"blackhole {route.dst} proto {route.proto} metric {route.metric}"
                      for route in plan_summary(config.spec)],
        "nft": render_masquerade(masquerade) if masquerade is not None else "",
        "peers_refused": dict(rendered.refused),
    }, bool(snapshot.problems or rendered.refused)
