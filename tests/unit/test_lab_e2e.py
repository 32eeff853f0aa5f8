"""The lists of upstream specs, and what becomes of a spec's text."""

import re

from flock_lab.kube.conformance import summary
from flock_lab.kube.e2e import Result, name_of, skipped_specs, wanted_specs


def test_a_specs_name_is_its_text_without_what_only_says_its_kind() -> None:
    assert name_of("[sig-network] Services should serve multiport endpoints from pods [Conformance]") == (
        "Services should serve multiport endpoints from pods")
    assert name_of("[sig-network] Netpol [LinuxOnly] NetworkPolicy between server [Feature:NetworkPolicy]") == (
        "Netpol NetworkPolicy between server")


def test_dual_stack_stays_in_the_name_since_the_same_text_is_without_it_too() -> None:
    assert name_of("[sig-network] [Feature:IPv6DualStack] should have at least one dual-stack node").startswith(
        "[Feature:IPv6DualStack] should")


def test_a_list_has_no_name_twice() -> None:
    for name in ("run", "subset"):
        specs = wanted_specs(name)
        assert specs
        assert len(set(specs)) == len(specs)


def test_every_skip_has_a_reason_and_none_takes_a_spec_that_is_run_away() -> None:
    skips = skipped_specs()
    assert skips
    assert all(skip.reason for skip in skips)
    assert not [name for name in wanted_specs("run") for skip in skips if re.fullmatch(skip.pattern, name)]


def test_a_summary_names_what_failed() -> None:
    results = [Result(name="one", state="passed", seconds=1.0), Result(name="two", state="failed", seconds=2.0)]
    assert summary("ipv4", results, 90.0) == (
        "IPv4-first, kube-proxy iptables: 1 of 2 passed in 1.5 min\n  failed: two")
