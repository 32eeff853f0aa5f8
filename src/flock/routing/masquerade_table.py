"""The table ``ip flock_masquerade`` in the kernel: written by nft, read and removed without it.

Invariant: a change is one transaction, so that the table is the old or the new one, and no other table is touched. nft
is run only to write, so a node whose ``masquerade4`` is off needs none.

If the process dies on any line: the table stays as it is, and works on; the next start compares it.
"""

import errno
from collections.abc import Sequence

from flock.errors import IOFailure
from flock.model.ownership import MASQUERADE_TABLE
from flock.netlink import constants as nl
from flock.netlink.conntrack import delete_flow, dump_unreplied, parse_flow
from flock.netlink.nftables import (
    NO_SUBSYSTEM,
    BaseChain,
    NoNftables,
    TableState,
    chain_names,
    delete_table,
    dump_chains,
    dump_rules,
    get_chain,
    get_table,
    table_state,
)
from flock.netlink.socket import NetlinkError, NetlinkSocket
from flock.routing.masquerade import CHAIN, Masquerade, must_begin_anew, render_masquerade
from flock.system.commands import Completed, run

NFT_DEADLINE = 10.0
_WHAT = f"the nft table ip {MASQUERADE_TABLE}"
_FAMILY = nl.NFPROTO_IPV4
_HOOKED = BaseChain(kind="nat", hook=nl.NF_INET_POST_ROUTING, priority=nl.NF_IP_PRI_NAT_SRC, accepts=True)


class NftFailed(IOFailure):
    """nft said no, or died."""


class MasqueradeTable:
    """``write`` is a coroutine, since nft is a process; the others block, for milliseconds."""

    def __init__(self, nft: Sequence[str] = ("nft",)) -> None:
        self._nft = tuple(nft)

    def read(self) -> TableState | None:
        """The table as the kernel has it; None where there is none."""
        with _socket() as sock:
            try:
                table = sock.get(get_table(_FAMILY, MASQUERADE_TABLE), _WHAT)
            except NetlinkError as error:
                if error.errno in NO_SUBSYSTEM:
                    raise NoNftables("this kernel has no nftables", str(error)) from error
                raise
            if table is None:
                return None
            chain = sock.get(get_chain(_FAMILY, MASQUERADE_TABLE, CHAIN), _WHAT)
            rules = sock.dump(dump_rules(_FAMILY, MASQUERADE_TABLE, CHAIN), _WHAT) if chain is not None else ()
            return table_state(table, chain, rules)

    def foreign_chains(self) -> bool:
        """Whether somebody added chains to the table; reads every chain of the family."""
        with _socket() as sock:
            return bool(chain_names(sock.dump(dump_chains(_FAMILY), _WHAT), MASQUERADE_TABLE) - {CHAIN})

    async def write(self, masquerade: Masquerade, *, anew: bool) -> None:
        """Make the table this; NftFailed or ProgramMissing says why it can't be done."""
        done = await self._run(render_masquerade(masquerade, anew=anew))
        if not done.ok and not anew:
            # A chain of ours that a stranger hooked in elsewhere can't be changed in place.
            done = await self._run(render_masquerade(masquerade, anew=True))
        if not done.ok:
            raise NftFailed(f"{_WHAT} can't be written", _reason(done))

    def remove(self) -> bool:
        """Take the table away; False where there was none, as on a kernel without nftables."""
        try:
            if self.read() is None:
                return False
        except NoNftables:
            return False
        with _socket() as sock:
            data, acknowledged = delete_table(_FAMILY, MASQUERADE_TABLE)
            refused = sock.send(data, acknowledged, _WHAT)
        if refused and self.read() is not None:
            raise IOFailure(f"{_WHAT} can't be removed", refused[0].text or f"errno {refused[0].errno}")
        return True

    def forget_untranslated(self, masquerade: Masquerade) -> int:
        """Let flows that began without the rule, and were never answered, begin anew; how many there were.

        conntrack judges a flow once: what was begun in the moment in which the table was away, or before it was there,
        would go out untranslated for as long as somebody tries. What was answered works, and isn't touched.
        """
        with _socket() as sock:
            found = [flow for message in sock.dump(dump_unreplied(_FAMILY), "tracked flows")
                     if (flow := parse_flow(message)) is not None and must_begin_anew(masquerade, flow)]
            try:
                sock.run([delete_flow(_FAMILY, flow) for flow in found], "removal of flows")
            except NetlinkError as error:
                if any(refusal.errno != errno.ENOENT for refusal in error.refusals):
                    raise
        return len(found)

    async def _run(self, transaction: str) -> Completed:
        return await run([*self._nft, "-f", "-"], NFT_DEADLINE, transaction.encode())


def table_differences(wanted: Masquerade, state: TableState | None) -> tuple[str, ...]:
    """What is wrong with the table, in words; nothing where it is as it should be."""
    if state is None:
        return (f"{_WHAT} is missing",)
    found = []
    if state.flags:
        found.append(f"{_WHAT} has flags {state.flags:#x}")
    if state.chain != _HOOKED:
        found.append(f"{_WHAT} has no chain {CHAIN} of type nat at priority srcnat")
    elif state.comments != (wanted.mark,):
        found.append(f"{_WHAT} has other rules than the NodeConfigs ask for")
    return tuple(found)


def _socket() -> NetlinkSocket:
    try:
        return NetlinkSocket(nl.NETLINK_NETFILTER)
    except OSError as error:
        raise NoNftables("this kernel has no nftables", str(error)) from error


def _reason(done: Completed) -> str:
    if done.code == -11:
        return "nft died of SIGSEGV, as nft 1.0.6 does of sets that a newer nft wrote; nft 1.1 reads both"
    return " ".join(done.text.split())[:300] or f"nft: {done.ended}"
