"""Each peer tried alone, so that one that BIRD refuses is left out and the others stand.

The judge is ``bird -p`` of the version that runs; where no such program is (BIRD in a container of its own), the daemon
itself by ``configure check``. A crash or a time-out is a refusal, too. Verdicts are kept by the text that was judged,
so an unchanged peer costs nothing; one that came from a crash or a time-out holds for a minute.

If the process dies on any line: a trial file stays beside bird.conf and is overwritten or removed by the next trial.
"""

import asyncio
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flock.routing.bird_config import BirdConfig, trial_text
from flock.system.clock import Clock
from flock.system.commands import ProgramMissing, ProgramTimeout, run
from flock.system.files import ensure_folder, remove, write_atomic

TRIAL_DEADLINE = 5.0
_DOUBT_HOLDS = 60.0
_REASON_LIMIT = 300

_PLACE = re.compile(r"^(?:bird: )?(?:[^<\n]*<\w+> )?/?\S*?:\d+:\d+ ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``reason`` is empty where the text was taken; ``until`` is when a doubtful verdict ends."""

    reason: str
    until: float | None = None


Judge = Callable[[Path], Awaitable[Verdict]]


class Trials:
    """Remembers what was judged; one trial at a time, since nothing waits for it but the next configuration."""

    def __init__(self, path: Path, clock: Clock, program: str) -> None:
        self._path = path
        self._clock = clock
        self._program = program
        self._verdicts: dict[tuple[str, str], Verdict] = {}

    def program_mark(self) -> str:
        """What tells one installed ``bird`` from another, empty where there is none: verdicts are a version's own."""
        found = shutil.which(self._program)
        if found is None:
            return ""
        status = Path(found).stat()
        return f"{found} {status.st_ino} {status.st_size} {status.st_mtime_ns}"

    async def refused(self, config: BirdConfig, judge: Judge, mark: str, group: int | None) -> Mapping[str, str]:
        """The peers that the judge refuses, by the user's name, with the reason."""
        found: dict[tuple[str, str], Verdict] = {}
        refused: dict[str, str] = {}
        for peer in config.peers:
            text = trial_text(peer, config)
            verdict = self._verdicts.get((mark, text))
            if verdict is None or (verdict.until is not None and verdict.until <= self._clock.monotonic()):
                ensure_folder(self._path.parent)
                await asyncio.to_thread(write_atomic, self._path, text.encode(), 0o640, group)
                try:
                    verdict = await judge(self._path)
                finally:
                    remove(self._path)
            found[mark, text] = verdict
            if verdict.reason:
                refused[peer.name] = verdict.reason
        # What another judge said of texts that are gone is forgotten; each text is kept once for each judge.
        texts = {text for _, text in found}
        self._verdicts = {key: kept for key, kept in self._verdicts.items() if key[1] in texts} | found
        return refused

    def known(self, config: BirdConfig, mark: str) -> Mapping[str, str]:
        """The peers that this judge has refused already, with the reason."""
        verdicts = {peer.name: self._verdicts.get((mark, trial_text(peer, config))) for peer in config.peers}
        return {name: verdict.reason for name, verdict in verdicts.items() if verdict is not None and verdict.reason}

    def forget(self, mark: str) -> None:
        """Drop what one judge said."""
        self._verdicts = {key: verdict for key, verdict in self._verdicts.items() if key[0] != mark}

    async def by_program(self, path: Path) -> Verdict:
        """``bird -p``: parsing and nothing else; it touches no socket and no kernel."""
        try:
            done = await run([self._program, "-p", "-c", str(path)], TRIAL_DEADLINE)
        except ProgramTimeout as error:
            return self._doubt(str(error))
        except ProgramMissing:
            return self._doubt("")
        if done.code < 0:
            return self._doubt(f"{self._program} -p crashed of it ({done.ended})")
        return Verdict(reason="" if done.ok else readable(done.text) or f"{self._program} -p: {done.ended}")

    def _doubt(self, reason: str) -> Verdict:
        return Verdict(reason=reason, until=self._clock.monotonic() + _DOUBT_HOLDS)


def readable(text: str) -> str:
    """BIRD's last words without the place in a file that nobody can look at, on one line."""
    lines = [line for line in text.splitlines() if line.strip()]
    last = _PLACE.sub("", lines[-1]) if lines else ""
    return "".join(char if char.isprintable() else "?" for char in last)[:_REASON_LIMIT].strip()
