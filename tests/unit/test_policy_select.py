"""Which pods share a chain, and what a change costs."""

from flock.api.named_ports import NamedPort
from flock.api.network_policy import NetworkPolicy, PodPeer, PortName, PortRange, Protocol, Rule
from flock.api.selector import Operator, Requirement, Selector
from flock.policy.changes import Change
from flock.policy.explain import Direction
from flock.policy.select import Rulings
from flock.policy.world import Member


def pod(number: int, interface: str = "", ports: tuple[NamedPort, ...] = (), **labels: str) -> Member:
    return Member(namespace="blue", name=f"pod-{number}", labels=labels, addresses=(bytes([10, 0, 0, number]),),
                  ports=ports, interface=interface)


def policy(name: str, *rules: Rule, **labels: str) -> NetworkPolicy:
    selector = Selector(tuple(Requirement(key, Operator.IN, frozenset([value])) for key, value in labels.items()))
    return NetworkPolicy(namespace="blue", name=name, selector=selector, ingress=rules)


def entered(change: Change, interface: str) -> tuple[str | None, str | None]:
    return change.entries[Direction.INGRESS][interface]


def test_pods_with_the_same_policies_share_a_chain() -> None:
    rulings = Rulings()
    rulings.put_policy(policy("p"))
    for number in (1, 2):
        rulings.put_member(pod(number, f"flk{number}"))
    change = rulings.drain()
    assert len(change.chains) == 1
    assert entered(change, "flk1") == entered(change, "flk2") == (None, change.chains[0].name)
    assert change.entries[Direction.EGRESS]["flk1"] == (None, "")


def test_a_pod_of_another_node_is_elements_alone() -> None:
    rulings = Rulings()
    rulings.put_policy(policy("p", Rule((PodPeer(Selector()),))))
    rulings.put_member(pod(1, "flk1"))
    first = rulings.drain()
    rulings.put_member(pod(2))
    change = rulings.drain()
    assert (change.chains, change.sets, change.gone_chains, change.gone_sets) == ((), (), frozenset(), frozenset())
    assert [one.added for one in change.elements.values()] == [frozenset([b"\n\0\0\2"])]
    assert first.sets == tuple(change.elements)


def test_pods_with_other_ports_of_the_same_name_have_other_chains() -> None:
    rulings = Rulings()
    rulings.put_policy(policy("p", Rule(None, (PortName(Protocol.TCP, "web"),))))
    for number, port in ((1, 80), (2, 8080), (3, 80)):
        rulings.put_member(pod(number, f"flk{number}", (NamedPort("web", port, "TCP"), NamedPort("x", number, "TCP"))))
    change = rulings.drain()
    assert entered(change, "flk1") == entered(change, "flk3") != entered(change, "flk2")


def test_the_last_pod_takes_its_chain_and_sets_along() -> None:
    rulings = Rulings()
    rulings.put_policy(policy("p", Rule((PodPeer(Selector()),))))
    rulings.put_member(pod(1, "flk1"))
    first = rulings.drain()
    rulings.remove_member(pod(1, "flk1").id)
    change = rulings.drain()
    assert entered(change, "flk1") == (first.chains[0].name, None)
    assert change.gone_chains == {first.chains[0].name}
    assert len(change.gone_sets) == 2
    assert change.sources_removed == first.sources_added
    assert rulings.drain() == Change(entries={Direction.INGRESS: {}, Direction.EGRESS: {}})


def test_a_policy_that_says_the_same_in_other_words_changes_nothing() -> None:
    rulings = Rulings()
    port = PortRange(Protocol.TCP, 80, 80)
    rulings.put_policy(policy("p", Rule(None, (port,))))
    rulings.put_member(pod(1, "flk1"))
    rulings.drain()
    rulings.put_policy(policy("p", Rule(None, (port, port)), Rule(None, (port,))))
    change = rulings.drain()
    assert change.chains == ()
    assert change.entries[Direction.INGRESS] == {}


def test_a_policy_of_another_namespace_looks_at_no_pod() -> None:
    rulings = Rulings()
    rulings.put_member(pod(1, "flk1"))
    rulings.drain()
    rulings.put_policy(NetworkPolicy(namespace="green", name="p", ingress=()))
    assert rulings.drain().entries == {Direction.INGRESS: {}, Direction.EGRESS: {}}


def test_labels_decide_and_a_policy_that_is_gone_opens() -> None:
    rulings = Rulings()
    rulings.put_policy(policy("p", app="db"))
    rulings.put_member(pod(1, "flk1", app="web"))
    assert entered(rulings.drain(), "flk1") == (None, "")
    rulings.put_member(pod(1, "flk1", app="db"))
    closed = entered(rulings.drain(), "flk1")[1]
    assert closed
    rulings.remove_policy(("blue", "p"))
    assert entered(rulings.drain(), "flk1") == (closed, "")
