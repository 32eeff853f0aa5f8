"""The table ``inet flock`` in the kernel: read and changed by netlink, its chains written by nft.

Invariant: every change is a transaction, and no other table is touched. What a method says it did, it did; where one
fails, the table is as some transaction left it, whole, and ``observe`` tells what that is.

If the process dies on any line: the table stays as the last transaction left it and goes on filtering; the next start
observes it and writes it anew in place.

Source: net/netfilter/nf_tables_api.c.
"""

import contextlib
import errno
from collections import Counter
from collections.abc import Iterator, Sequence

from flock.errors import IOFailure
from flock.netlink import constants as nl
from flock.netlink import nft_sets as ns
from flock.netlink.nftables import (
    NO_SUBSYSTEM,
    NoNftables,
    chain_names,
    delete_table,
    dump_chains,
    dump_rules,
    get_table,
    rule_chains,
    transaction,
)
from flock.netlink.socket import NetlinkError, NetlinkSocket
from flock.policy.changes import Known
from flock.policy.nft_text import SOURCES, TABLE, render_table
from flock.policy.plan import MAPS
from flock.system.commands import run

NFT_DEADLINE = 30.0
"""Seconds; a thousand policies with half a million elements take two."""

_OWN = {*MAPS.values(), *SOURCES.values()}
"""The sets of this node's own pods."""

_WHAT = f"the nft table inet {TABLE}"


class PolicyTable:
    """``load`` is a coroutine, since nft is a process; the others block, for milliseconds. For one thread at a time.

    Its socket stays open: where one is closed the kernel waits until what former transactions removed is freed, 13 ms
    of RCU, with the lock that every transaction needs (nft_rcv_nl_event).
    """

    def __init__(self, nft: Sequence[str] = ("nft",)) -> None:
        self._nft = tuple(nft)
        self._sock: NetlinkSocket | None = None

    def close(self) -> None:
        """The end of the socket, where there is one."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def exists(self) -> bool:
        """Whether there is such a table; NoNftables where the kernel has none at all."""
        with self._socket() as sock:
            return self._has_table(sock)

    def observe(self, whole: bool = True) -> Known:
        """What the table has; where there is none, nothing. Not ``whole``: without the elements of pods' sets."""
        with self._socket() as sock:
            if not self._has_table(sock):
                return Known(whole=whole)
            chains = chain_names(sock.dump(dump_chains(nl.NFPROTO_INET), _WHAT), TABLE)
            rules = Counter(rule_chains(sock.dump(dump_rules(nl.NFPROTO_INET, TABLE), _WHAT)))
            sets = [one for one in map(ns.set_state, sock.dump(ns.dump_sets(TABLE), _WHAT))
                    if not one.flags & nl.NFT_SET_ANONYMOUS]
            keys = {one.name: list(ns.elements_of(sock.dump(ns.dump_elements(TABLE, one.name), _WHAT)))
                    for one in sets if one.name in _OWN or (whole and not one.name.startswith(("b", "pm_")))}
        entries = {direction: {_interface(key): verdict.chain if verdict is not None else "?"
                               for key, verdict in keys.get(name, ())} for direction, name in MAPS.items()}
        sources = frozenset((_interface(key), key[ns.IFNAME :]) for name in SOURCES.values()
                            for key, _ in keys.get(name, ()))
        return Known(chains=chains, sets=frozenset(one.name for one in sets), entries=entries, sources=sources,
                     rules=rules, counts={one.name: one.count for one in sets if one.count is not None},
                     elements={name: frozenset(key for key, _ in some) for name, some in keys.items()},
                     whole=whole)

    @contextlib.contextmanager
    def _socket(self) -> Iterator[NetlinkSocket]:
        """The one socket; after a failure that isn't the kernel's refusal, another."""
        if self._sock is None:
            self._sock = NetlinkSocket(nl.NETLINK_NETFILTER)
        try:
            yield self._sock
        except NetlinkError:
            raise
        except IOFailure:
            self._sock.close()
            self._sock = None
            raise

    @staticmethod
    def _has_table(sock: NetlinkSocket) -> bool:
        try:
            return sock.get(get_table(nl.NFPROTO_INET, TABLE), _WHAT) is not None
        except NetlinkError as error:
            if error.errno in NO_SUBSYSTEM:
                raise NoNftables("this kernel has no nftables", str(error)) from error
            raise

    def commit(self, requests: Sequence[bytes]) -> None:
        """One transaction by netlink; NetlinkError where the kernel refused it, and then nothing was changed."""
        if not requests:
            return
        data, acknowledged = transaction(requests)
        with self._socket() as sock:
            sock.allow(len(data))
            refused = sock.send(data, acknowledged, _WHAT)
        if refused:
            raise NetlinkError(f"a change of {_WHAT}", refused)

    async def load(self, text: str) -> None:
        """One transaction by nft; IOFailure with its words where it refused."""
        if not text:
            return
        done = await run([*self._nft, "-f", "-"], NFT_DEADLINE, text.encode())
        if not done.ok:
            raise IOFailure(f"{_WHAT} can't be written", " ".join(done.text.split())[:300] or f"nft: {done.ended}")

    async def make(self) -> None:
        """The table by itself, where it is missing."""
        await self.load(render_table())

    def remove(self) -> bool:
        """Take the table away, and with it every rule; False where there was none, as on a kernel without nftables."""
        try:
            if not self.exists():
                return False
        except NoNftables:
            return False
        data, acknowledged = delete_table(nl.NFPROTO_INET, TABLE)
        with self._socket() as sock:
            refused = sock.send(data, acknowledged, _WHAT)
        if refused and refused[0].errno != errno.ENOENT:
            raise NetlinkError(f"the removal of {_WHAT}", refused)
        return True


def _interface(key: bytes) -> str:
    return key[: ns.IFNAME].rstrip(b"\0").decode(errors="replace")
