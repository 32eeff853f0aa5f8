"""What every test shares: tests that make network namespaces are skipped for somebody who isn't root.

FLOCK_REQUIRE_ALL=1, which CI sets, runs them all the same, so that a green run there has left nothing out.
"""

import os

import pytest

NEED_ROOT = ("kernel", "lab", "crash", "cluster")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() == 0 or os.environ.get("FLOCK_REQUIRE_ALL"):
        return
    skip = pytest.mark.skip(reason="needs root: it makes network namespaces")
    for item in items:
        if any(item.get_closest_marker(name) for name in NEED_ROOT):
            item.add_marker(skip)
