"""What pyroute2 says of a namespace: the independent reader that flock's own packing is judged by."""

from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network
from typing import NamedTuple, TypeVar

from pyroute2 import IPRoute
from pyroute2.netlink import nlmsg

from flock_lab.netns import Netns

_T = TypeVar("_T")

Prefix = IPv4Network | IPv6Network


class SeenAddress(NamedTuple):
    address: str
    length: int
    flags: int
    scope: int


class SeenNeighbour(NamedTuple):
    address: str
    mac: str
    state: int


class SeenRoute(NamedTuple):
    dst: str
    kind: int
    proto: int
    scope: int
    metric: int | None
    gateway: str | None
    prefsrc: str | None
    ifindex: int | None
    flags: int


MAIN = 254


def ask(netns: Netns, question: Callable[[IPRoute], _T]) -> _T:
    """Put a question to pyroute2 inside a namespace."""

    def inside() -> _T:
        with IPRoute() as ipr:
            return question(ipr)

    return netns.run(inside)


def link(netns: Netns, name: str) -> nlmsg | None:
    """The link with a name, as pyroute2's message."""

    def question(ipr: IPRoute) -> nlmsg | None:
        return next((found for found in ipr.get_links() if found.get_attr("IFLA_IFNAME") == name), None)

    return ask(netns, question)


def link_names(netns: Netns) -> set[str]:
    return ask(netns, lambda ipr: {found.get_attr("IFLA_IFNAME") for found in ipr.get_links()})


def addresses(netns: Netns, index: int) -> set[SeenAddress]:
    def question(ipr: IPRoute) -> set[SeenAddress]:
        return {
            SeenAddress(
                found.get_attr("IFA_LOCAL") or found.get_attr("IFA_ADDRESS"),
                found["prefixlen"],
                found.get_attr("IFA_FLAGS"),
                found["scope"],
            )
            for found in ipr.get_addr()
            if found["index"] == index
        }

    return ask(netns, question)


def neighbours(netns: Netns, index: int) -> set[SeenNeighbour]:
    """Without the multicast entries, which the kernel makes by itself (NUD_NOARP)."""

    def question(ipr: IPRoute) -> set[SeenNeighbour]:
        return {
            SeenNeighbour(found.get_attr("NDA_DST"), found.get_attr("NDA_LLADDR"), found["state"])
            for found in ipr.get_neighbours()
            if found["ifindex"] == index and found["state"] != 0x40
        }

    return ask(netns, question)


def routes(netns: Netns, protos: tuple[int, ...] = (70, 71)) -> set[SeenRoute]:
    """The routes of flock's protocols in the main table, of both families."""

    def question(ipr: IPRoute) -> set[SeenRoute]:
        found = [*ipr.get_routes(family=10, table=MAIN), *ipr.get_routes(family=2, table=MAIN)]
        return {_route(each) for each in found if each["proto"] in protos}

    return ask(netns, question)


def _route(found: nlmsg) -> SeenRoute:
    nowhere = "::" if found["family"] == 10 else "0.0.0.0"
    return SeenRoute(
        dst=f"{found.get_attr('RTA_DST') or nowhere}/{found['dst_len']}",
        kind=found["type"],
        proto=found["proto"],
        scope=found["scope"],
        metric=found.get_attr("RTA_PRIORITY"),
        gateway=found.get_attr("RTA_GATEWAY"),
        prefsrc=found.get_attr("RTA_PREFSRC"),
        ifindex=found.get_attr("RTA_OIF"),
        flags=found["flags"],
    )
