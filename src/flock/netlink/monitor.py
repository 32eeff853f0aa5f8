"""The kernel's notices, for the event loop: links that are gone, and things that somebody took away.

    links = Monitor.of_gone_links()         # LinkGone of flk* alone, Overflow
    losses = Monitor.of_losses(watched=lambda ifindex: ifindex in live_links)
                                            # RouteGone, NeighbourGone, AddressGone, LinkChanged, Overflow
    loop.add_reader(links.fileno(), lambda: handle(links.read()))

Invariant: a socket filter lets only these through, since each ADD makes a dozen notices that would wake the loop
otherwise. ``read`` never blocks and hands back at most a hundred or so events; the descriptor stays readable for more.

If the process dies on any line: notices are lost, as they are while it is down; the sweep at its start finds out.

Sources: net/core/filter.c (the NLATTR extension), net/core/rtnetlink.c.
"""

import contextlib
import errno
import socket
from collections.abc import Iterable

from flock.errors import IOFailure
from flock.netlink import constants as nl
from flock.netlink.bpf import attach, gone_links_filter, losses_filter
from flock.netlink.events import Event, Overflow, Watched, parse_event
from flock.netlink.wire import messages

_READS = 128
_DATAGRAM = 1 << 15
BUFFER = 8 << 20
"""Room for the notices of a thousand links that go at once; only the superuser may have so much."""

_SO_RCVBUFFORCE = 33

LOSS_GROUPS = (
    nl.RTNLGRP_LINK,
    nl.RTNLGRP_NEIGH,
    nl.RTNLGRP_IPV4_IFADDR,
    nl.RTNLGRP_IPV6_IFADDR,
    nl.RTNLGRP_IPV4_ROUTE,
    nl.RTNLGRP_IPV6_ROUTE,
)


class Monitor:
    """A multicast socket that listens in the namespace of the thread that made it."""

    def __init__(
        self, groups: Iterable[int], program: bytes, buffer: int = BUFFER, watched: Watched | None = None
    ) -> None:
        self._watched = watched
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        self._sock = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
        try:
            with contextlib.suppress(PermissionError):
                self._sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer)
            attach(self._sock, program)
            # Without a port of its own a socket counts as the sender of the kernel's notices, and gets none.
            self._sock.bind((0, 0))
            for group in groups:
                self._sock.setsockopt(nl.SOL_NETLINK, nl.NETLINK_ADD_MEMBERSHIP, group)
        except OSError as error:
            self._sock.close()
            raise IOFailure("the kernel's notices can't be heard", str(error)) from error

    @classmethod
    def of_gone_links(cls) -> "Monitor":
        """Hears of flock's links that are gone, and of nothing else."""
        return cls((nl.RTNLGRP_LINK,), gone_links_filter())

    @classmethod
    def of_losses(cls, buffer: int = BUFFER, watched: Watched | None = None) -> "Monitor":
        """Hears of routes, neighbours and addresses that are gone and of flock's links that were changed.

        ``watched`` says which links matter; without it all do, the uplinks too.
        """
        return cls(LOSS_GROUPS, losses_filter(), buffer, watched)

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def read(self) -> list[Event]:
        """What has come in since; Overflow where the kernel had to drop some."""
        events: list[Event] = []
        for _ in range(_READS):
            try:
                datagram = self._sock.recv(_DATAGRAM)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise IOFailure("the kernel's notices can't be read", str(error)) from error
                events.append(Overflow())
                continue
            found = (parse_event(message, self._watched) for message in messages(datagram))
            events.extend(event for event in found if event is not None)
        return events
