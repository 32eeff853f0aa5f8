"""Upstream specs of sig-network: a fixed subset in every run, and the lists that say which are run and which are not.

``make conformance`` runs all of specs/run.txt.
"""

import re

import pytest

from flock_lab.kube import dns, e2e
from flock_lab.kube.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SIDE_BY_SIDE = 4


def test_a_subset_of_the_upstream_specs_passes(cluster: Cluster) -> None:
    dns.install(cluster)
    results = e2e.run(cluster, e2e.wanted_specs("subset"), side_by_side=SIDE_BY_SIDE)
    assert len(results) == 15
    failed = [f"{result.name}\n{result.failure[:2000]}" for result in results if not result.passed]
    assert not failed, "\n\n".join(failed)


def test_every_upstream_spec_is_run_or_skipped_for_a_reason(cluster: Cluster) -> None:
    program, run, skips = set(e2e.catalogue(cluster)), set(e2e.wanted_specs("run")), e2e.skipped_specs()
    assert not run - program, "no such spec"
    left_out = {name for name in program - run if not any(re.fullmatch(skip.pattern, name) for skip in skips)}
    assert not left_out, "neither run nor skipped"
    idle = [skip.pattern for skip in skips if not any(re.fullmatch(skip.pattern, name) for name in program - run)]
    assert not idle, "patterns that skip nothing"
    assert all(skip.reason for skip in skips)


def test_the_subset_is_of_what_is_run() -> None:
    assert set(e2e.wanted_specs("subset")) <= set(e2e.wanted_specs("run"))
