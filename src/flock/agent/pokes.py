"""Who pokes whom: the events that make loops run before their time.

If the process dies on any line: every loop runs once at the next start.
"""

import asyncio
from collections.abc import Mapping

from flock.agent.bird_loop import BirdLoop
from flock.agent.masquerade_loop import MasqueradeLoop
from flock.agent.source import Upkeep
from flock.agent.state import NodeState
from flock.agent.summaries import Summaries
from flock.agent.sweep import Sweep
from flock.cni.requests import PodArgs
from flock.errors import FlockError
from flock.loops.runner import Runner


def connect(state: NodeState, runners: Mapping[str, Runner], sweep: Sweep, summaries: Summaries,
            masquerade: MasqueradeLoop) -> None:
    """Who pokes whom. Pods that come and go poke nothing here: only this node's NodeConfig concerns every loop."""
    known = state.view.node_config(state.node)

    def poke_all(reason: str) -> None:
        for runner in runners.values():
            runner.poke(reason)

    def view_changed() -> None:
        nonlocal known
        now = state.view.node_config(state.node)
        if now != known:
            known = now
            poke_all("the NodeConfig changed")

    sweep.poke_all, sweep.poke_summaries = poke_all, runners["summaries"].poke
    summaries.watch(runners["summaries"].poke)
    masquerade.watch(runners["masquerade"].poke)
    if "status" in runners:
        masquerade.changed = runners["status"].poke
    state.view.subscribe(view_changed)


def connect_upkeep(state: NodeState, runners: Mapping[str, Runner], upkeep: Upkeep, bird: BirdLoop) -> None:
    """Who pokes the loops that write to the API."""
    loop = asyncio.get_running_loop()
    known = state.view.node(state.node), state.view.snapshot.node_configs

    def refused(pod: PodArgs, error: FlockError) -> None:
        if upkeep.refused(pod, error):
            runners["events"].poke("an ADD was refused")
            runners["status"].poke("an ADD was refused")

    def view_changed() -> None:
        nonlocal known
        node, configs = state.view.node(state.node), state.view.snapshot.node_configs
        if node != known[0] or configs != known[1]:
            runners["node-condition"].poke("the Node or a NodeConfig changed")
        if configs != known[1]:
            for name in ("node", "status"):
                runners[name].poke("a NodeConfig changed")
        known = node, configs

    bird.changed = runners["status"].poke
    state.refused = lambda pod, error: loop.call_soon_threadsafe(refused, pod, error)
    state.view.subscribe(view_changed)
