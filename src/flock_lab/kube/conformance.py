"""``make conformance``: the upstream specs of ``specs/run.txt`` against an installed flock, IPv6-first and IPv4-first.

Each family order has a cluster of its own, with another mode of kube-proxy. A spec runs once: one that fails is a
failure. ``python -m flock_lab.kube.conformance --help`` says what can be chosen.

If the process dies on any line: ``python -m flock_lab.kube down conformance-ipv6`` (or ``-ipv4``).
"""

import argparse
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from flock.model.family import Family
from flock_lab.kube import dns, e2e
from flock_lab.kube.cluster import Cluster
from flock_lab.kube.e2e import Result
from flock_lab.kube.plan import ClusterOptions, PodNetwork, ProxyMode

REPORT = Path("build/conformance.txt")
SIDE_BY_SIDE = 4
ORDERS = {
    "ipv6": ClusterOptions(primary=Family.IPV6, proxy=ProxyMode.NFTABLES, network=PodNetwork.INSTALLED),
    "ipv4": ClusterOptions(primary=Family.IPV4, proxy=ProxyMode.IPTABLES, network=PodNetwork.INSTALLED),
}


def main(argv: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(argv)
    names = [name for name in e2e.wanted_specs("run") if re.search(chosen.only, name)]
    if not names:
        print(f"no spec of specs/run.txt matches {chosen.only!r}", file=sys.stderr)
        return 2
    summaries, failed = [], 0
    for order in [chosen.primary] if chosen.primary else ORDERS:
        began = time.monotonic()
        results = run(order, names, chosen.side_by_side)
        failed += sum(not result.passed for result in results)
        summaries.append(summary(order, results, time.monotonic() - began))
    text = "\n".join(summaries)
    print(f"\n{text}")
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(text + "\n")
    return 1 if failed else 0


def run(order: str, names: Sequence[str], side_by_side: int) -> list[Result]:
    """A cluster, its DNS, and these specs."""
    print(f"{order}-first: making a cluster for {len(names)} specs", flush=True)
    name = f"conformance-{order}"
    Cluster.down(name)
    with Cluster.up(name, ORDERS[order]) as cluster:
        dns.install(cluster)
        return e2e.run(cluster, names, side_by_side=side_by_side, tell=_tell)


def summary(order: str, results: Sequence[Result], seconds: float) -> str:
    """One line for a run, and one for each spec that failed."""
    options = ORDERS[order]
    passed = sum(result.passed for result in results)
    lines = [(f"{options.primary.label}-first, kube-proxy {options.proxy.value}: {passed} of {len(results)} passed "
             f"in {seconds / 60:.1f} min")]
    lines += [f"  {result.state}: {result.name}" for result in results if not result.passed]
    return "\n".join(lines)


def _tell(result: Result) -> None:
    print(f"{result.state:10} {result.seconds:5.0f} s  {result.name}", flush=True)
    if not result.passed:
        print("  " + result.failure[:3000].replace("\n", "\n  "), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m flock_lab.kube.conformance", description=__doc__)
    parser.add_argument("--primary", choices=sorted(ORDERS), help="one order of the families (default: both)")
    parser.add_argument("--only", default="", metavar="REGEX", help="the specs whose names match")
    parser.add_argument("--side-by-side", type=int, default=SIDE_BY_SIDE, metavar="N", help="default: %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(main())
