"""``make conformance``: the upstream specs of ``specs/run.txt`` against an installed flock, IPv6-first and IPv4-first.

Each family order has a cluster of its own, with another mode of kube-proxy. A spec runs once: one that fails is a
failure. build/conformance.txt says how each ended. ``python -m flock_lab.kube.conformance --help`` says what can be
chosen.

If the process dies on any line: ``python -m flock_lab.kube down conformance-ipv6`` (or ``-ipv4``).
"""

import argparse
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from flock.model.family import Family
from flock_lab.kube import archives, dns, e2e
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
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text("")
    summaries, failed = [], 0
    for order in [chosen.primary] if chosen.primary else ORDERS:
        options = replace(ORDERS[order], network=PodNetwork(chosen.network))
        began = time.monotonic()
        results = run(order, options, names, chosen.side_by_side)
        failed += sum(not result.passed for result in results)
        summaries.append(summary(options, results, time.monotonic() - began))
        with REPORT.open("a") as report:
            report.write("\n".join([summaries[-1], *(f"  {_line(result)}" for result in results)]) + "\n")
    print("\n" + "\n".join(summaries))
    return 1 if failed else 0


def run(order: str, options: ClusterOptions, names: Sequence[str], side_by_side: int) -> list[Result]:
    """A cluster, its DNS, and these specs."""
    print(f"{order}-first: making a cluster for {len(names)} specs", flush=True)
    name = f"conformance-{order}"
    Cluster.down(name)
    with Cluster.up(name, options) as cluster:
        for worker in cluster.workers:
            worker.import_images(archives.upstream())
        dns.install(cluster)
        return e2e.run(cluster, names, side_by_side=side_by_side, tell=_tell)


def summary(options: ClusterOptions, results: Sequence[Result], seconds: float) -> str:
    """One line for a run, and one for each spec that failed."""
    passed = sum(result.passed for result in results)
    lines = [(f"{options.primary.label}-first, {options.network.value}, kube-proxy {options.proxy.value}: "
              f"{passed} of {len(results)} passed in {seconds / 60:.1f} min")]
    lines += [f"  {result.state}: {result.name}" for result in results if not result.passed]
    return "\n".join(lines)


def _line(result: Result) -> str:
    return f"{result.state:10} {result.seconds:5.0f} s  {result.name}"


def _tell(result: Result) -> None:
    print(_line(result), flush=True)
    if not result.passed:
        print("  " + result.failure[:3000].replace("\n", "\n  "), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m flock_lab.kube.conformance", description=__doc__)
    parser.add_argument("--primary", choices=sorted(ORDERS), help="one order of the families (default: both)")
    parser.add_argument("--only", default="", metavar="REGEX", help="the specs whose names match")
    parser.add_argument("--network", choices=[network.value for network in PodNetwork],
                        default=PodNetwork.INSTALLED.value, help="default: %(default)s")
    parser.add_argument("--side-by-side", type=int, default=SIDE_BY_SIDE, metavar="N", help="default: %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(main())
