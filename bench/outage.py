"""The agent is killed and started again while a pod and the world beyond the node ping each other, at 1 kHz.

Four flows, both ways and both families. The world is a namespace at the end of the node's uplink.
"""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_interface

import msgspec

from bench.pause import pause
from bench.report import Figure
from bench.sides import Flock, Slot
from flock_lab.bare import BareNode, BarePod

KILLS = 5
PACKETS = 8000
WORLD = ("2001:db8:101::1", "198.51.100.1")
_NODE_ENDS = ("2001:db8:101::2/64", "198.51.100.2/24")
_PODS = ("2001:db8:0:1::/64", "10.64.0.0/16")
_SUMMARY = re.compile(rb"(\d+) packets transmitted, (\d+) received")


class _Ip(msgspec.Struct):
    address: str


class _Result(msgspec.Struct):
    ips: list[_Ip]


def outage_figure(ours: Flock, slot: Slot) -> Figure:
    """Packets lost in all four flows."""
    with _world(ours.node) as world:
        result = msgspec.json.decode(ours.driver.one(ours.call("ADD", slot)).stdout, type=_Result)
        pod = [str(ip_interface(ip.address).ip) for ip in result.ips]
        pings = [_ping(ours.node, slot.pod, address) for address in WORLD]
        pings += [_ping(ours.node, world, address) for address in pod]
        _kill_often(ours, slot)
        lost = sum(_lost(ping) for ping in pings)
        ours.driver.one(ours.call("DEL", slot))
    return Figure(name=f"packets lost of {PACKETS * len(pings)}, agent killed {KILLS} times", group="routing",
                  ours=lost, unit="packets", bar=0)


def _kill_often(ours: Flock, slot: Slot) -> None:
    for _ in range(KILLS):
        pause(PACKETS / 2000 / (KILLS + 1))
        ours.kill()
        ours.start()
        ours.await_serving(slot)


@contextmanager
def _world(node: BareNode) -> Iterator[BarePod]:
    world = BarePod.make()
    try:
        node.run("ip", "link", "add", "world", "type", "veth", "peer", "name", "node", "netns", world.netns)
        node.run("ip", "link", "set", "world", "up")
        inside = ["nsenter", f"--net={world.netns}", "--"]
        for name in ("lo", "node"):
            node.run(*inside, "ip", "link", "set", name, "up")
        for end, outer, pods in zip(_NODE_ENDS, WORLD, _PODS, strict=True):
            nodad = ["nodad"] if ":" in end else []
            node.run("ip", "address", "add", end, "dev", "world", *nodad)
            node.run(*inside, "ip", "address", "add", f"{outer}/{end.split('/')[1]}", "dev", "node", *nodad)
            node.run(*inside, "ip", "route", "add", pods, "via", end.split("/")[0])
        yield world
        node.run("ip", "link", "del", "world")
    finally:
        world.close()


def _ping(node: BareNode, source: BarePod, address: str) -> "subprocess.Popen[bytes]":
    ping = ["ping", "-q", "-i", "0.001", "-c", str(PACKETS), "-W", "1", address]
    return node.start(["nsenter", f"--net={source.netns}", "--", *ping], stdout=subprocess.PIPE)


def _lost(ping: "subprocess.Popen[bytes]") -> int:
    output, _ = ping.communicate(timeout=PACKETS / 1000 + 60)
    found = _SUMMARY.search(output)
    if found is None:
        raise RuntimeError(f"ping says nothing of packets: {output.decode(errors='replace')[:300]}")
    return int(found[1]) - int(found[2])
