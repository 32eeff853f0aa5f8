"""Looks at a node from outside, by the kernel's and the disk's own word: does a pod work, is anything left?"""

import contextlib
import json
import os
import select
import socket
import struct
import time
from collections.abc import Iterable
from ipaddress import IPv4Address, ip_address
from pathlib import Path

from flock.model.family import FAMILIES, Family
from flock_lab.bare import BareNode, BarePod
from flock_lab.netns import run_in

ANSWER_DEADLINE = 3.0
_ECHO = struct.Struct("!BBHHH")
_REQUEST = {Family.IPV6: 128, Family.IPV4: 8}
_REPLY = {Family.IPV6: 129, Family.IPV4: 0}
_PROTOCOL = {Family.IPV6: socket.IPPROTO_ICMPV6, Family.IPV4: socket.IPPROTO_ICMP}


class Pinger:
    """Echo requests from the node, one to each address and never a second: the first packet must pass."""

    def __init__(self, node: BareNode) -> None:
        self._sockets = run_in(node.netns, lambda: {family: _raw(family) for family in FAMILIES})
        self._identifier = os.getpid() & 0xFFFF
        self._sequence = 0

    def silent(self, addresses: Iterable[str]) -> set[str]:
        """Those that don't answer."""
        self._sequence = (self._sequence + 1) & 0xFFFF
        waiting = set(addresses)
        unsent: set[str] = set()
        for address in waiting:
            family = Family.IPV4 if isinstance(ip_address(address), IPv4Address) else Family.IPV6
            try:
                self._sockets[family].sendto(self._echo(family), (address, 0))
            except OSError:
                unsent.add(address)
        end = time.monotonic() + ANSWER_DEADLINE
        while waiting - unsent and (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select(list(self._sockets.values()), [], [], left)
            for connection in ready:
                waiting.discard(self._answer(connection))
        return waiting

    def close(self) -> None:
        for connection in self._sockets.values():
            connection.close()

    def _echo(self, family: Family) -> bytes:
        head = _ECHO.pack(_REQUEST[family], 0, 0, self._identifier, self._sequence)
        # The kernel computes ICMPv6's checksum for a raw socket (RFC 3542, 3.1), not ICMP's.
        return head if family is Family.IPV6 else _ECHO.pack(8, 0, _checksum(head), self._identifier, self._sequence)

    def _answer(self, connection: socket.socket) -> str:
        data, source = connection.recvfrom(2048)
        family = Family(connection.family)
        if family is Family.IPV4:
            data = data[(data[0] & 15) * 4:]
        kind, _, _, identifier, sequence = _ECHO.unpack_from(data)
        ours = (kind, identifier, sequence) == (_REPLY[family], self._identifier, self._sequence)
        return str(ip_address(source[0].partition("%")[0])) if ours else ""


def missing_inside(pod: BarePod, addresses: Iterable[str]) -> set[str]:
    """Addresses that the pod's namespace doesn't hold: only a local address can be bound."""
    wanted = list(addresses)

    def body() -> set[str]:
        return {address for address in wanted if not _can_bind(address)}
    return pod.run(body)


def interfaces(pod: BarePod) -> set[str]:
    """The names in a pod's namespace, without lo."""
    return pod.run(lambda: {name for _, name in socket.if_nameindex()}) - {"lo"}


def unreadable(node: BareNode) -> list[str]:
    """Files of the store that aren't whole; a temporary file, which nobody reads, may be anything."""
    bad: list[str] = []
    for folder in ("allocations", "released"):
        for path in _files(node.path(f"/run/flock/{folder}")):
            with contextlib.suppress(FileNotFoundError):
                bad += [] if path.suffix == ".tmp" or _is_object(path) else [f"{folder}/{path.name}"]
    return bad + [f"damaged/{path.name}" for path in _files(node.path("/run/flock/damaged"))]


def left_behind(node: BareNode) -> list[str]:
    """What of flock's attachments is on the node: links, routes but summaries, entries, queued DELs."""
    links = json.loads(node.run("ip", "-j", "link", "show"))
    found = [f"link {link['ifname']}" for link in links if link["ifname"].startswith("flk")]
    for option in ("-6", "-4"):
        for proto in ("70", "71"):
            routes = node.run("ip", option, "route", "show", "table", "all", "proto", proto).splitlines()
            found += [f"route {route.strip()}" for route in routes if not route.startswith("blackhole")]
    for folder in ("allocations", "deletes"):
        found += [f"{folder}/{path.name}" for path in _files(node.path(f"/run/flock/{folder}"))]
    return found


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _is_object(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_bytes()), dict)
    except ValueError:
        return False


def _can_bind(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _raw(family: Family) -> socket.socket:
    connection = socket.socket(family.value, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _PROTOCOL[family])
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    return connection


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return ~((total >> 16) + (total & 0xFFFF)) & 0xFFFF
