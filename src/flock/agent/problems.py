"""What is wrong with the manifests, told once in the log when it appears and once when it is over.

If the process dies on any line: the next start reads the folder anew and tells it again.
"""

import logging

from flock.agent.logs import ctx
from flock.agent.metrics import Metrics
from flock.cluster.view import SourceProblem, View

log = logging.getLogger("flock.manifests")


class Problems:
    """``look`` is called after each change of the view, and once at the start."""

    def __init__(self, view: View, metrics: Metrics) -> None:
        self._view = view
        self._metrics = metrics
        self._told: frozenset[SourceProblem] = frozenset()

    def look(self) -> None:
        """Tell what is new; cheap, in the loop's thread."""
        now = frozenset(self._view.problems)
        for problem in sorted(now - self._told, key=str):
            log.warning("manifest refused, its last good state stays", extra=ctx(
                file=problem.file, document=problem.document, line=problem.line, reason=problem.message))
        for name in sorted({problem.file for problem in self._told} - {problem.file for problem in now}):
            log.info("manifest is right again", extra=ctx(file=name))
        self._metrics.source_problems.set(len(now))
        self._told = now
