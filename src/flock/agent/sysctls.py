"""The kernel settings that a routing node needs, set once at start (R1).

A failure is logged and never fatal: a node that an operator has set up by hand works as well.

If the process dies on any line: some are set, the next start sets the rest.
"""

import contextlib
import logging
import socket
from collections.abc import Iterator

from flock.agent.logs import ctx
from flock.errors import FlockError
from flock.model.family import Family
from flock.netlink.routes import dump_routes
from flock.netlink.socket import NetlinkSocket
from flock.system.sysctl import ensure_sysctl, read_sysctl

RTPROT_RA = 9
"""include/uapi/linux/rtnetlink.h: installed by router advertisement."""

SETTINGS = (
    # Hash on ports too, so that connections spread over equal routes.
    ("net.ipv4.fib_multipath_hash_policy", 1),
    ("net.ipv6.fib_multipath_hash_policy", 1),
    ("net.ipv4.ip_forward", 1),
    ("net.ipv6.conf.all.forwarding", 1),
)

log = logging.getLogger("flock.sysctls")


def apply_sysctls() -> None:
    """Set them all, uplinks first.

    Forwarding makes the kernel drop what router advertisements gave, unless accept_ra is 2
    (Documentation/networking/ip-sysctl.rst).
    """
    for name, value in [*_uplinks(), *SETTINGS]:
        try:
            if ensure_sysctl(name, value):
                log.info("sysctl set", extra=ctx(name=name, value=value))
        except (FlockError, ValueError) as error:
            log.warning("sysctl not set", extra=ctx(name=name, value=value, error=error))


def _uplinks() -> Iterator[tuple[str, int]]:
    """Interfaces whose default route came by router advertisement and would go."""
    with NetlinkSocket() as sock:
        routes = dump_routes(sock, families=(Family.IPV6,), protos={RTPROT_RA})
    for index in {route.ifindex for route in routes if route.dst.prefixlen == 0 and route.ifindex}:
        with contextlib.suppress(OSError):
            setting = f"net/ipv6/conf/{socket.if_indextoname(index)}/accept_ra"
            if read_sysctl(setting) == "1":
                yield setting, 2
