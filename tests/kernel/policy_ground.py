"""A node with three wired pods, a network behind it, and packets of every kind between them, for tests of policy.

Every packet either reaches its target or is counted by a rule that drops it, so nothing here waits for what won't come.
"""

import contextlib
import re
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address

import msgspec
from tests.kernel.ground import FACTS, attachment, bare_node, plan, wire
from tests.unit.policy_worlds import OUTSIDE, PORTS, addresses_of

from flock.api.network_policy import Protocol
from flock.policy.explain import Packet
from flock.policy.world import Member
from flock.testing.wait import wait_until
from flock_lab.netns import Netns

SERVED = (*PORTS, 82, 65535)
WIRED = (0, 2, 4)
ELSEWHERE = (1, 3, 5)
_NODE = {4: "203.0.113.1", 16: "2001:db8:aaaa::1"}
_BEYOND = {4: "203.0.113.2", 16: "2001:db8:aaaa::2"}
_DROPPED = re.compile(r"counter packets (\d+) bytes \d+ drop")
_ECHO = {4: (socket.IPPROTO_ICMP, 8, 0), 16: (socket.IPPROTO_ICMPV6, 128, 129)}
_V6_HEADER = 0


class PolicyGround:
    """``interfaces`` are the host ends of the wired pods, by their number in a world."""

    def __init__(self, node: Netns, pods: Mapping[int, Netns], beyond: Netns, interfaces: Mapping[int, str]) -> None:
        self.node = node
        self.beyond = beyond
        self.interfaces = interfaces
        self._hosts = {address: pods[number] for number in WIRED for address in addresses_of(number)}
        self._hosts |= {address: beyond for number in ELSEWHERE for address in addresses_of(number)}
        self._hosts |= dict.fromkeys(OUTSIDE, beyond)
        self._servers = {id(netns): _Servers(netns) for netns in (*pods.values(), beyond)}

    def close(self) -> None:
        for servers in self._servers.values():
            servers.close()

    def placed(self, member: Member) -> Member:
        """A member of a world with the interface that it has here."""
        number = member.addresses[0][-1] - 1
        return msgspec.structs.replace(member, interface=self.interfaces.get(number, ""))

    def dropped(self) -> int:
        """How many packets the rules of inet flock have dropped."""
        listed = self.node.command("nft", "list", "table", "inet", "flock").stdout
        return sum(map(int, _DROPPED.findall(listed)))

    def arriving(self, packets: Sequence[Packet], expected: Sequence[bool]) -> list[bool]:
        """Send all packets; which arrived. ``expected`` is what is waited for, no more."""
        before = self.dropped()
        flights = [_Flight(self._hosts[packet.source], packet, number) for number, packet in enumerate(packets)]
        try:
            def all_told() -> bool:
                arrived = self._arrived(flights)
                missing = [one for one, wanted in zip(arrived, expected, strict=True) if wanted and not one]
                return not missing and self.dropped() - before + sum(arrived) >= len(flights)
            with contextlib.suppress(TimeoutError):
                wait_until(all_told, 3.0, "the packets")
            return self._arrived(flights)
        finally:
            for flight in flights:
                flight.close()

    def _arrived(self, flights: "Sequence[_Flight]") -> list[bool]:
        for servers in self._servers.values():
            servers.look()
        heard = {number for servers in self._servers.values() for number in servers.heard}
        return [flight.number in heard or flight.was_answered() for flight in flights]


class _Servers:
    """Listens on every port of a namespace, both families."""

    def __init__(self, netns: Netns) -> None:
        self.heard: set[int] = set()
        self._udp: list[socket.socket] = []
        self._all: list[socket.socket] = []
        netns.run(self._open)

    def _open(self) -> None:
        for port in SERVED:
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                sock = socket.socket(socket.AF_INET6, kind)
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(("::", port))
                sock.setblocking(False)
                self._all.append(sock)
                if kind == socket.SOCK_DGRAM:
                    self._udp.append(sock)
                else:
                    sock.listen(128)

    def look(self) -> None:
        for sock in self._udp:
            with contextlib.suppress(BlockingIOError):
                while True:
                    self.heard.add(struct.unpack("!Q", sock.recv(64))[0])

    def close(self) -> None:
        for sock in self._all:
            sock.close()


class _Flight:
    """One packet under way, and what would answer it."""

    _serial = 0

    def __init__(self, host: Netns, packet: Packet, number: int) -> None:
        _Flight._serial += 1
        self.number = _Flight._serial
        self._packet = packet
        self._answered = False
        self._sock = host.run(self._send)

    def _send(self) -> socket.socket:
        packet = self._packet
        family = socket.AF_INET if len(packet.source) == 4 else socket.AF_INET6
        source, target = (str(ip_address(one)) for one in (packet.source, packet.target))
        if packet.port is None:
            protocol, kind, _ = _ECHO[len(packet.source)]
            sock = socket.socket(family, socket.SOCK_RAW, protocol)
            sock.bind((source, 0))
            sock.setblocking(False)
            sock.sendto(_echo(kind, self.number & 0xFFFF), (target, 0))
            return sock
        udp = packet.protocol == Protocol.UDP.value
        sock = socket.socket(family, socket.SOCK_DGRAM if udp else socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.bind((source, 0))
        if udp:
            sock.sendto(struct.pack("!Q", self.number), (target, packet.port))
        else:
            sock.connect_ex((target, packet.port))
        return sock

    def was_answered(self) -> bool:
        """Whether a connection stands, or an echo came back."""
        self._answered = self._answered or self._look()
        return self._answered

    def _look(self) -> bool:
        if self._packet.port is None:
            return self._echoed()
        if self._packet.protocol == Protocol.TCP.value:
            with contextlib.suppress(OSError):
                self._sock.getpeername()
                return True
        return False

    def _echoed(self) -> bool:
        offset = 20 if len(self._packet.source) == 4 else _V6_HEADER
        with contextlib.suppress(BlockingIOError):
            while True:
                data = self._sock.recv(256)
                reply = _ECHO[len(self._packet.source)][2]
                if data[offset] == reply and data[offset + 4 : offset + 6] == struct.pack("!H", self.number & 0xFFFF):
                    return True
        return False

    def close(self) -> None:
        self._sock.close()


def _echo(kind: int, ident: int) -> bytes:
    head = struct.pack("!BBHHH", kind, 0, 0, ident, 1)
    if kind != 8:
        return head  # The kernel sums ICMPv6.
    total = sum(struct.unpack("!4H", head))
    total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!BBHHH", kind, 0, ~total & 0xFFFF, ident, 1)


@contextlib.contextmanager
def policy_ground() -> Iterator[PolicyGround]:
    """The node, its pods, and one namespace that has every other address."""
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(bare_node())
        beyond = stack.enter_context(Netns.create())
        _join(node, beyond)
        pods, interfaces = {}, {}
        for number in WIRED:
            pods[number] = stack.enter_context(Netns.create())
            v4, v6 = (str(ip_address(one)) for one in addresses_of(number))
            entry = msgspec.structs.replace(attachment(number + 1), ip4=v4, ip6=v6)
            wire(node, pods[number], plan(entry, FACTS))
            interfaces[number] = entry.host_ifname
        ground = PolicyGround(node, pods, beyond, interfaces)
        stack.callback(ground.close)
        yield ground


def _join(node: Netns, beyond: Netns) -> None:
    """A link; everything that isn't on the node is at its other end."""
    node.command("ip", "link", "add", "up0", "type", "veth", "peer", "name", "up0", "netns", beyond.name)
    for netns, own in ((node, _NODE), (beyond, _BEYOND)):
        netns.command("ip", "link", "set", "up0", "up")
        netns.command("ip", "address", "add", f"{own[4]}/24", "dev", "up0")
        netns.command("ip", "address", "add", f"{own[16]}/64", "dev", "up0", "nodad")
    others = [*OUTSIDE, *(address for number in ELSEWHERE for address in addresses_of(number))]
    for address in others:
        text = f"{ip_address(address)}/{8 * len(address)}"
        beyond.command("ip", "address", "add", text, "dev", "lo")
        node.command("ip", "route", "add", text, "via", _BEYOND[len(address)])
    for length in (4, 16):
        family = "-4" if length == 4 else "-6"
        beyond.command("ip", family, "route", "add", "default", "via", _NODE[length])
        node.command("ping", "-n", "-c1", "-W5", _BEYOND[length])

