"""Labs for tests: each under a name of its own, taken down even when the test fails half-way."""

import itertools
import os
from collections.abc import Iterator

import pytest

from flock_lab.lab import Lab

_numbers = itertools.count(1)


def _fresh_name() -> str:
    return f"t{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def lab_name() -> Iterator[str]:
    """A name that nobody uses; whatever is left under it at the end is taken down."""
    name = _fresh_name()
    yield name
    Lab.down(name)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two nodes with running daemons, and the router knows their prefixes. Shared by the tests of a module."""
    with Lab.up(_fresh_name(), nodes=2) as made:
        made.start()
        yield made
