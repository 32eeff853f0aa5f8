"""What a pod that joins or leaves costs the agent in policy, in this process: decided and packed, not yet written.

Ten thousand pods and a thousand policies, beside the same policies with a thousand pods. The first joining pod is of
another node, the second of this one.
"""

import random
import time

from bench.report import Figure, median
from flock.api.named_ports import NamedPort
from flock.api.network_policy import IPBlock, NetworkPolicy, PodPeer, PortName, PortRange, Protocol, Rule
from flock.api.selector import Operator, Requirement, Selector
from flock.model.family import parse_network
from flock.netlink.nftables import transaction
from flock.policy.plan import plan_change
from flock.policy.select import Rulings
from flock.policy.world import Member

MANY, FEW = 10_000, 1000
POLICIES = 1000
NAMESPACES = 50
APPS = 20
LOCAL = 250
SAMPLES = 200


def policy_figures() -> list[Figure]:
    """Milliseconds of a join and a leave together."""
    worlds = {count: _world(count) for count in (MANY, FEW)}
    samples: dict[tuple[int, bool], list[float]] = {}
    for number in range(SAMPLES):
        for count in random.sample(sorted(worlds), len(worlds)):
            for local in (False, True):
                samples.setdefault((count, local), []).append(_sample(worlds[count], MANY + number, local=local))
    figures = []
    for local in (False, True):
        whose = "of this node" if local else "of another node"
        many, few = (median(samples[count, local]) * 1000 for count in (MANY, FEW))
        what = f"a pod {whose} joins and leaves, {MANY:,} pods, {POLICIES:,} policies"
        figures += [
            Figure(name=what, group="policy", ours=many, unit="ms", bar=10.0),
            Figure(name=f"{what} / {FEW:,} pods", group="policy", ours=many, theirs=few, unit="ms", bar=1.5),
        ]
    return figures


def _world(pods: int) -> Rulings:
    rulings = Rulings()
    for number in range(NAMESPACES):
        rulings.put_namespace(f"ns-{number}", {"kubernetes.io/metadata.name": f"ns-{number}", "team": f"t{number % 7}"})
    for number in range(pods):
        rulings.put_member(_pod(number, local=number < LOCAL))
    for number in range(POLICIES):
        rulings.put_policy(_policy(number))
    plan_change(rulings.drain())
    return rulings


def _pod(number: int, *, local: bool) -> Member:
    return Member(
        namespace=f"ns-{number % NAMESPACES}", name=f"pod-{number}", interface=f"flk{number}" if local else "",
        labels={"app": f"app-{number // NAMESPACES % APPS}", "hash": f"h-{number % 200}"},
        addresses=(number.to_bytes(4, "big"), b"\x20\x01\x0d\xb8" + number.to_bytes(12, "big")),
        ports=(NamedPort("web", 8080, "TCP"),))


def _policy(number: int) -> NetworkPolicy:
    """Peers of its namespace and of others, CIDRs, ports by number and by name."""
    rules = tuple(
        Rule((PodPeer(_app(number + each)), PodPeer(_app(number + each), _team(each)),
              IPBlock(parse_network(f"10.{number % 250}.{each}.0/24"))),
             (PortRange(Protocol.TCP, 80 + each, 80 + each), PortName(Protocol.TCP, "web")))
        for each in range(3))
    return NetworkPolicy(namespace=f"ns-{number % NAMESPACES}", name=f"policy-{number}", selector=_app(number),
                         ingress=rules, egress=rules if number % 2 else None)


def _app(number: int) -> Selector:
    return Selector((Requirement("app", Operator.IN, frozenset([f"app-{number % APPS}"])),))


def _team(number: int) -> Selector:
    return Selector((Requirement("team", Operator.IN, frozenset([f"t{number % 7}"])),))


def _sample(rulings: Rulings, number: int, *, local: bool) -> float:
    pod = _pod(number, local=local)
    start = time.perf_counter()
    rulings.put_member(pod)
    transaction(plan_change(rulings.drain()).after)
    rulings.remove_member(pod.id)
    transaction(plan_change(rulings.drain()).after)
    return time.perf_counter() - start
