"""``make demo``: two nodes, a router, three pods; what it prints says who reaches whom, over which path, and why.

Everything shown is read back from the real thing: addresses from ADD's result, paths from ICMP, routes from the
router's BIRD. It fails, with exit code 1, when a ping is lost or the router hasn't learned a node's prefixes.

If the process dies on any line: ``flockctl lab down demo``; the next run does so by itself.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from flock.errors import FlockError
from flock.model.family import FAMILIES, Address, Family
from flock.testing.wait import WaitTimeout
from flock_lab.cni import Pod
from flock_lab.host import Host
from flock_lab.lab import Lab
from flock_lab.node import Node
from flock_lab.plan import ROUTER_ASN, WORLD
from flock_lab.shim import shim_path
from flock_lab.trace import ping, trace

NAME = "demo"
LIMIT = 85
NAMESPACE = "shop"
IP_ALGO = {"ip-algo": "namespace,pod,image"}
IMAGE = "registry.example/shop@sha256:" + "c0ffee00" * 8
PINGS = 5

PICTURE = """\
                 router, AS {asn}
              {world}
              /                             \\
   node-1, AS 64513                   node-2, AS 64514
   {cidr1:<34} {cidr2}
   pods web-1 and api                 pod web-2
"""


class DemoFailed(Exception):
    """Something that the demo shows isn't so."""


def main(name: str = NAME) -> int:
    """Run the demo, in a lab of that name; 0 when everything that it says is true."""
    signal.signal(signal.SIGALRM, _time_is_over)
    signal.signal(signal.SIGTERM, _asked_to_end)
    keep = os.environ.get("KEEP", "") not in ("", "0")
    try:
        return _run(name, keep)
    except (DemoFailed, FlockError, WaitTimeout) as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; the lab is down", file=sys.stderr)
        return 130


def _run(name: str, keep: bool) -> int:
    if os.geteuid() != 0:
        raise DemoFailed("it needs root: it makes namespaces, mounts and links")
    if shim_path() is None:
        raise DemoFailed("the shim isn't built: make shim")
    if Lab.down(name):
        print("(took down what an earlier run had left)")
    begun = time.monotonic()
    lab = Lab.up(name, nodes=2, stay=keep)
    stays = False
    try:
        signal.alarm(LIMIT)
        _show(lab, begun)
        stays = keep
    except BaseException:
        _show_logs(lab)
        raise
    finally:
        signal.alarm(0)
        if stays:
            lab.leave()
        else:
            lab.close()
    _say_how_to_look(name, keep)
    return 0


def _show(lab: Lab, begun: float) -> None:
    first, second = (node.summaries_text() for node in lab.nodes)
    print(PICTURE.format(asn=ROUTER_ASN, cidr1=first, cidr2=second,
                         world="the world is " + " and ".join(map(str, WORLD.values()))))
    lab.start()
    print(f"Up {time.monotonic() - begun:.1f} s after the start: an agent and a BIRD on each node, BGP with the router."
          "\n\nThree pods, by the shim as a runtime calls it; their addresses are made of namespace, pod and image:\n")
    pods = _make_pods(lab)
    _show_meaning(*pods[0])
    print("\nWho reaches whom, over which path (each hop answered for itself):\n")
    failures = [line for line in _show_paths(lab, pods) if line]
    _show_router(lab)
    if failures:
        raise DemoFailed("; ".join(failures))
    print(f"\nAll pings were answered; {time.monotonic() - begun:.1f} s in all.")


def _make_pods(lab: Lab) -> list[tuple[Node, Pod]]:
    pods = []
    for number, name in ((1, "web-1"), (1, "api"), (2, "web-2")):
        node = lab.node(number)
        begun = time.monotonic()
        pod = node.pod(name, NAMESPACE, annotations=IP_ALGO, image=IMAGE)
        took = (time.monotonic() - begun) * 1000
        addresses = "  ".join(f"{pod.address(family)!s:<39}" for family in FAMILIES)
        print(f"  {name:<6} on {node.name}   {addresses}  ({took:.0f} ms)")
        pods.append((node, pod))
    return pods


def _show_meaning(node: Node, pod: Pod) -> None:
    address = str(pod.address(Family.IPV6))
    print(f"\nWhat an address says (flockctl ip decode {address}):\n")
    for line in node.run(sys.executable, "-m", "flock.cli.main", "ip", "decode", address).stdout.splitlines():
        print(f"  {line}".rstrip())


def _show_paths(lab: Lab, pods: list[tuple[Node, Pod]]) -> Iterator[str | None]:
    names = _names(lab, pods)
    (node, first), (_, neighbour), (_, remote) = pods
    targets: list[tuple[str, dict[Family, Address]]] = [
        (pod.sandbox.name, {family: pod.address(family) for family in FAMILIES}) for pod in (neighbour, remote)]
    for label, addresses in [*targets, ("the world", WORLD)]:
        for family in FAMILIES:
            yield _show_path(node, first, label, addresses[family], names)
    back_node, back = pods[2]
    for family in FAMILIES:
        yield _show_path(back_node, back, neighbour.sandbox.name, neighbour.address(family), names)


def _show_path(node: Node, source: Pod, label: str, target: Address, names: dict[Address, str]) -> str | None:
    """Print one line; what is wrong with it, if anything is."""
    hops = trace(node, target, source.netns)
    way = " → ".join(names.get(hop, str(hop)) if hop else "?" for hop in hops)
    result = ping(node, target, source.netns, PINGS)
    took = f"{result.milliseconds:.2f} ms" if result.milliseconds is not None else "no answer"
    title = f"{source.sandbox.name} to {label}, IPv{target.version}:"
    print(f"  {title:<26} {source.sandbox.name} → {way:<36} {result.received} of {result.sent} answered, {took}")
    if result.lost or not result.sent:
        return f"{source.name} to {target}: {result.lost} of {result.sent} lost"
    return None if hops[-1] == target and None not in hops else f"{source.name} to {target}: a hop kept silent ({way})"


def _show_router(lab: Lab) -> None:
    print("\nWhat the router has learned by BGP (birdc show route):\n")
    for table in ("master6", "master4"):
        for line in lab.router.birdc("show", "route", "table", table, "where", "source = RTS_BGP").splitlines():
            if not line.startswith(("BIRD", "Table")):
                print(f"  {line}")


def _names(lab: Lab, pods: list[tuple[Node, Pod]]) -> dict[Address, str]:
    """Whose an address is, as the paths are told."""
    names: dict[Address, str] = dict.fromkeys(WORLD.values(), "router")
    for node in lab.nodes:
        for link in node.plan.links.values():
            names |= {link.node: node.name, link.router: "router"}
    names |= {pod.address(family): pod.sandbox.name for _, pod in pods for family in FAMILIES}
    return names


def _say_how_to_look(name: str, keep: bool) -> None:
    flockctl = Path(sys.executable).with_name("flockctl")
    if flockctl.is_relative_to(Path.cwd()):
        flockctl = flockctl.relative_to(Path.cwd())
    if not keep:
        print("The lab is down again, and nothing is left. To stay and look around: make demo KEEP=1")
        return
    print("\nThe lab stays. To look around:")
    for what, command in (
        ("a shell on a node", "node-1"),
        ("what the agent says", f"node-1 {flockctl} status"),
        ("the pods of this node", f"node-1 {flockctl} pods"),
        ("what BIRD announces", "node-1 ip -6 route show proto 71"),
        ("its sessions", "node-1 birdc -s /run/flock/bird.ctl show protocols"),
        ("a pod's own view", f"--pod {NAMESPACE}-web-1 node-1 ip address"),
        ("the router's table", "router birdc -s /run/router.ctl show route"),
    ):
        print(f"  # {what}\n  {flockctl} lab exec --lab {name} {command}")
    print(f"To take it down:\n  {flockctl} lab down {name}")


def _show_logs(lab: Lab) -> None:
    logs: list[tuple[Host, str]] = [(lab.router, "bird")]
    logs += [(node, log) for node in lab.nodes for log in ("agent", "bird")]
    for host, log in logs:
        if tail := host.tail(log):
            print(f"\n--- the end of {log} on {host.name}\n{tail}", file=sys.stderr)


def _time_is_over(_number: int, _frame: FrameType | None) -> None:
    raise DemoFailed(f"it wasn't done {LIMIT} s after its start")


def _asked_to_end(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
