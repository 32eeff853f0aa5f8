"""``flockctl ip``: read an address, or find the prefix that a namespace's pods share.

If the process dies on any line: nothing was changed.
"""

from ipaddress import IPv6Address, IPv6Network

import click
import msgspec

from flock.api.ip_algo import Field, FieldKind, parse_ip_algo
from flock.cli.ask import ask
from flock.cli.local import stored
from flock.cli.output import F, output_option, print_json, print_table
from flock.errors import AgentUnavailable, FlockFailure
from flock.ipam.embed import Candidates, Decoded, decode
from flock.ipam.embed import prefix as fixed_prefix
from flock.model.family import parse_address, parse_network

DEFAULT_ALGO = "namespace,pod,image"


@click.group()
def ip() -> None:
    """Addresses that say what they are (ip-algo)."""


def _algo_options(function: F) -> F:
    cidr = click.option("--cidr", help="The node's CIDR; the running agent's, if none is given.")
    algo = click.option("--ip-algo", default=DEFAULT_ALGO, show_default=True, help="As in the annotation.")
    return algo(cidr(function))


@ip.command("decode")
@click.argument("address")
@_algo_options
@click.option("--namespace", "namespaces", multiple=True, help="A namespace that it could mean; may be repeated.")
@click.option("--pod", "pods", multiple=True, help="A pod that it could mean; may be repeated.")
@click.option("--image", "images", multiple=True, help="An image's manifest digest that it could mean.")
@output_option
def decode_command(  # noqa: PLR0917 - one for each option
    address: str, cidr: str | None, ip_algo: str, namespaces: tuple[str, ...], pods: tuple[str, ...],
    images: tuple[str, ...], output: str,
) -> None:
    """Which namespaces, pods and images an ADDRESS can mean, among those of this node's pods and those named."""
    target, fields = _address(address), _fields(ip_algo)
    known = stored()
    candidates = Candidates(
        namespaces=sorted({*namespaces, *(entry.namespace for entry in known if entry.namespace)}),
        pods=sorted({*pods, *(entry.pod for entry in known if entry.pod)}),
        images=images,
        container_ids=[entry.container_id for entry in known],
    )
    decoded = _decode_in(target, _cidrs(cidr), fields, candidates)
    holder = next((entry for entry in known if entry.ip6 == str(target)), None)
    if output == "json":
        print_json({"address": str(target), "cidr": str(decoded.cidr), "plausible": decoded.plausible,
                    "nibble": f"{decoded.nibble:x}", "holder": msgspec.to_builtins(holder) if holder else None,
                    "fields": [{"field": str(one.field), "digits": one.digits, "matches": one.matches}
                               for one in decoded.fields]})
        return
    rows = ((one.field, one.digits, ", ".join(one.matches) or "none of those known") for one in decoded.fields)
    print_table(("FIELD", "DIGITS", "CAN MEAN"), rows, "no fields")
    click.echo(f"N is {decoded.nibble:x}; in {decoded.cidr}")
    if not decoded.plausible:
        click.echo("its digits don't look as if this ip-algo had made it")
    if holder is not None:
        click.echo(f"in use here by {holder.owner}")


@ip.command("prefix")
@click.argument("namespace")
@_algo_options
@click.option("--pod", help="Of this pod alone.")
@output_option
def prefix_command(namespace: str, cidr: str | None, ip_algo: str, pod: str | None, output: str) -> None:
    """The prefix that all pods of a NAMESPACE on this node share, for routers and firewalls to match."""
    known = {FieldKind.NAMESPACE: namespace} | ({FieldKind.POD: pod} if pod is not None else {})
    found = [fixed_prefix(net, _fields(ip_algo), known) for net in _cidrs(cidr)]
    if output == "json":
        print_json([str(one) for one in found])
    else:
        click.echo("\n".join(str(one) for one in found))


def _decode_in(address: IPv6Address, cidrs: list[IPv6Network], fields: tuple[Field, ...], candidates: Candidates
               ) -> Decoded:
    for cidr in cidrs:
        decoded = decode(address, cidr, fields, candidates)
        if decoded is not None:
            return decoded
    raise FlockFailure(f"{address} is in none of {', '.join(map(str, cidrs))}")


def _address(text: str) -> IPv6Address:
    try:
        address = parse_address(text)
    except ValueError as error:
        raise FlockFailure(f"ADDRESS {error}") from error
    if not isinstance(address, IPv6Address):
        raise FlockFailure(f"ADDRESS {text!r} is IPv4; ip-algo is for IPv6")
    return address


def _fields(text: str) -> tuple[Field, ...]:
    try:
        return parse_ip_algo(text)
    except ValueError as error:
        raise FlockFailure(f"--ip-algo {error}") from error


def _cidrs(text: str | None) -> list[IPv6Network]:
    try:
        named = [parse_network(text)] if text is not None else [parse_network(cidr) for cidr in ask("status")["cidr6"]]
    except ValueError as error:
        raise FlockFailure(f"--cidr {error}") from error
    except AgentUnavailable as error:
        raise FlockFailure("the node's CIDRs are not known: name one with --cidr", str(error)) from error
    cidrs = [cidr for cidr in named if isinstance(cidr, IPv6Network)]
    if not cidrs:
        raise FlockFailure("no IPv6 CIDR to look in")
    return cidrs
