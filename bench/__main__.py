"""``python -m bench [--only GROUP]``: measures, prints the table, writes latest.json; status 1 where a bar fails.

Needs root. Everything happens in namespaces that it makes, on two cores, however many the machine has.
"""

import argparse
import os
import resource
import sys
from collections.abc import Callable
from contextlib import ExitStack

from bench import agent, allocation, burst, latency, outage, policy, ready, report, scale
from bench.report import Figure
from bench.sides import Flock, NotBuilt, Reference, Slot, flock_side, reference_side
from flock_lab import gobuild
from flock_lab.bare import BarePod

CORES = 2
PODS = 250
AT_ONCE = 100
FILES = 4096


def _cni() -> list[Figure]:
    with ExitStack() as stack:
        theirs = stack.enter_context(reference_side())
        ours = stack.enter_context(flock_side())
        slots = _slots(stack, AT_ONCE + 2 * PODS)
        spares, our_pods, their_pods = slots[:AT_ONCE], slots[AT_ONCE:AT_ONCE + PODS], slots[AT_ONCE + PODS:]
        ours.await_serving(spares[0])
        empty, figures = _level(ours, theirs, spares, 0)
        _say(f"wiring {PODS} pods on both nodes")
        burst.fill(ours, our_pods)
        burst.fill(theirs, their_pods)
        full, more = _level(ours, theirs, spares, PODS)
        _say_gate(ours, theirs)
        return latency.shim_figures(empty) + figures + more + [latency.growth_figure(empty, full, PODS)]


def _level(ours: Flock, theirs: Reference, slots: list[Slot], pods: int) -> tuple[latency.Samples, list[Figure]]:
    _say(f"single calls, {pods} pods")
    samples = latency.Singles(ours, theirs, slots[0], slots[1]).run()
    _say(f"{AT_ONCE} at once, {pods} pods")
    bursts = burst.run_bursts(ours, theirs, slots)
    return samples, latency.pod_figures(samples, pods) + burst.burst_figures(bursts, len(slots), pods)


def _store() -> list[Figure]:
    figures = allocation.allocation_figures()
    with ExitStack() as stack:
        ours = stack.enter_context(flock_side())
        slots = _slots(stack, PODS + 1)
        ours.await_serving(slots[0])
        burst.fill(ours, slots[1:])
        _say("starts of the agent")
        figures.append(agent.start_figure(ours, slots[0], PODS))
        for _ in range(4):
            burst.fill(ours, slots[1:], "DEL")
            burst.fill(ours, slots[1:])
        _say("the agent at rest")
        figures += [agent.idle_figure(ours, PODS), agent.memory_figure(ours, PODS)]
    return figures


def _routing() -> list[Figure]:
    with ExitStack() as stack:
        ours = stack.enter_context(flock_side())
        slots = _slots(stack, 1)
        ours.await_serving(slots[0])
        _say("pings while the agent is killed")
        return [outage.outage_figure(ours, slots[0])]


def _kube() -> list[Figure]:
    _say(f"{scale.PODS:,} pods in a real API server")
    figures = scale.scale_figures()
    _say("pods of two networks in a real cluster")
    return figures + ready.ready_figures()


def _policy() -> list[Figure]:
    _say(f"policy with {policy.MANY:,} pods")
    return policy.policy_figures()


GROUPS: dict[str, Callable[[], list[Figure]]] = {"cni": _cni, "store": _store, "routing": _routing, "policy": _policy,
                                                 "kube": _kube}


def _slots(stack: ExitStack, count: int) -> list[Slot]:
    slots = [Slot(number=number, pod=BarePod.make()) for number in range(count)]
    for slot in slots:
        stack.callback(slot.pod.close)
    return slots


def _say_gate(ours: Flock, theirs: Reference) -> None:
    drivers = (ours.driver, theirs.driver)
    loud, gated = sum(driver.loud for driver in drivers), sum(driver.gated for driver in drivers)
    if loud:
        _say(f"the machine was not quiet for {loud} of {gated} calls: ratios from such a run are not to be trusted")


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--only", default=os.environ.get("ONLY") or None, choices=sorted(GROUPS), metavar="GROUP",
                        help="one of %(choices)s; ONLY in the environment says the same")
    only = parser.parse_args().only
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:CORES]))
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    try:
        figures = [figure for name, group in GROUPS.items() if only in (None, name) for figure in group()]
    except (NotBuilt, gobuild.NotBuilt) as error:
        _say(str(error))
        return 2
    print(report.render(figures))
    report.write(figures)
    held = [figure.ok for figure in figures if figure.bar is not None]
    failed = held.count(False)
    _say(f"{failed} of {len(held)} bars fail" if failed else f"all {len(held)} bars hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
