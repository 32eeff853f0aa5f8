"""The one composition root: builds every part of the agent, starts them in order, and ends them in order.

Start: the source, NodeConfig (R2), and only then the lock, which a former agent holds until its last reply: what is
slow lies before it, so an upgrade costs a moment. Then kernel settings, store and kernel joined (R3), loops, the queue
of DELs, and at last the socket, the conflist and ``runtime ready`` (R13). Stop: no new connections, the calls under way
finish, nothing of the pods is touched.

If the process dies on any line: the lock goes with it; the rest is said where each step is.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
from collections.abc import Awaitable, Iterator, Mapping

from flock.agent.admin import Admin
from flock.agent.attachments import Attachments
from flock.agent.bird_loop import BirdLoop
from flock.agent.collector import COLLECT_GAP, Collector
from flock.agent.config import AgentConfig
from flock.agent.deleting import Deleting
from flock.agent.drain import Drain
from flock.agent.facts import NodeNetwork, read_node_network
from flock.agent.health import HealthServer
from flock.agent.left_behind import LeftBehind
from flock.agent.life import give_life_sign, last_life_sign
from flock.agent.logs import ctx
from flock.agent.loop import Loop, running
from flock.agent.masquerade_loop import MasqueradeLoop
from flock.agent.metrics import Metrics
from flock.agent.node_loop import NodeLoop, make_allocator
from flock.agent.pokes import connect, connect_upkeep
from flock.agent.policing import Policing
from flock.agent.policy_feed import PolicyFeed
from flock.agent.policy_loop import PolicyLoop
from flock.agent.problems import Problems
from flock.agent.readiness import Readiness
from flock.agent.signs import Signs
from flock.agent.source import ManifestsSource, Source
from flock.agent.start import await_listed, await_node_config, likely_attachment, recover
from flock.agent.state import NodeState
from flock.agent.summaries import Summaries
from flock.agent.sweep import Sweep
from flock.agent.sysctls import apply_sysctls
from flock.agent.worker import Worker
from flock.cluster.manifests import ManifestsFolder
from flock.cni.install import install_shim, write_conflist
from flock.cni.queue import DeleteQueue
from flock.cni.server import CniServer
from flock.errors import FlockError, IOFailure, NodeConfigMissing
from flock.ipam.store import Store
from flock.loops.backoff import Backoff
from flock.loops.runner import Runner, RunnerState
from flock.model import ownership as own
from flock.netlink.generations import Generations
from flock.netlink.monitor import Monitor
from flock.pods.wiring import PodWiring
from flock.policy.kernel import PolicyTable
from flock.routing.bird import Bird
from flock.routing.masquerade_table import MasqueradeTable
from flock.system.clock import Clock, SystemClock

ALIVE_GAP = 10.0
SUMMARY_GAP = 0.05
"""A summary that a stranger took is back within 100 ms, whenever the last run was; a burst of ADDs costs few runs."""
MASQUERADE_GAP = 0.02
"""The same for the nft table, which takes a process to write; a look costs less than a millisecond."""
POLICY_GAP = 0.02
BIRD_GAP = 10.0
SWEEP_GAP = 30.0
HEALTH_GAP = 1.0
FIRST_RUN_PATIENCE = 2.0

log = logging.getLogger("flock.agent")


class Agent:
    """One node's agent. ``run`` serves until SIGTERM or SIGINT."""

    def __init__(self, config: AgentConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._metrics = Metrics()
        self._readiness = Readiness(self._metrics, self._clock)
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Start, serve, stop. FlockError: the start failed, with the reason."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        async with contextlib.AsyncExitStack() as stack:
            signs = Signs(self._config.signs, self._clock)
            await stack.enter_async_context(running("signs", signs.keep()))
            await stack.enter_async_context(running("health", self._serve_health()))
            source = self._build_source()
            stack.push_async_callback(source.close)
            problems = Problems(source.view, self._metrics)
            source.view.subscribe(problems.look)
            self._readiness.follow(source.followed)
            await source.start()
            problems.look()
            await self._unless_stopped(self._await_node_config(source))
            if source.live is not None:
                await self._unless_stopped(await_listed(source.live))
            signs.prepared()
            await self._lock(stack)
            if not self._stop.is_set():
                await asyncio.to_thread(apply_sysctls)
                await self._serve(stack, source)

    async def _await_node_config(self, source: Source) -> None:
        """Without one a first start fails (R2); a node that was served goes on: DEL and STATUS need none."""
        served = last_life_sign() is not None
        try:
            await await_node_config(source.view, self._config.node, served=served)
        except NodeConfigMissing as error:
            await source.tell_missing(error)
            if not served:
                raise
            log.warning("serving without a NodeConfig: running pods stay, new ones are refused", extra=ctx(error=error))

    def _build_source(self) -> Source:
        if self._config.manifests is not None:
            loop = asyncio.get_running_loop()
            return ManifestsSource(ManifestsFolder(self._config.manifests, self._config.node, loop))
        # aiohttp is 20 MiB and a tenth of a second, which an agent without a cluster must not pay.
        from flock.agent.api_source import ApiSource  # noqa: PLC0415

        return ApiSource(self._config.kubeconfig, self._config.node, self._clock)

    async def _serve(self, stack: contextlib.AsyncExitStack, source: Source) -> None:
        network = await asyncio.to_thread(read_node_network)
        state = self._build_state(source, network)
        state.worker.start()
        stack.callback(state.worker.stop)
        state.wiring.start([state.plan(likely_attachment(state))])
        stack.callback(state.wiring.close)
        await asyncio.to_thread(recover, state, state.store.load(self._clock.uptime()))
        sweep = Sweep(state)
        stack.enter_context(self._listening(state, sweep))
        policy = self._police(stack, state, source)
        deleting = Deleting(state)
        queue = DeleteQueue(own.DELETES_DIR, own.DAMAGED_DIR)
        drain = Drain(queue, state.store, deleting)
        left = LeftBehind(state)
        bird = BirdLoop(state, Bird(own.BIRD_SOCKET, own.BIRD_CONFIG, self._clock), network, left)
        summaries = Summaries(state, left)
        stack.callback(summaries.close)
        masquerade = MasqueradeLoop(state, MasqueradeTable(), Generations)
        stack.callback(masquerade.close)
        loops = {
            "node": Loop(NodeLoop(state, network).run, 0.2, SWEEP_GAP),
            "summaries": Loop(summaries.run, SUMMARY_GAP, SWEEP_GAP),
            "masquerade": Loop(masquerade.run, MASQUERADE_GAP, SWEEP_GAP),
            "policy": Loop(policy.run, POLICY_GAP, SWEEP_GAP),
            "bird": Loop(bird.run, 0.2, BIRD_GAP),
            "sweep": Loop(sweep.run, 1.0, SWEEP_GAP),
        }
        if source.live is not None:
            loops["orphans"] = Loop(Collector(state, source.live, deleting).run, 1.0, COLLECT_GAP)
        upkeep = source.upkeep(state, bird)
        if upkeep is not None:
            loops.update(upkeep.loops())
        runners = self._build_runners(loops)
        if upkeep is not None:
            connect_upkeep(state, runners, upkeep, bird)
        connect(state, runners, sweep, summaries, masquerade)
        policy.watch(runners["policy"].poke)
        async with asyncio.TaskGroup() as tasks:
            jobs: list[asyncio.Task[None]] = [
                tasks.create_task(runner.run(), name=name) for name, runner in runners.items()
            ]
            await self._first_runs(runners)
            await drain.run()
            handler = Attachments(state, deleting, queue, source)
            admin = Admin(state, bird, masquerade, self._readiness, runners, policing=policy.policing,
                          addresses=network.addresses)
            server = CniServer(own.AGENT_SOCKET, handler, asyncio.get_running_loop(), query=admin.answer)
            server.start()
            jobs.append(tasks.create_task(self._alive(drain), name="alive"))
            await self._announce_ready(state)
            await self._stop.wait()
            log.info("stopping", extra=ctx(connections=server.busy))
            self._readiness.stopped()
            await server.close()
            for job in jobs:
                job.cancel()

    def _police(self, stack: contextlib.AsyncExitStack, state: NodeState, source: Source) -> PolicyLoop:
        """Policy for the pods that run, and from now on for every pod before its first packet."""
        policing = Policing(PolicyTable(), asyncio.get_running_loop())
        policing.start()
        # In a thread: the programs that it waits for run in this loop.
        stack.push_async_callback(asyncio.to_thread, policing.stop)
        feed = PolicyFeed(state, policing, source.peers)
        source.subscribe_peers(feed.peers_changed)
        feed.start(state.store.committed())
        policy = PolicyLoop(policing, Generations(), self._clock)
        stack.callback(policy.close)
        return policy

    def _build_state(self, source: Source, network: NodeNetwork) -> NodeState:
        config = source.view.node_config(self._config.node)
        return NodeState(
            node=self._config.node,
            view=source.view,
            store=Store(own.ALLOCATIONS_DIR, own.RELEASED_DIR, own.DAMAGED_DIR),
            allocator=make_allocator(source.view, config, network),
            wiring=PodWiring(),
            worker=Worker("cni"),
            clock=self._clock,
            metrics=self._metrics,
            facts=network.facts(config.spec.mtu if config is not None else None),
        )

    def _build_runners(self, loops: Mapping[str, Loop]) -> dict[str, Runner]:
        runners = {
            name: Runner(name, loop.action, self._clock, shortest_gap=loop.shortest, longest_gap=loop.longest,
                         retry=Backoff(), on_failure=self._failed)
            for name, loop in loops.items()
        }
        self._readiness.watch(runners)
        return runners

    def _failed(self, state: RunnerState, error: Exception) -> None:
        self._metrics.loop_failures.labels(state.name).inc()
        unexpected = not isinstance(error, FlockError)
        if state.failures == 1 or unexpected:
            log.warning("a loop failed, it goes on", extra=ctx(loop=state.name, error=state.error),
                        exc_info=error if unexpected else None)

    async def _first_runs(self, runners: dict[str, Runner]) -> None:
        """Policy, summaries, masquerading and BIRD's first configuration before serving (R7).

        A failure doesn't hold it up, and what is slow only so long.
        """
        deadline = self._clock.monotonic() + FIRST_RUN_PATIENCE
        while self._clock.monotonic() < deadline:
            if all(runners[name].state.runs and runners[name].state.running_since is None
                   for name in ("policy", "summaries", "masquerade", "bird")):
                return
            await self._clock.sleep(0.005)

    async def _announce_ready(self, state: NodeState) -> None:
        if self._config.shim is not None:
            install_shim(self._config.shim, own.CNI_BIN_DIR)
        await write_conflist(own.CNI_CONF_DIR, own.CNI_BIN_DIR)
        self._readiness.serving()
        spec = state.spec()
        log.info("runtime ready", extra=ctx(
            asn=spec.bgp.asn if spec is not None and spec.bgp is not None else 0,
            cidr6=", ".join(map(str, spec.cidr6 if spec is not None else ())),
            cidr4=", ".join(map(str, spec.cidr4 if spec is not None else ())),
            committed=len(state.store),
        ))

    async def _alive(self, drain: Drain) -> None:
        """Touch the file by which the shim answers STATUS while the agent restarts; drain what came in meanwhile."""
        while True:
            try:
                give_life_sign(self._clock.uptime())
                await drain.run()
            except (OSError, FlockError) as error:
                log.warning("the agent's own files can't be kept", extra=ctx(error=error))
            await self._clock.sleep(ALIVE_GAP)

    @contextlib.contextmanager
    def _listening(self, state: NodeState, sweep: Sweep) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        monitors = (Monitor.of_gone_links(), Monitor.of_losses(watched=state.cares_for))

        def read(monitor: Monitor) -> None:
            for event in monitor.read():
                sweep.notice(event)

        for monitor in monitors:
            loop.add_reader(monitor.fileno(), read, monitor)
        try:
            yield
        finally:
            for monitor in monitors:
                loop.remove_reader(monitor.fileno())
                monitor.close()

    async def _serve_health(self) -> None:
        """Listen; while the port is somebody's, above all the former agent's during an upgrade, try again."""
        said = False
        while self._config.health is not None:
            try:
                HealthServer(self._config.health, self._readiness, self._metrics.registry, self._metrics.fold).start()
            except IOFailure as error:
                if not said:
                    log.warning("metrics and health are not served yet", extra=ctx(error=error))
                said = True
                await self._clock.sleep(HEALTH_GAP)
            else:
                return

    async def _lock(self, stack: contextlib.AsyncExitStack) -> None:
        """One agent a node: wait for the former one to be through."""
        own.RUN_DIR.mkdir(mode=0o755, parents=True, exist_ok=True)
        lock = os.open(own.LOCK_FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, lock)
        said = False
        while not self._stop.is_set():
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not said:
                    log.info("waiting for the former agent to end", extra=ctx(lock=own.LOCK_FILE))
                said = True
                await self._clock.sleep(0.05)
            else:
                return

    async def _unless_stopped(self, work: Awaitable[None]) -> None:
        """Wait for ``work``, or for the signal to stop."""
        job = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((job, stop), return_when=asyncio.FIRST_COMPLETED)
            if job.done():
                job.result()
        finally:
            job.cancel()
            stop.cancel()
