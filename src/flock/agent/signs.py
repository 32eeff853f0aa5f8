"""Files by which a container's probes see how far the agent is, in a folder of its own (``--signs``).

``prepared``: it serves, or would at once if another agent let go of the lock, so that other one may end. ``alive``: its
event loop turns, touched every 10 s. Files, not ports: during an upgrade two agents share the node's addresses.

If the process dies on any line: ``prepared`` is what the last one left until the next start removes it; ``alive`` ages.
"""

import contextlib
import logging
from pathlib import Path

from flock.agent.logs import ctx
from flock.system.clock import Clock

GAP = 10.0

log = logging.getLogger("flock.agent")


class Signs:
    """``folder`` None: nobody looks."""

    def __init__(self, folder: Path | None, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    async def keep(self) -> None:
        """Touch ``alive`` for as long as the event loop turns."""
        if self._folder is None:
            return
        with contextlib.suppress(OSError):
            (self._folder / "prepared").unlink(missing_ok=True)
        while True:
            self._touch("alive")
            await self._clock.sleep(GAP)

    def prepared(self) -> None:
        """From now on this agent can take over at any moment."""
        self._touch("prepared")

    def _touch(self, name: str) -> None:
        if self._folder is None:
            return
        try:
            (self._folder / name).touch(mode=0o644)
        except OSError as error:
            log.warning("a sign can't be given", extra=ctx(path=self._folder / name, error=error))
