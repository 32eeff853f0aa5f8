"""The program ``flock-agent``.

If the process dies on any line: see ``flock.agent.app``.
"""

import asyncio
import contextlib
import gc
import logging
import os
import sys

from flock.agent.app import Agent
from flock.agent.config import AgentConfig, parse_arguments
from flock.agent.logs import ctx, set_up_logging
from flock.errors import FlockError

SWITCH_INTERVAL = 0.0005
"""Seconds a thread keeps the interpreter while others wait: the worker's ADD must not wait 5 ms for a sweep."""


NICENESS = -10
"""A node that is busy is where pods start: an ADD waits behind its load otherwise (measured: 72 ms instead of 8 ms for
the slowest of a hundred, beside four processes that only count)."""


def main() -> None:
    """Run the agent; exit status 0 after a stop, 1 where it could not start."""
    config = parse_arguments()
    set_up_logging(config.log_format, config.log_level)
    sys.setswitchinterval(SWITCH_INTERVAL)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    sys.exit(asyncio.run(_run(config)))


async def _run(config: AgentConfig) -> int:
    # What was imported lives as long as the process: no collection has to look at it again.
    gc.freeze()
    code = 0
    try:
        await Agent(config).run()
    except* FlockError as group:
        for error in group.exceptions:
            logging.getLogger("flock.agent").critical("the agent stops", extra=ctx(error=error))
        code = 1
    return code


if __name__ == "__main__":
    main()
