"""Keeps the table ``inet flock`` against strangers: looks after each transaction of another, and every 30 s.

If the process dies on any line: the table stays; the next start writes it anew.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from flock.agent.policing import Policing
from flock.errors import FlockError, IOFailure
from flock.system.clock import Clock

WHOLE_GAP = 25.0
"""Seconds between two looks at every element."""


class Notices(Protocol):
    """One for each transaction of nftables; see ``flock.netlink.generations``."""

    def fileno(self) -> int: ...

    def read(self) -> int: ...

    def close(self) -> None: ...


class PolicyLoop:
    """``run`` is the action of a loop, ``watch`` says whom to poke.

    flock's own transactions are heard of, too, and cost a look each at most: a look at the node's own pods, chains and
    sets is a millisecond. The elements of the sets of other pods are compared once per ``WHOLE_GAP``.
    """

    def __init__(self, policing: Policing, notices: Notices, clock: Clock) -> None:
        self.policing = policing
        self._notices = notices
        self._clock = clock
        self._last_whole = float("-inf")

    def watch(self, poke: Callable[[str], None]) -> None:
        """Begin to hear of transactions, and poke after them."""
        def read() -> None:
            if self._notices.read():
                poke("nftables changed")

        asyncio.get_running_loop().add_reader(self._notices.fileno(), read)

    def close(self) -> None:
        """Stop listening. The table stays."""
        asyncio.get_running_loop().remove_reader(self._notices.fileno())
        self._notices.close()

    async def run(self) -> None:
        """Compare, and put right what differs; IOFailure where the table isn't what it should be."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[FlockError | None] = loop.create_future()

        def settle(error: FlockError | None) -> None:
            if not done.done():
                done.set_result(error)

        def tell(error: FlockError | None) -> None:
            loop.call_soon_threadsafe(settle, error)

        now = self._clock.monotonic()
        whole = now - self._last_whole >= WHOLE_GAP
        self.policing.look(tell, whole=whole)
        if (error := await done) is not None:
            raise IOFailure("policy isn't in place", str(error))
        if whole:
            self._last_whole = now
