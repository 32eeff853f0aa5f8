"""The elements of sets, whatever comes and goes in whatever order."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit import policy_worlds as pw

from flock.api.network_policy import PortName
from flock.policy.gather import Difference, Gatherer, Gathering, packed_port
from flock.policy.sources import Scope, Source
from flock.policy.world import Member

scopes = (st.builds(Scope, st.sampled_from(pw.NAMESPACES), st.just(Scope("x").namespaces), pw.selectors)
          | st.builds(Scope, st.none(), pw.selectors, pw.selectors))
plain = st.builds(Source, scopes)
ported = st.builds(Source, st.none() | scopes | pw.block(),
                   st.builds(PortName, pw.protocols, st.sampled_from(pw.NAMES)))
gatherings = st.frozensets(plain, min_size=1, max_size=6) | st.frozensets(ported, min_size=1, max_size=3)


@st.composite
def members(draw: st.DrawFn) -> Member:
    number = draw(st.integers(1, 4))
    shared = draw(st.integers(1, 5))
    return Member(namespace=draw(st.sampled_from(pw.NAMESPACES)), name=f"p{number}", labels=draw(pw.labels),
                  addresses=(bytes([10, 0, 0, shared]),), ports=draw(pw.named_ports()),
                  interface=draw(st.sampled_from(["", f"flk{number}"])))


class Membership(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.gatherer = Gatherer()
        self.pods: dict[tuple[str, str, str], Member] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.held: list[Gathering] = []
        self.told: dict[Gathering, set[bytes]] = {}

    @rule(pod=members())
    def pod_is(self, pod: Member) -> None:
        self.gatherer.put_pod(pod)
        self.pods[pod.id] = pod

    @rule(data=st.data())
    @precondition(lambda self: self.pods)
    def pod_goes(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.pods)))
        self.gatherer.remove_pod(name)
        del self.pods[name]

    @rule(name=st.sampled_from(pw.NAMESPACES), labels=pw.labels)
    def namespace_is(self, name: str, labels: dict[str, str]) -> None:
        self.gatherer.put_namespace(name, labels)
        self.namespaces[name] = labels

    @rule(name=st.sampled_from(pw.NAMESPACES))
    def namespace_goes(self, name: str) -> None:
        self.gatherer.put_namespace(name, None)
        self.namespaces.pop(name, None)

    @rule(gathering=gatherings)
    def is_held(self, gathering: Gathering) -> None:
        self.gatherer.hold(gathering)
        if gathering not in self.held:
            self.told[gathering] = set(self.gatherer.elements(gathering))
        self.held.append(gathering)

    @rule(data=st.data())
    @precondition(lambda self: self.held)
    def is_released(self, data: st.DataObject) -> None:
        gathering = data.draw(st.sampled_from(self.held))
        self.held.remove(gathering)
        self.gatherer.release(gathering)
        if gathering not in self.held:
            del self.told[gathering]

    @rule()
    def is_drained(self) -> None:
        for gathering, difference in self.gatherer.drain().items():
            assert not difference.added & self.told[gathering]
            assert difference.removed <= self.told[gathering]
            self.told[gathering] |= difference.added
            self.told[gathering] -= difference.removed
        for gathering, told in self.told.items():
            assert told == self.gatherer.elements(gathering)

    @invariant()
    def elements_are_those_of_who_is_meant(self) -> None:
        for gathering in self.told:
            assert self.gatherer.elements(gathering) == self.expected(gathering)

    def expected(self, gathering: Gathering) -> frozenset[bytes]:
        found: set[bytes] = set()
        for source in gathering:
            for pod in self.pods.values():
                if self.is_meant(source, pod):
                    found |= contributed(source, pod)
        return frozenset(found)

    def is_meant(self, source: Source, pod: Member) -> bool:
        where = source.where
        if not isinstance(where, Scope):
            return True
        if where.namespace is not None:
            return where.namespace == pod.namespace and where.pods.matches(pod.labels)
        labels = self.namespaces.get(pod.namespace)
        return labels is not None and where.namespaces.matches(labels) and where.pods.matches(pod.labels)


def contributed(source: Source, pod: Member) -> set[bytes]:
    addresses = [one for one in pod.addresses
                 if source.where is None or isinstance(source.where, Scope) or pw.in_block(source.where, one)]
    if source.port is None:
        return set(addresses)
    return {packed_port(one, source.port.protocol, port.port) for one in addresses for port in pod.ports
            if (port.name, port.protocol) == (source.port.name, source.port.protocol.name)}


TestMembership = Membership.TestCase
TestMembership.settings = settings(max_examples=150, stateful_step_count=30)


def test_an_address_that_two_pods_have_stays_until_neither_has_it() -> None:
    gatherer, everything = Gatherer(), frozenset([Source(Scope("blue"))])
    gatherer.hold(everything)
    for name in ("a", "b"):
        gatherer.put_pod(Member(namespace="blue", name=name, addresses=(b"\n\0\0\1",)))
    assert gatherer.drain() == {everything: Difference(frozenset([b"\n\0\0\1"]), frozenset())}
    gatherer.remove_pod(("blue", "a", ""))
    assert gatherer.drain() == {}
    gatherer.remove_pod(("blue", "b", ""))
    assert gatherer.drain() == {everything: Difference(frozenset(), frozenset([b"\n\0\0\1"]))}
