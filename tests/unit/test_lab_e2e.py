"""The lists of upstream specs, and what becomes of a spec's text."""

import re
from pathlib import Path

import pytest

from flock_lab.kube import conformance
from flock_lab.kube.conformance import ORDERS, summary
from flock_lab.kube.e2e import Result, is_for_here, name_of, outcome, skipped_specs, wanted_specs

OUT_OF_FOCUS = {"LeafNodeType": "It", "State": "skipped"}
SET_UP = {"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"}
GOOD = {"LeafNodeType": "It", "State": "passed"}


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
    assert summary(ORDERS["ipv4"], results, 90.0) == (
        "IPv4-first, installed, kube-proxy iptables: 1 of 2 passed in 1.5 min\n  failed: two")


def test_a_spec_of_other_clouds_alone_isnt_for_the_lab() -> None:
    assert is_for_here("[sig-network] DNS should provide DNS for the cluster [Conformance]")
    assert is_for_here("[sig-network] Networking should recreate its rules [Provider:gce,aws,local,azure] [Disruptive]")
    assert not is_for_here("[sig-network] DNS should provide DNS for the cluster [Provider:gce]")


def test_a_spec_passed_when_it_ran_and_nothing_went_wrong() -> None:
    assert outcome([SET_UP, OUT_OF_FOCUS, GOOD], 0) == ("passed", "")


@pytest.mark.parametrize("state", ["failed", "panicked", "timedout", "interrupted", "aborted"])
def test_a_failure_says_what_and_where(state: str) -> None:
    bad = {"LeafNodeType": "It", "State": state,
           "Failure": {"Message": "no answer", "Location": {"FileName": "service.go", "LineNumber": 7}}}
    assert outcome([SET_UP, OUT_OF_FOCUS, bad], 1) == (state, "no answer\n  at service.go:7")


def test_a_spec_that_skips_itself_is_no_pass() -> None:
    skipped = {"LeafNodeType": "It", "State": "skipped", "Failure": {"Message": "Need at least 3 schedulable nodes"}}
    state, why = outcome([SET_UP, skipped], 0)
    assert state == "skipped"
    assert "3 schedulable nodes" in why


def test_what_fails_beside_the_spec_fails_it() -> None:
    suite = {"LeafNodeType": "SynchronizedAfterSuite", "State": "failed", "Failure": {"Message": "left behind"}}
    assert outcome([GOOD, suite], 1)[0] == "failed"


@pytest.mark.parametrize(("reported", "code"), [([], 1), ([], 0), ([SET_UP, OUT_OF_FOCUS], 0), ([SET_UP, GOOD], -9)])
def test_nothing_that_ran_is_no_pass(reported: list[dict[str, str]], code: int) -> None:
    assert outcome(reported, code) == ("no report", "")


def test_conformance_fails_with_one_failure_and_reports_each_spec(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ends = {"ipv6": "passed", "ipv4": "failed"}
    # What is replaced is a cluster of ten minutes; tests/kube runs specs for real.
    monkeypatch.setattr(conformance, "REPORT", tmp_path / "build" / "conformance.txt")
    monkeypatch.setattr(conformance, "run", lambda order, _options, names, _side_by_side: [
        Result(name=name, state=ends[order], seconds=1.0) for name in names])
    assert conformance.main(["--only", "^HostPort"]) == 1
    assert "IPv6-first, installed, kube-proxy nftables: 1 of 1 passed" in capsys.readouterr().out
    report = conformance.REPORT.read_text()
    assert report.count("HostPort validates") == 3  # one line for each order, and the failure once more
    assert conformance.main(["--only", "^HostPort", "--primary", "ipv6", "--network", "ptp"]) == 0
    assert conformance.main(["--only", "no such spec"]) == 2
