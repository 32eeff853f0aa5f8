"""Which blackhole routes stand for the node's CIDRs (R7, R10). Pure.

Invariant: exactly one for each CIDR, at the metric that loses against every other route, so that pods' host routes and
whatever else is more specific win and the rest is dropped instead of looping back to the router. It is also what BIRD
announces: protocol 71, or 70 for a CIDR wholly inside ``hostRoutes``, whose pods are announced one by one.
"""

from flock.api.node_config import NodeConfigSpec
from flock.model.family import FAMILIES, Network
from flock.model.ownership import PROTO_ANNOUNCED, PROTO_HOME
from flock.netlink.routes import Route, blackhole


def plan_summary(spec: NodeConfigSpec) -> tuple[Route, ...]:
    """The summaries, IPv6 first."""
    return tuple(blackhole(cidr, PROTO_HOME if _one_by_one(cidr, spec) else PROTO_ANNOUNCED)
                 for family in FAMILIES for cidr in spec.cidrs(family))


def pod_route_protocol(address: Network, spec: NodeConfigSpec) -> int:
    """The protocol number of a pod's host route: announced one by one inside ``hostRoutes``, else at home."""
    return PROTO_ANNOUNCED if _one_by_one(address, spec) else PROTO_HOME


def _one_by_one(network: Network, spec: NodeConfigSpec) -> bool:
    return any(_inside(network, host_route) for host_route in spec.host_routes)


def _inside(inner: Network, outer: Network) -> bool:
    return (inner.version == outer.version and inner.prefixlen >= outer.prefixlen
            and int(inner.network_address) >> (inner.max_prefixlen - outer.prefixlen)
            == int(outer.network_address) >> (outer.max_prefixlen - outer.prefixlen))
