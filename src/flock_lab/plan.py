"""Who has which address in a lab: a function of the node's number alone. Pure.

Documentation prefixes (RFC 3849, RFC 5737) for links and router, 10.64.N.0/24 for pods, since RFC 5737 has no room for
them. The nth node hangs on a link of its own to the router, so that a path between two pods is three hops long.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from flock.model.family import Address, Family, Network

ROUTER_ASN = 64512
MAX_NODES = 60
UPLINK = "eth0"

WORLD: dict[Family, Address] = {
    Family.IPV6: IPv6Address("2001:db8:ffff::1"),
    Family.IPV4: IPv4Address("198.51.100.1"),
}
"""What the router has on its loopback: the world beyond the nodes, for pods to talk to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One family of the link between a node and the router."""

    network: Network
    router: Address
    node: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """Everything numbered about a node; ``number`` starts at 1."""

    number: int
    name: str
    asn: int
    router_port: str
    links: dict[Family, Link]
    cidrs: dict[Family, Network]

    def address(self, family: Family) -> Address:
        return self.links[family].node


def plan_node(number: int) -> NodePlan:
    """The node of that number."""
    if not 1 <= number <= MAX_NODES:
        raise ValueError(f"a lab has 1 to {MAX_NODES} nodes, not {number}")
    link6 = IPv6Network(f"2001:db8:100:{number:x}::/64")
    link4 = IPv4Network(f"192.0.2.{4 * number}/30")
    return NodePlan(
        number=number, name=f"node-{number}", asn=ROUTER_ASN + number, router_port=f"node{number}",
        links={Family.IPV6: Link(network=link6, router=link6[1], node=link6[2]),
               Family.IPV4: Link(network=link4, router=link4[1], node=link4[2])},
        cidrs={Family.IPV6: IPv6Network(f"2001:db8:0:{number:x}::/64"),
               Family.IPV4: IPv4Network(f"10.64.{number}.0/24")},
    )


def link_commands(plan: NodePlan, node_netns: str) -> list[str]:
    """``ip -batch`` lines, run in the router's namespace, that lay the cable; both ends are still down."""
    return [f"link add {plan.router_port} type veth peer name {UPLINK} netns {node_netns}"]


def router_commands(plans: list[NodePlan]) -> list[str]:
    """``ip -batch`` lines for the router."""
    lines = [f"address add {address}/{address.max_prefixlen} dev lo" for address in WORLD.values()]
    for plan in plans:
        lines += port_commands(plan)
    return lines


def port_commands(plan: NodePlan) -> list[str]:
    """``ip -batch`` lines for the router's end of one node's cable."""
    return _end_commands(plan.router_port, [(link.router, link.network) for link in plan.links.values()])


def node_commands(plan: NodePlan) -> list[str]:
    """``ip -batch`` lines for a node: addresses alone; its routes come by BGP, its forwarding from the agent."""
    return _end_commands(UPLINK, [(link.node, link.network) for link in plan.links.values()])


def _end_commands(device: str, addresses: list[tuple[Address, Network]]) -> list[str]:
    lines = [f"link set {device} up"]
    for address, network in addresses:
        option = " nodad" if address.version == 6 else ""
        lines.append(f"address add {address}/{network.prefixlen} dev {device}{option}")
    return lines
