"""Removing links in the background: RTM_DELLINK returns after the kernel's grace period, tens of milliseconds late.

Invariant: ``gone`` of each link is called once, at whichever comes first: the kernel's notice, or the call's return.
One link is removed by its index. Several that wait are marked with a group of their own and removed by it, sixteen at
most: the kernel holds RTNL for the whole group, and every ADD would wait for it.

If the process dies on any line: the link stays or is gone; the store's entry is still there, and the DEL comes again.
"""

import errno
import itertools
import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from flock.errors import FlockError, IOFailure
from flock.netlink.messages import delete_group, delete_link, set_link
from flock.netlink.socket import NetlinkError, NetlinkSocket

log = logging.getLogger("flock.pods")

GROUP_LIMIT = 16
THREADS = 4
GROUP_MARK = 0x66600000
"""Groups are numbered from here; nobody else's link may ever be in one."""

Gone = Callable[[FlockError | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    ifindex: int
    name: str


class Reaper:
    """A few threads that remove links; made on a thread that is at home, since theirs is the same namespace."""

    def __init__(self) -> None:
        self._orders: deque[_Order] = deque()
        self._waiting: dict[int, list[Gone]] = {}
        self._wake = threading.Condition()
        self._closing = False
        self._groups = itertools.count(GROUP_MARK + secrets.randbelow(1 << 16))
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._threads = [threading.Thread(target=self._work, name=f"reaper {n}", daemon=True) for n in range(THREADS)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Finish what was given, then end."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        for thread in self._threads:
            thread.join()

    def remove(self, ifindex: int, name: str, gone: Gone) -> None:
        """Have a link removed; a second order for the same link is answered together with the first."""
        with self._wake:
            earlier = self._waiting.get(ifindex)
            if earlier is not None:
                earlier.append(gone)
                return
            self._waiting[ifindex] = [gone]
            self._orders.append(_Order(ifindex=ifindex, name=name))
            self._wake.notify()

    def settle(self, ifindex: int, error: FlockError | None = None) -> None:
        """The link is gone, or can't be removed; of several calls the first counts."""
        with self._wake:
            waiting = self._waiting.pop(ifindex, [])
        for gone in waiting:
            gone(error)

    def _take(self) -> list[_Order]:
        with self._wake:
            while not self._orders and not self._closing:
                self._wake.wait()
            return [self._orders.popleft() for _ in range(min(GROUP_LIMIT, len(self._orders)))]

    def _work(self) -> None:
        with NetlinkSocket() as sock:
            while orders := self._take():
                try:
                    self._reap(sock, orders)
                except Exception:
                    log.exception("a reaper failed")
                    for order in orders:
                        self.settle(order.ifindex, IOFailure(f"interface {order.name} could not be removed"))

    def _reap(self, sock: NetlinkSocket, orders: list[_Order]) -> None:
        if len(orders) == 1:
            self._reap_one(sock, orders[0])
            return
        group = next(self._groups)
        marked = self._mark(sock, orders, group)
        try:
            if marked:
                sock.run([delete_group(group)], "the removal of a group of links")
        except NetlinkError as error:
            if error.errno not in (errno.ENODEV, errno.ENOENT):
                for order in marked:
                    self._reap_one(sock, order)
        for order in orders:
            self.settle(order.ifindex)

    def _mark(self, sock: NetlinkSocket, orders: list[_Order], group: int) -> list[_Order]:
        """Put links into a group; those that the kernel has no more of are left out."""
        try:
            sock.run([set_link(order.ifindex, group=group) for order in orders], "the marking of links for removal")
        except NetlinkError as error:
            refused = {refusal.index for refusal in error.refusals}
            return [order for place, order in enumerate(orders) if place not in refused]
        return orders

    def _reap_one(self, sock: NetlinkSocket, order: _Order) -> None:
        try:
            sock.run([delete_link(order.ifindex)], f"the removal of interface {order.name}")
        except NetlinkError as error:
            if error.errno != errno.ENODEV:
                self.settle(order.ifindex, error)
                return
        self.settle(order.ifindex)
