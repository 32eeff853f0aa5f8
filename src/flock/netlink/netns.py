"""Network namespaces by descriptor: is it one, and a netlink socket or a piece of work inside it.

Invariant: a thread that goes into another namespace comes home before anything else happens on it. If it can't come
home the process ends there: it would go on to wire pods into a stranger's namespace.

If the process dies on any line: namespaces belong to threads, so nothing is left.

Sources: setns(2), ioctl_nsfs(2). Python has os.setns from 3.12 on; ctypes serves all versions and is as fast.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
from collections.abc import Iterator

from flock.errors import InvalidNetns
from flock.netlink import constants as nl
from flock.netlink.socket import NetlinkSocket

# PyDLL keeps the interpreter's lock: handing it over costs more than the 2 µs of a setns.
_libc = ctypes.PyDLL(None, use_errno=True)
_setns = _libc.setns
_EXIT_LOST = 70


class HomeNetns:
    """The namespace that a thread lives in; made on that thread, while it is at home."""

    __slots__ = ("fd", "inode")

    def __init__(self) -> None:
        self.fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.inode = os.fstat(self.fd).st_ino

    def close(self) -> None:
        os.close(self.fd)

    def check(self, netns_fd: int) -> int:
        """The inode of a pod's namespace; InvalidNetns for what is no network namespace, and for the node's own."""
        try:
            kind = fcntl.ioctl(netns_fd, nl.NS_GET_NSTYPE)
            inode = os.fstat(netns_fd).st_ino
        except OSError as error:
            if error.errno not in (errno.ENOTTY, errno.EBADF, errno.EINVAL):
                raise InvalidNetns("CNI_NETNS can't be read", str(error)) from error
            raise InvalidNetns("CNI_NETNS is not a network namespace") from error
        if kind != nl.CLONE_NEWNET:
            raise InvalidNetns("CNI_NETNS is a namespace of another kind, not a network namespace")
        if inode == self.inode:
            raise InvalidNetns("CNI_NETNS is the node's own network namespace")
        return inode

    @contextlib.contextmanager
    def inside(self, netns_fd: int) -> Iterator[None]:
        """Be in another namespace for the length of a block; /proc/sys/net follows."""
        if _setns(netns_fd, nl.CLONE_NEWNET) != 0:
            raise InvalidNetns("the network namespace can't be entered", os.strerror(ctypes.get_errno()))
        try:
            yield
        finally:
            if _setns(self.fd, nl.CLONE_NEWNET) != 0:
                os._exit(_EXIT_LOST)

    def socket_in(self, netns_fd: int) -> NetlinkSocket:
        """A netlink socket that speaks to another namespace; the caller closes it."""
        with self.inside(netns_fd):
            return NetlinkSocket()
