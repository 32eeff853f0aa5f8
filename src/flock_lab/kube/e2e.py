"""The upstream e2e specs against a cluster: several processes side by side, a spec each, since a spec mostly waits.

``catalogue`` says which specs the program has; ``run`` runs some of them. A name is a spec's whole text without
``[sig-network]`` and without the tags that only say what kind of spec it is.

If the process dies on any line: the specs' processes end with the router's host.
"""

import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flock.testing.wait import wait_until
from flock_lab.host import Popen
from flock_lab.kube import programs
from flock_lab.kube.cluster import Cluster
from flock_lab.kube.plan import DOMAIN, FOLDER
from flock_lab.state import LabError

SPECS = Path(__file__).with_name("specs")
PASSED = "passed"
_SIG = "[sig-network] "
_TAG = re.compile(r"\s*\[(?!Feature:IPv6DualStack\])[^\]]*\]")
_PROVIDER = re.compile(r"\[Provider:([^\]]*)\]")
_SUITE = "Kubernetes e2e suite"
_REPORTS = "/run/e2e"
_SPEC_LIMIT = 900
_GRACE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one spec ended; ``state`` is ginkgo's word, or "no report"."""

    name: str
    state: str
    seconds: float
    failure: str = ""

    @property
    def passed(self) -> bool:
        return self.state == PASSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Specs that aren't run: a regular expression of their whole names, and why."""

    pattern: str
    reason: str


@dataclass(slots=True, kw_only=True)
class _Running:
    name: str
    number: int
    process: Popen
    begun: float = field(default_factory=time.monotonic)


def name_of(text: str) -> str:
    """A spec's name from its whole text."""
    return _TAG.sub("", text.removeprefix(_SIG)).strip()


def is_for_here(text: str) -> bool:
    """Whether a spec isn't of other providers' clouds alone."""
    clouds = _PROVIDER.search(text)
    return clouds is None or "local" in clouds[1].split(",")


def wanted_specs(name: str) -> list[str]:
    """The names in one of the lists of ``specs/``."""
    lines = (line.strip() for line in (SPECS / f"{name}.txt").read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def skipped_specs() -> list[Skip]:
    """What specs/skipped.txt says."""
    found: list[Skip] = []
    reason = ""
    for line in wanted_specs("skipped"):
        if line.startswith("= "):
            reason = line.removeprefix("= ")
        else:
            found.append(Skip(pattern=line, reason=reason))
    return found


def catalogue(cluster: Cluster) -> dict[str, list[str]]:
    """All specs of sig-network that the program has for such a cluster: the whole texts of each name."""
    report = f"{_REPORTS}/catalogue.json"
    _folder(cluster).mkdir(exist_ok=True)
    cluster.lab.router.run(programs.e2e(), "--ginkgo.dry-run", f"--ginkgo.json-report={report}", "--provider=local",
                           rf"--ginkgo.focus={re.escape(_SIG)}", timeout=_GRACE)
    found: dict[str, list[str]] = {}
    for spec in _specs(cluster.lab.router.path(report)):
        text = _text(spec)
        if spec["LeafNodeType"] == "It" and spec["State"] != "skipped" and is_for_here(text):
            found.setdefault(name_of(text), []).append(text)
    return found


def run(cluster: Cluster, names: Sequence[str], *, side_by_side: int = 3,
        tell: Callable[[Result], object] = repr) -> list[Result]:
    """Run these specs; LabError: one of the names is no spec."""
    texts = catalogue(cluster)
    if unknown := [name for name in names if name not in texts]:
        raise LabError("the e2e program has no such spec", "; ".join(unknown))
    waiting = deque(enumerate(names))
    running: list[_Running] = []
    results: list[Result] = []
    while waiting or running:
        while waiting and len(running) < side_by_side:
            number, name = waiting.popleft()
            running.append(_Running(name=name, number=number, process=_start(cluster, number, texts[name])))
        wait_until(lambda: any(spec.process.poll() is not None for spec in running), _SPEC_LIMIT + _GRACE,
                   "the end of a spec")
        for spec in [spec for spec in running if spec.process.poll() is not None]:
            running.remove(spec)
            results.append(_result(cluster, spec))
            tell(results[-1])
    return results


def _start(cluster: Cluster, number: int, texts: Sequence[str]) -> Popen:
    focus = "|".join(f"^{re.escape(text)}$" for text in texts)
    return cluster.lab.router.spawn(
        programs.e2e(), f"--kubeconfig={FOLDER}/admin.kubeconfig", f"--kubectl-path={programs.kubectl()}",
        "--provider=local", f"--num-nodes={len(cluster.workers)}", "--disable-log-dump", f"--dns-domain={DOMAIN}",
        f"--ginkgo.focus={_suite(focus)}", f"--ginkgo.timeout={_SPEC_LIMIT}s", "--ginkgo.no-color", "--ginkgo.v",
        f"--ginkgo.json-report={_REPORTS}/{number}.json", log=f"e2e-{number}", env={"HOME": "/run"})


def _suite(focus: str) -> str:
    """Ginkgo matches against the suite's name and the spec's text together."""
    return focus.replace("^", f"^{_SUITE} ")


def _result(cluster: Cluster, spec: _Running) -> Result:
    seconds = time.monotonic() - spec.begun
    report = _folder(cluster) / f"{spec.number}.json"
    reported = list(_specs(report)) if report.exists() else []
    state, failure = outcome(reported, spec.process.returncode)
    if state != PASSED and not failure:
        failure = cluster.lab.router.tail(f"e2e-{spec.number}", 30)
    return Result(name=spec.name, state=state, seconds=seconds, failure=failure)


def outcome(reported: Iterable[Mapping[str, Any]], code: int | None) -> tuple[str, str]:
    """The state of a spec, and why it isn't "passed", from ginkgo's report and the code that the program ended with."""
    # Those out of focus are skipped without a word; one that skips itself says why, and that is no pass.
    ran = [found for found in reported if found["State"] != "skipped" or found.get("Failure")]
    if bad := [found for found in ran if found["State"] != PASSED]:
        return bad[0]["State"], "\n".join(_failure(found) for found in bad)
    if code != 0 or not any(found["LeafNodeType"] == "It" for found in ran):
        return "no report", ""
    return PASSED, ""


def _failure(spec: Mapping[str, Any]) -> str:
    failure = spec.get("Failure") or {}
    place = failure.get("Location") or {}
    return f"{failure.get('Message', '')}\n  at {place.get('FileName', '?')}:{place.get('LineNumber', '?')}"


def _specs(report: Path) -> Iterator[dict[str, Any]]:
    for suite in json.loads(report.read_text()):
        yield from suite["SpecReports"] or []


def _text(spec: Mapping[str, Any]) -> str:
    return " ".join([*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]])


def _folder(cluster: Cluster) -> Path:
    return cluster.lab.router.path(_REPORTS)
