"""Labs for tests: each under a name of its own, taken down even when the test fails half-way."""

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_network

import pytest

from flock_lab.cni import Pod
from flock_lab.lab import Lab
from flock_lab.node import Node

EXTRA = (ip_network("10.77.1.0/24"), ip_network("2001:db8:77::/64"))
"""Prefixes that the router takes from any node, beside the nodes' own CIDRs."""

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A pod and the node that it is on."""

    node: Node
    pod: Pod


def fresh_name() -> str:
    return f"t{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def lab_name() -> Iterator[str]:
    """A name that nobody uses; whatever is left under it at the end is taken down."""
    name = fresh_name()
    yield name
    Lab.down(name)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two nodes with running daemons, and the router knows their prefixes. Shared by the tests of a module."""
    with Lab.up(fresh_name(), nodes=2, extra=EXTRA) as made:
        made.start()
        yield made


@pytest.fixture(scope="module")
def pair(lab: Lab) -> tuple[Placed, Placed]:
    """A pod on each of the two nodes, for a module's tests to look at; none of them removes it."""
    first, second = lab.nodes
    return Placed(node=first, pod=first.pod("left")), Placed(node=second, pod=second.pod("right"))


@pytest.fixture
def node(lab: Lab) -> Iterator[Node]:
    """The first node; whatever a test changed of its NodeConfig is put back, and its agent runs."""
    node = lab.node(1)
    yield node
    node.write_config()
    if node.agent is None or node.agent.poll() is not None:
        node.start_agent()
        node.wait_ready()
