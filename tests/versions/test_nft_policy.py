"""The table of policy, written and read by every version of nft that is supported, side by side on one node.

An nft 1.0.6 dies of sets with one field that nft 1.1.2 and later write, whoever's table they are in.
"""

import re
from collections.abc import Iterator
from ipaddress import ip_address

import msgspec
import pytest
from tests.kernel.policed import Enforced
from tests.versions.test_nft_versions import VERSIONS, Nft, programs

from flock.api.named_ports import NamedPort
from flock.api.network_policy import IPBlock, NetworkPolicy, PodPeer, PortName, PortRange, Protocol, Rule
from flock.api.selector import Operator, Requirement, Selector
from flock.model.family import parse_network
from flock.policy.world import Member, World
from flock_lab.netns import Netns

__all__ = ["programs"]

pytestmark = pytest.mark.versions

_MARK = re.compile(r"ct mark [^c]+")
"""The versions spell a test of one bit differently."""


def app(*values: str) -> Selector:
    return Selector((Requirement("app", Operator.IN, frozenset(values)),))


def pod(number: int, namespace: str = "blue", interface: str = "") -> Member:
    return Member(namespace=namespace, name=f"pod-{number}", labels={"app": f"app-{number % 7}"}, interface=interface,
                  addresses=(ip_address(f"10.0.0.{number}").packed, ip_address(f"2001:db8::{number}").packed),
                  ports=(NamedPort("web", 8000 + number, "TCP"),))


def everything() -> World:
    """Peers in line and in unions, ports in line and in maps, single and in ranges, few CIDRs and many, named ports."""
    many = tuple(IPBlock(parse_network(f"10.{number}.0.0/16"), (parse_network(f"10.{number}.1.0/24"),))
                 for number in range(1, 9))
    peers = tuple(PodPeer(app(f"app-{number}")) for number in range(6))
    few = (IPBlock(parse_network("2001:db8:1::/48")), IPBlock(parse_network("192.0.2.0/24")))
    rules = (
        Rule(few), Rule(peers, (PortRange(Protocol.TCP, 80, 80),)), Rule(many, (PortRange(Protocol.TCP, 443, 443),)),
        Rule(peers[:1], (PortRange(Protocol.UDP, 53, 60),)), Rule(None, (PortName(Protocol.TCP, "web"),)),
        Rule((PodPeer(None, Selector()),), (PortRange(Protocol.SCTP),)),
    )
    policies = (
        NetworkPolicy(namespace="blue", name="all", ingress=rules, egress=rules),
        NetworkPolicy(namespace="blue", name="one", selector=app("app-1"), ingress=rules[1:2]),
        NetworkPolicy(namespace="blue", name="none", selector=app("app-2"), egress=()),
    )
    members = [pod(number, interface=f"flk{number}" if number < 4 else "") for number in range(1, 12)]
    return World(policies={(one.namespace, one.name): one for one in policies}, namespaces={"blue": {}},
                 members={one.id: one for one in members})


@pytest.fixture
def node() -> Iterator[Netns]:
    with Netns.create() as netns:
        yield netns


@pytest.mark.parametrize("second", VERSIONS)
@pytest.mark.parametrize("first", VERSIONS)
def test_each_writes_and_reads_what_the_other_wrote(
        node: Netns, programs: dict[str, Nft], first: str, second: str) -> None:
    table = Enforced(node, lambda member: member, programs[first])
    world = everything()
    table.follow(world)
    listings = {_MARK.sub("", node.command(*nft, "list", "ruleset").stdout) for nft in programs.values()}
    assert len(listings) == 1
    table.use(programs[second])
    less = msgspec.structs.replace(world, policies=dict(list(world.policies.items())[1:]))
    for again in (less, world):
        table.follow(again)
        table.must_be_as_wanted()
        table.write_anew()
        table.must_be_as_wanted()
    for nft in programs.values():
        assert node.command(*nft, "list", "ruleset").returncode == 0
        node.command(*nft, "add table ip other; add set ip other s { type ipv4_addr . inet_service; }; "
                           "add element ip other s { 192.0.2.1 . 80 }; delete table ip other")
    table.close()
