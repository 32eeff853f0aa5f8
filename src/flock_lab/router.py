"""The router between the nodes: a BIRD of another AS that takes the nodes' prefixes and announces default routes.

Invariant: it takes from a node what that node's own CIDRs cover and nothing else, so a wrong announcement is missing
from its table instead of hidden among others.

If the process dies on any line: BIRD and its files are in the host's namespaces and end with them.
"""

import json
from collections.abc import Sequence
from ipaddress import ip_network

from flock.model.family import FAMILIES, Family, Network, family_of
from flock.testing.wait import wait_until
from flock_lab.bird import BirdProcess
from flock_lab.host import Host
from flock_lab.plan import ROUTER_ASN, NodePlan, port_commands, router_commands
from flock_lab.state import LabRecord, ProcessMark

NAME = "router"
CONFIG = "/etc/flock/bird/router.conf"
SOCKET = "/run/router.ctl"
_ROUTER_ID = "192.0.2.254"


class Router(Host):
    """The upstream router of a lab."""

    def __init__(self, record: LabRecord, mark: ProcessMark, plans: Sequence[NodePlan],
                 extra: Sequence[Network] = ()) -> None:
        super().__init__(record, NAME, mark)
        self.plans = list(plans)
        self._extra = tuple(extra)
        self._bird = BirdProcess(self, CONFIG, SOCKET)

    def set_up(self) -> None:
        """Addresses and forwarding; the cables are laid already."""
        for plan in self.plans:
            self.sysctl(f"net/ipv6/conf/{plan.router_port}/accept_dad", 0)
        self.sysctl("net/ipv4/ip_forward", 1)
        self.sysctl("net/ipv6/conf/all/forwarding", 1)
        self.batch(router_commands(self.plans))
        self.path(CONFIG).write_text(render_router(self.plans, self._extra))

    def reconnect(self, plan: NodePlan) -> None:
        """Set up the port of a node that has a new cable."""
        self.sysctl(f"net/ipv6/conf/{plan.router_port}/accept_dad", 0)
        self.batch(port_commands(plan))

    def has_port(self, plan: NodePlan) -> bool:
        return self.run("ip", "link", "show", plan.router_port, check=False).returncode == 0

    def start_bird(self) -> None:
        """Start the routing daemon and wait until it answers."""
        self._bird.start()

    def kill_bird(self) -> None:
        """End it as a crash would."""
        self._bird.kill()

    def birdc(self, *words: str) -> str:
        """Ask the router's BIRD, as an operator would."""
        return self._bird.ask(*words)

    def learned(self) -> frozenset[Network]:
        """What it forwards to the nodes: the kernel's routes that came by BGP."""
        return frozenset(network for family in FAMILIES for network in self._kernel_routes(family))

    def await_learned(self, *networks: Network, deadline: float = 20.0) -> None:
        """Wait until all of these are in its kernel."""
        wait_until(lambda: self.learned() >= set(networks), deadline,
                   f"{', '.join(map(str, networks))} in the router's table")

    def await_forgotten(self, *networks: Network, deadline: float = 20.0) -> None:
        """Wait until none of these is in its kernel."""
        wait_until(lambda: not self.learned() & set(networks), deadline,
                   f"{', '.join(map(str, networks))} gone from the router's table")

    def _kernel_routes(self, family: Family) -> list[Network]:
        text = self.run("ip", f"-{family.suffix}", "-json", "route", "show", "proto", "bird").stdout
        return [ip_network(route["dst"]) for route in json.loads(text or "[]")]


def render_router(plans: Sequence[NodePlan], extra: Sequence[Network]) -> str:
    """The router's configuration: one eBGP session to each node, over IPv6, that carries both families."""
    parts = [_HEAD.format(router_id=_ROUTER_ID)]
    for plan in plans:
        own = [*plan.cidrs.values(), *extra]
        sets = {family: ", ".join(f"{network}+" for network in own if family_of(network) is family)
                for family in FAMILIES}
        link = plan.links[Family.IPV6]
        parts.append(_PEER.format(
            name=plan.router_port, own6=sets[Family.IPV6], own4=sets[Family.IPV4], local=link.router, peer=link.node,
            local_as=ROUTER_ASN, peer_as=plan.asn))
    return "".join(parts)


_HEAD = """\
log stderr all;
router id {router_id};
protocol device {{ scan time 10; }}
protocol kernel {{ ipv6 {{ import none; export where source = RTS_BGP; }}; }}
protocol kernel {{ ipv4 {{ import none; export where source = RTS_BGP; }}; }}
protocol static default6 {{ ipv6; route ::/0 unreachable; }}
protocol static default4 {{ ipv4; route 0.0.0.0/0 unreachable; }}
"""

_PEER = """
filter from_{name} {{
  if net.type = NET_IP6 then {{ if net ~ [ {own6} ] then accept; }}
  if net.type = NET_IP4 then {{ if net ~ [ {own4} ] then accept; }}
  reject;
}}
protocol bgp {name} {{
  local {local} as {local_as};
  neighbor {peer} as {peer_as};
  enforce first as on;
  connect delay time 1; connect retry time 1; error wait time 1, 2; hold time 9; keepalive time 3;
  graceful restart aware;
  ipv6 {{ import filter from_{name}; export where proto = "default6"; next hop self; }};
  ipv4 {{ import filter from_{name}; export where proto = "default4"; next hop self; extended next hop on; }};
}}
"""
