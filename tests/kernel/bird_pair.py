"""A node with its BIRD, a router of another AS with its own, and a cable between them, in two network namespaces.

The node's BIRD may come from a Debian root of another version: it is chrooted there, in a mount namespace of its own in
which its folder has the same path as outside. If a test dies, its namespaces and daemons are named after it.
"""

import asyncio
import contextlib
import json
import shlex
import signal
import subprocess
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from ipaddress import IPv4Address, ip_address, ip_network
from pathlib import Path
from typing import Any, TypeVar

from flock.api.bgp import ImportPolicy, Peer
from flock.model.family import Address, Family, Network, family_of
from flock.routing.bird import Bird
from flock.routing.bird_config import render_bird
from flock.routing.bird_protocol import SessionState
from flock.routing.peers import BirdInputs
from flock.system.clock import SystemClock
from flock.testing.wait import wait_until
from flock_lab.netns import Netns

T = TypeVar("T")

POD6, POD4 = ip_network("2001:db8:0:1::/64"), ip_network("10.64.1.0/24")
HOST_ROUTE = ip_network("2001:db8:0:1:f::/80")
ANYCAST6, ANYCAST4 = ip_network("2001:db8:53::/64"), ip_network("10.53.0.0/28")
NODE: dict[Family, Address] = {Family.IPV6: ip_address("2001:db8:100::2"), Family.IPV4: ip_address("192.0.2.2")}
ROUTER: dict[Family, Address] = {Family.IPV6: ip_address("2001:db8:100::1"), Family.IPV4: ip_address("192.0.2.1")}
NODE_LL, ROUTER_LL = "fe80::2", "fe80::1"

INPUTS = BirdInputs(
    node="node-1", router_id=IPv4Address("192.0.2.2"), asn=64513, cidrs=(POD6, POD4), host_routes=(HOST_ROUTE,),
    anycast_cidrs=(ANYCAST6, ANYCAST4), own_addresses=frozenset(NODE.values()), sources=NODE)

TOR = Peer(name="tor", address=ROUTER[Family.IPV6], asn=64512, import_=ImportPolicy.DEFAULT_ROUTE)

_ROUTER_HEAD = """\
log stderr all; router id 192.0.2.1;
protocol device { scan time 1; }
protocol kernel { ipv6 { import none; export where source = RTS_BGP; }; }
protocol kernel { ipv4 { import none; export where source = RTS_BGP; }; }
protocol static world6 { ipv6 { preference 50; }; route ::/0 unreachable; route 2001:db8:0:1::/64 unreachable;
  route 2001:db8:0:1::7/128 unreachable; route 2001:db8:ff::/48 unreachable; }
protocol static world4 { ipv4 { preference 50; }; route 0.0.0.0/0 unreachable; route 10.64.1.0/24 unreachable;
  route 10.64.1.7/32 unreachable; route 198.51.100.0/24 unreachable; }
"""
_ROUTER_PEER = """
protocol bgp node {{
  local {local} as {asn}; neighbor {node} as 64513; {more}
  connect delay time 1; connect retry time 1; error wait time 1, 2; hold time 9; keepalive time 3;
  ipv6 {{ next hop self; import all; export where source = RTS_STATIC; }};
  ipv4 {{ next hop self; {extended} import all; export where source = RTS_STATIC; }};
}}
"""


class BirdPair:
    """Both ends; ``root`` is where the node's BIRD is installed."""

    def __init__(self, folder: Path, root: Path, node: Netns, router: Netns) -> None:
        self.folder = folder
        self.node = node
        self.router = router
        self.config = folder / "node" / "bird.conf"
        self.socket = folder / "node.ctl"
        self.bird: subprocess.Popen[bytes] | None = None
        self._prefix = [] if root == Path("/") else _inside(root, folder)
        self._router_bird: subprocess.Popen[bytes] | None = None
        self.program = folder / "bird"
        self.program.write_text(f'#!/bin/sh\nexec {shlex.join([*self._prefix, "bird"])} "$@"\n')
        self.program.chmod(0o755)
        self._wire()

    def _wire(self) -> None:
        self.router.command("ip", "link", "add", "tor0", "type", "veth", "peer", "name", "eth0",
                            "netns", self.node.name)
        for netns, device, addresses, link_local in (
                (self.node, "eth0", NODE, NODE_LL), (self.router, "tor0", ROUTER, ROUTER_LL)):
            netns.command("ip", "link", "set", device, "addrgenmode", "none")
            netns.command("ip", "link", "set", device, "up")
            for length, address in ((64, addresses[Family.IPV6]), (30, addresses[Family.IPV4]), (64, link_local)):
                netns.command("ip", "address", "add", f"{address}/{length}", "dev", device,
                              *(["nodad"] if length == 64 else []))

    def agent(self) -> Bird:
        """The agent's side, as after a start of the agent."""
        return Bird(self.socket, self.config, SystemClock(), program=str(self.program))

    def start_bird(self, *options: str) -> None:
        """Start the node's BIRD and wait until it answers."""
        command = [*self._prefix, "bird", "-f", "-c", str(self.config), "-s", str(self.socket), *options]
        with (self.folder / "node.log").open("ab") as log:
            self.bird = subprocess.Popen(self.node.argv(command), stderr=log, stdout=log)
        wait_until(lambda: run(self.agent().status()) is not None, 10.0, "the node's BIRD answers")

    def stop_bird(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the node's BIRD."""
        if self.bird is not None:
            self.bird.send_signal(how)
            self.bird.wait(10)
            self.bird = None

    def start_router(self, local: Address | str, node: Address | str, *, asn: int = 64512, more: str = "") -> None:
        """(Re)start the router with a session from ``local`` to ``node``."""
        self.stop_router()
        extended = "extended next hop on;" if ":" in str(local) else ""
        config = self.folder / "router.conf"
        config.write_text(_ROUTER_HEAD + _ROUTER_PEER.format(local=local, node=node, asn=asn, more=more,
                                                             extended=extended))
        command = ["bird", "-f", "-c", str(config), "-s", str(self.folder / "router.ctl")]
        with (self.folder / "router.log").open("ab") as log:
            self._router_bird = subprocess.Popen(self.router.argv(command), stderr=log, stdout=log)

    def stop_router(self) -> None:
        """End the router's BIRD."""
        if self._router_bird is not None:
            self._router_bird.terminate()
            self._router_bird.wait(10)
            self._router_bird = None

    def ask_router(self, *words: str) -> str:
        """What the router's BIRD says to an operator."""
        return self.router.command("birdc", "-s", str(self.folder / "router.ctl"), *words).stdout

    def apply(self, *peers: Peer, agent: Bird | None = None, **changes: Any) -> Any:  # noqa: ANN401 - fields of inputs
        """Hand a configuration with these peers to the node's BIRD."""
        return run((agent or self.agent()).apply(render_bird(replace(INPUTS, peers=peers, **changes))))

    def sessions(self) -> dict[str, SessionState]:
        """The node's sessions by the user's name of the peer."""
        return {session.description: session for session in run(self.agent().sessions())}

    def await_session(self, name: str = "tor") -> SessionState:
        """Wait until a session is up with its channels."""
        def up() -> SessionState | None:
            session = self.sessions().get(name)
            ready = session is not None and session.established and all(c.state == "UP" for c in session.channels)
            return session if ready else None

        found = wait_until(up, 20.0, f"the session {name} is up")
        assert found is not None
        return found

    def route(self, verb: str, dst: Network | str, proto: int = 71) -> None:
        """``ip route VERB blackhole DST``, at the last metric, as the agent makes summaries."""
        family = f"-{family_of(ip_network(dst)).suffix}"
        self.node.command("ip", family, "route", verb, "blackhole", str(dst), "proto", str(proto), "metric",
                          "4294967295")

    def learned(self) -> dict[str, dict[str, Any]]:
        """What the router's kernel has by BGP, by prefix."""
        return _bird_routes(self.router)

    def imported(self) -> dict[str, dict[str, Any]]:
        """What the node's kernel has by BGP, by prefix."""
        return _bird_routes(self.node)

    def await_learned(self, *present: Network | str, absent: tuple[Network | str, ...] = (),
                      deadline: float = 10.0) -> None:
        """Wait until the router has these and none of those."""
        wait_until(lambda: {str(one) for one in present} <= self.learned().keys()
                   and not {str(one) for one in absent} & self.learned().keys(),
                   deadline, f"the router has {present} and not {absent}")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The tests here are about processes and wait in threads; each question to BIRD has a loop of its own."""
    return asyncio.run(coroutine)


@contextlib.contextmanager
def bird_pair(folder: Path, root: Path = Path("/")) -> Iterator[BirdPair]:
    """A pair, and nothing of it left afterwards."""
    with Netns.create() as node, Netns.create() as router:
        pair = BirdPair(folder, root, node, router)
        try:
            yield pair
        finally:
            if pair.bird is not None:
                pair.bird.send_signal(signal.SIGCONT)
            pair.stop_bird()
            pair.stop_router()


def _inside(root: Path, folder: Path) -> list[str]:
    """A command line's head: the same folder under the same path in another root, seen by nobody else."""
    inner = root / folder.relative_to("/")
    script = (f"mount -t tmpfs none {root}/tmp && mkdir -p {inner} && mount --bind {folder} {inner} && "
              f'exec chroot {root} "$@"')
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh"]


def _bird_routes(netns: Netns) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for family, whole in (("-6", "::/0"), ("-4", "0.0.0.0/0")):
        for route in json.loads(netns.command("ip", family, "-json", "route", "show", "proto", "bird").stdout or "[]"):
            dst = whole if route["dst"] == "default" else route["dst"]
            found[dst if "/" in dst else f"{dst}/{128 if family == '-6' else 32}"] = route
    return found
