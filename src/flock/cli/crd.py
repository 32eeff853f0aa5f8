"""``flockctl crd``: the definition of NodeConfig for a cluster's API server.

If the process dies on any line: nothing was changed.
"""

import click
import yaml

from flock.api.crd import node_config_crd


@click.command()
def crd() -> None:
    """The CustomResourceDefinition of NodeConfig, for ``kubectl apply -f -``."""
    click.echo(yaml.safe_dump(node_config_crd(), sort_keys=False, width=120), nl=False)
