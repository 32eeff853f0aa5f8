"""Namespaces for the tests of the wiring: a node and one pod."""

from collections.abc import Iterator

import pytest
from tests.kernel.ground import bare_node

from flock_lab.netns import Netns


@pytest.fixture
def node() -> Iterator[Netns]:
    with bare_node() as netns:
        yield netns


@pytest.fixture
def pod() -> Iterator[Netns]:
    with Netns.create() as netns:
        yield netns
