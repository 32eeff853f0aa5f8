"""A host beyond the router that knows the nodes' links, and of pods nothing but their IPv6: no route back to IPv4 ones.

``whoami`` servers tell everyone where he came from.

If the process dies on any line: all of it is in the router's namespaces.
"""

import sys
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from flock.model.family import Address, Family
from flock_lab.host import Host, Popen
from flock_lab.lab import Lab

WHOAMI = str(Path(__file__).with_name("whoami.py"))
WHOAMI_PORT = 8080
NETNS = "world"
OUTSIDE: dict[Family, Address] = {
    Family.IPV6: IPv6Address("2001:db8:fffe::2"),
    Family.IPV4: IPv4Address("203.0.113.2"),
}
_ROUTER = {Family.IPV6: "2001:db8:fffe::1", Family.IPV4: "203.0.113.1"}
_NODES = "192.0.2.0/24"


def make_world(lab: Lab) -> None:
    """Make it, with a server in it."""
    router = lab.router
    router.run("ip", "netns", "add", NETNS)
    router.batch([f"link add world0 type veth peer name eth0 netns {NETNS}", "link set world0 up",
                  f"address add {_ROUTER[Family.IPV4]}/30 dev world0",
                  f"address add {_ROUTER[Family.IPV6]}/64 dev world0 nodad"])
    for line in ("link set lo up", "link set eth0 up", f"address add {OUTSIDE[Family.IPV4]}/30 dev eth0",
                 f"address add {OUTSIDE[Family.IPV6]}/64 dev eth0 nodad",
                 f"route add {_NODES} via {_ROUTER[Family.IPV4]}", f"-6 route add default via {_ROUTER[Family.IPV6]}"):
        router.run("ip", *line.split(), netns=NETNS)
    serve_whoami(router, NETNS)


def serve_whoami(host: Host, netns: str | None) -> Popen:
    """A server on a host or in one of its pods; it answers when this returns."""
    process = host.pipe(sys.executable, WHOAMI, "serve", netns=netns)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process
