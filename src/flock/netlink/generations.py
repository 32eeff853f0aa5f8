"""Each transaction of nftables in this network namespace that others make, as an event for the event loop.

    generations = Generations()
    loop.add_reader(generations.fileno(), lambda: generations.read() and look())

Those of flock's own workers, which come with every pod, wake nobody: the kernel tells the name of the thread.

The kernel packs what a transaction changed into shared datagrams that no socket filter can tell apart; the new
generation's notice has one of its own, and it is the only one that wakes anybody. Who hears it looks at what is his.

Invariant: ``read`` never blocks; notices that the kernel had to drop count as one.

If the process dies on any line: nothing is kept here.

Source: nf_tables_api.c (nf_tables_commit, nf_tables_gen_notify).
"""

import errno
import socket

from flock.errors import IOFailure
from flock.model.ownership import WORKER_THREAD
from flock.netlink import constants as nl
from flock.netlink.bpf import attach, generations_filter

_READS = 128
_DATAGRAM = 1 << 12


class Generations:
    """Listens in the namespace of the thread that made it."""

    def __init__(self) -> None:
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        self._sock = socket.socket(socket.AF_NETLINK, kind, nl.NETLINK_NETFILTER)
        try:
            attach(self._sock, generations_filter(WORKER_THREAD))
            self._sock.bind((0, 0))
            self._sock.setsockopt(nl.SOL_NETLINK, nl.NETLINK_ADD_MEMBERSHIP, nl.NFNLGRP_NFTABLES)
        except OSError as error:
            self._sock.close()
            raise IOFailure("nftables' notices can't be heard", str(error)) from error

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def read(self) -> int:
        """How many transactions there were since, at most a hundred or so at a time; the rest stays readable."""
        count = 0
        for _ in range(_READS):
            try:
                self._sock.recv(_DATAGRAM)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise IOFailure("nftables' notices can't be read", str(error)) from error
            count += 1
        return count
