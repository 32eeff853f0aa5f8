"""masquerade4 as text: whose packets, to where, in a form that every nft reads."""

import random
import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.api.node_config import NodeConfig, NodeConfigSpec
from flock.routing.masquerade import Masquerade, plan_masquerade, render_masquerade

GOLDEN = Path(__file__).parents[1] / "golden" / "masquerade"

networks = st.builds(lambda bits, length: IPv4Network((bits >> (32 - length) << (32 - length), length)),
                     st.integers(0, 2**32 - 1), st.integers(8, 32))
addresses = st.builds(IPv4Address, st.integers(0, 2**32 - 1))


def config(name: str, *cidrs: IPv4Network, on: bool = True) -> NodeConfig:
    return NodeConfig(name=name, spec=NodeConfigSpec(cidr4=cidrs, masquerade4=on))


def plan(own: Sequence[IPv4Network], others: Sequence[Sequence[IPv4Network]] = (), pods: Sequence[IPv4Address] = (),
         known: Sequence[IPv4Network] = ()) -> Masquerade:
    configs = [config("own", *own), *(config(f"n{number}", *one) for number, one in enumerate(others))]
    planned = plan_masquerade(configs[0].spec, configs, pods, known)
    assert planned is not None
    return planned


def nets(*texts: str) -> list[IPv4Network]:
    return [IPv4Network(text) for text in texts]


@pytest.mark.parametrize("name", ["alone", "cluster"])
@pytest.mark.parametrize("anew", [False, True])
def test_the_transaction_is_as_it_was_reviewed(name: str, anew: bool) -> None:
    planned = {"alone": plan(nets("10.64.1.0/24")),
               "cluster": plan(nets("10.64.1.0/24", "10.65.0.0/26"), [nets("10.64.2.0/24"), nets("10.64.3.0/24")],
                               [IPv4Address("10.99.0.5"), IPv4Address("10.64.1.7")])}[name]
    assert render_masquerade(planned, anew=anew) == (GOLDEN / f"{name}{'-anew' if anew else ''}.nft").read_text()


def test_off_or_without_IPv4_there_is_nothing() -> None:
    off = config("own", IPv4Network("10.0.0.0/24"), on=False)
    none = config("own")
    assert plan_masquerade(off.spec, [off], [IPv4Address("10.0.0.1")]) is None
    assert plan_masquerade(none.spec, [none], []) is None


def test_pods_that_are_older_than_the_CIDRs_are_translated_still() -> None:
    older = plan_masquerade(config("own").spec, [], [IPv4Address("10.0.0.1")])
    assert older is not None
    assert older.sources == older.cluster == (IPv4Network("10.0.0.1/32"),)


@given(st.lists(networks, min_size=1, max_size=4), st.lists(st.lists(networks, max_size=3), max_size=5),
       st.lists(addresses, max_size=5), st.lists(networks, max_size=3), st.randoms(use_true_random=False))
def test_every_pod_is_a_source_and_every_CIDR_is_spared(
    own: list[IPv4Network], others: list[list[IPv4Network]], pods: list[IPv4Address], known: list[IPv4Network],
    order: random.Random,
) -> None:
    planned = plan(own, others, pods, known)
    for network in (*own, *map(IPv4Network, pods)):
        assert any(network.subnet_of(source) for source in planned.sources)
    for network in (*own, *known, *(cidr for one in others for cidr in one), *planned.sources):
        assert any(network.subnet_of(part) for part in planned.cluster)
    for part in planned.sources:
        assert any(part.subnet_of(one) or one.subnet_of(part) for one in (*own, *map(IPv4Network, pods)))
    for listed in (planned.sources, planned.cluster):
        assert list(listed) == sorted(listed)
        assert all(a.broadcast_address < b.network_address for a, b in pairwise(listed))
    for disordered in (own, others, pods, known):
        order.shuffle(disordered)
    assert render_masquerade(plan(own, others, pods, known)) == render_masquerade(planned)


@given(st.lists(networks, min_size=1, max_size=4), st.lists(networks, max_size=4), st.lists(networks, max_size=4))
def test_what_is_known_only_adds(own: list[IPv4Network], other: list[IPv4Network], known: list[IPv4Network]) -> None:
    less, more = plan(own, [other]), plan(own, [other], known=known)
    assert less.sources == more.sources
    assert all(any(part.subnet_of(one) for one in more.cluster) for part in less.cluster)


@given(st.lists(networks, min_size=1, max_size=4), st.lists(networks, max_size=4), st.booleans())
def test_only_its_own_table_is_named_and_no_mark_no_counter_no_named_set(
    own: list[IPv4Network], other: list[IPv4Network], anew: bool,
) -> None:
    planned = plan(own, [other])
    text = render_masquerade(planned, anew=anew)
    lines = text.splitlines()
    assert all(re.match(r"(add|delete|flush) (table|chain|rule) ip flock_masquerade( |$)", line) for line in lines)
    assert not re.search(r"\bmark\b|counter|vmap|@|add set|ruleset|ip6|inet", text)
    assert sum("masquerade fully-random" in line for line in lines) == 1
    assert text.count(f'comment "{planned.mark}"') == 1
    assert len(planned.mark) < 100


@given(st.lists(networks, min_size=1, max_size=3), st.lists(networks, max_size=3), st.lists(networks, min_size=1,
                                                                                            max_size=3))
def test_the_mark_tells_two_rules_apart(own: list[IPv4Network], a: list[IPv4Network], b: list[IPv4Network]) -> None:
    one, other = plan(own, [a]), plan(own, [b])
    assert (one.mark == other.mark) is (one == other)
