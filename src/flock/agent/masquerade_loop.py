"""Keeps the table of ``masquerade4`` (docs/node-config.md) as the NodeConfigs say, against strangers too.

Runs when a NodeConfig changes, after each transaction that anybody makes in nftables while it is on, and every 30 s. A
run that finds the table right writes nothing, so the agent's own transaction causes one more look and no more.

Invariants: without a NodeConfig everything stays, for the pods that run. Before the view is complete nothing is taken
away: the table isn't removed, and what was taken for the cluster's own stays that.

If the process dies on any line: the table stays and works on; the next start compares it with what is wanted.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Protocol

from flock.agent.logs import ctx
from flock.agent.state import NodeState
from flock.api.node_config import NodeConfig
from flock.errors import FlockError
from flock.netlink.nftables import TableState
from flock.routing.masquerade import Masquerade, plan_masquerade, render_masquerade
from flock.routing.masquerade_table import table_differences

FIELD = "spec.masquerade4"
PLAN_GAP = 25.0

log = logging.getLogger("flock.masquerade")


class Table(Protocol):
    """The table in the kernel; see ``flock.routing.masquerade_table``."""

    def read(self) -> TableState | None: ...

    def foreign_chains(self) -> bool: ...

    async def write(self, masquerade: Masquerade, *, anew: bool) -> None: ...

    def forget_untranslated(self, masquerade: Masquerade) -> int: ...

    def remove(self) -> bool: ...


class Notices(Protocol):
    """One for each transaction of nftables; see ``flock.netlink.generations``."""

    def fileno(self) -> int: ...

    def read(self) -> int: ...

    def close(self) -> None: ...


class MasqueradeLoop:
    """``run`` is the action of a loop, ``watch`` says whom to poke; ``wanted`` is what was decided last.

    ``error`` is why that can't be, ``changed`` is called when it is another.
    ``listen`` begins to hear of transactions, which is done while masquerade4 is on: it costs whoever makes them.
    """

    def __init__(self, state: NodeState, table: Table, listen: Callable[[], Notices]) -> None:
        self._state = state
        self._table = table
        self._listen_to = listen
        self._poke: Callable[[str], None] = _nobody
        self._notices: Notices | None = None
        self._planned_from: tuple[Mapping[str, NodeConfig], bool] = {}, False
        self._planned_at = float("-inf")
        self._cluster: frozenset[IPv4Network] = frozenset()
        self._ended = False
        self._raw = b""
        self._written: Masquerade | None = None
        self.wanted: Masquerade | None = None
        self.error = ""
        self.changed: Callable[[str], object] = str

    def watch(self, poke: Callable[[str], None]) -> None:
        """Poke when NodeConfigs change, and after transactions of others while it is on."""
        self._poke = poke
        view = self._state.view
        known = view.snapshot.node_configs, view.complete

        def view_changed() -> None:
            nonlocal known
            now = view.snapshot.node_configs, view.complete
            if now != known:
                known = now
                poke("a NodeConfig changed")

        view.subscribe(view_changed)

    def close(self) -> None:
        """Stop listening. The table stays."""
        if self._notices is not None:
            asyncio.get_running_loop().remove_reader(self._notices.fileno())
            self._notices.close()
            self._notices = None

    def described(self) -> dict[str, object] | None:
        """What flockctl shows of it; None while it is off."""
        wanted = self.wanted
        if wanted is None:
            return None
        return {"sources": [str(one) for one in wanted.sources], "outside": [str(one) for one in wanted.cluster],
                "error": self.error}

    def rendered(self) -> str:
        """The transaction that would be given to nft; empty while it is off."""
        return render_masquerade(self.wanted) if self.wanted is not None else ""

    def differences(self) -> list[str]:
        """What is wrong in the kernel now, in words. Blocking."""
        wanted = self.wanted
        try:
            return list(table_differences(wanted, self._table.read())) if wanted is not None else []
        except FlockError as error:
            return [str(error)]

    async def run(self) -> None:
        """Make the kernel's table what the NodeConfigs ask for."""
        try:
            await self._run()
        except FlockError as error:
            self._fails(str(error))
            raise
        self._fails("")

    def _fails(self, error: str) -> None:
        if error == self.error:
            return
        self.error = error
        if error:
            self._state.failing[FIELD] = error
        else:
            self._state.failing.pop(FIELD, None)
        self.changed("masquerade4 fails" if error else "masquerade4 works")

    async def _run(self) -> None:
        state = self._state
        if state.spec() is not None:
            self.wanted = self._plan()
        elif self._written is None:
            return
        if self.wanted is None:
            if state.view.complete:
                await self._end()
            return
        self._ended = False
        self._listen()
        await self._keep(self.wanted)

    def _plan(self) -> Masquerade | None:
        """Anew when a NodeConfig has changed, and now and then for pods that are older than the CIDRs: a thousand
        NodeConfigs take milliseconds, and kube-proxy's transactions may come twenty a second.
        """
        state = self._state
        spec, snapshot, now = state.spec(), state.view.snapshot, state.clock.monotonic()
        from_what = snapshot.node_configs, snapshot.complete
        if spec is None or (from_what == self._planned_from and now - self._planned_at < PLAN_GAP):
            return self.wanted
        self._planned_from, self._planned_at = from_what, now
        pods = (IPv4Address(entry.ip4) for entry in state.store.committed() if entry.ip4 is not None)
        known = frozenset() if snapshot.complete else self._cluster
        wanted = plan_masquerade(spec, snapshot.node_configs.values(), pods, known)
        self._cluster = frozenset(wanted.cluster) if wanted is not None else known
        return wanted

    async def _keep(self, wanted: Masquerade) -> None:
        seen, differences = await self._look(wanted)
        if seen is not None and not differences:
            self._written, self._raw = wanted, seen.raw
            return
        if seen is not None and self._written is None and not self._state.view.complete:
            # The former agent may have known more of the cluster than this one yet does.
            return
        anew = seen is not None and await asyncio.to_thread(self._table.foreign_chains)
        await self._table.write(wanted, anew=anew)
        self._tell(wanted, differences)
        self._written, self._raw = wanted, b""
        seen, differences = await self._look(wanted)
        if seen is not None and not differences:
            self._raw = seen.raw
        await self._forget(wanted)

    async def _look(self, wanted: Masquerade) -> tuple[TableState | None, tuple[str, ...]]:
        """The table, and what is wrong with it: beside what it must hold, all that wasn't there when it was right."""
        seen = await asyncio.to_thread(self._table.read)
        differences = table_differences(wanted, seen)
        if seen is None or differences:
            return seen, differences
        if self._raw and seen.raw != self._raw:
            return seen, ("somebody changed it",)
        if not self._raw and await asyncio.to_thread(self._table.foreign_chains):
            return seen, ("somebody added chains to it",)
        return seen, ()

    async def _forget(self, wanted: Masquerade) -> None:
        """A failure costs some flows that were begun in vain a while, and no more."""
        try:
            forgotten = await asyncio.to_thread(self._table.forget_untranslated, wanted)
        except FlockError as error:
            log.warning("flows that began untranslated stay so", extra=ctx(error=error))
            return
        if forgotten:
            log.info("flows that began untranslated begin anew", extra=ctx(flows=forgotten))

    def _tell(self, wanted: Masquerade, differences: tuple[str, ...]) -> None:
        if self._written == wanted:
            self._state.metrics.healed.labels("masquerade").inc()
            log.warning("the masquerading was put right", extra=ctx(was="; ".join(differences)))
            return
        log.info("masquerading", extra=ctx(
            sources=", ".join(map(str, wanted.sources)), outside=", ".join(map(str, wanted.cluster))))

    async def _end(self) -> None:
        """Once: who switched it off need not be looked after, nor have nftables in the kernel."""
        self.close()
        if self._ended:
            return
        self._written, self._raw = None, b""
        if await asyncio.to_thread(self._table.remove):
            log.info("masquerading ended")
        self._ended = True

    def _listen(self) -> None:
        if self._notices is not None:
            return
        notices = self._notices = self._listen_to()

        def read() -> None:
            if notices.read():
                self._poke("nftables changed")

        asyncio.get_running_loop().add_reader(notices.fileno(), read)


def _nobody(_reason: str) -> None:
    """Nobody is poked yet."""
