"""BIRD as another process: its configuration handed over, its state read back.

Invariants: one configuration at a time, and the next one only when BIRD has settled (a queued one aborts BIRD 3); only
what BIRD called good replaces ``bird.conf``, so the last good file stays; equal bytes mean no reload (R9). BIRD that
isn't there is a state: the file is written and read by BIRD when it starts.

If the process dies on any line: either file stands; the next start compares the file's time with BIRD's own record of
its last reconfiguration and hands it over if BIRD hasn't read it.
"""

import asyncio
import contextlib
import grp
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from flock.errors import IOFailure
from flock.routing.bird_config import BirdConfig
from flock.routing.bird_protocol import (
    ACCEPTED,
    CODE_CHECKED,
    CODE_DONE,
    DaemonStatus,
    Reply,
    SessionState,
    parse_sessions,
    parse_status,
)
from flock.routing.bird_socket import BirdAbsent, BirdHung, BirdRefused, ask
from flock.routing.peers import PEER_PREFIX
from flock.routing.trials import Trials, Verdict, readable
from flock.system.clock import Clock
from flock.system.files import ensure_folder, read_bytes, remove, write_atomic

SETTLE_DEADLINE = 10.0
_SETTLE_STEP = 0.02
_REBIND_GAP = 10.0
_MODE = 0o640
_DAEMON = "daemon"
_GROUP = "bird"
"""Debian's group of BIRD's user: it drops root and must still read its file."""


class BirdState(Enum):
    """What was seen of BIRD last."""

    UNKNOWN = "unknown"
    RUNNING = "running"
    ABSENT = "absent"
    HUNG = "hung"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyReport:
    """What became of a configuration; ``refused`` are the peers that are left out, with the reason."""

    state: BirdState
    refused: Mapping[str, str]
    written: bool = False
    reloaded: bool = False


class Bird:
    """The one writer of BIRD's configuration on this node."""

    def __init__(self, socket: Path, config: Path, clock: Clock, *, program: str = "bird") -> None:
        self._clock = clock
        self._socket = socket
        self._config = config
        self._candidate = config.with_name(f".{config.name}.candidate")
        self._trials = Trials(config.with_name(f".{config.name}.trial"), clock, program)
        self._lock = asyncio.Lock()
        self._state = BirdState.UNKNOWN
        self._written: tuple[bytes, tuple[int, ...]] | None = None
        self._loaded: tuple[int, ...] | None = None
        self._stuck_since: float | None = None
        self._due = False
        self._unbound = False
        self._handed_over = float("-inf")

    @property
    def state(self) -> BirdState:
        """What was seen last; a session that is taken down for ever counts as a BIRD that hangs."""
        stuck = self._stuck_since is not None and self._clock.monotonic() - self._stuck_since > SETTLE_DEADLINE
        return BirdState.HUNG if stuck else self._state

    async def apply(self, config: BirdConfig) -> ApplyReport:
        """Make BIRD run with this configuration, without the peers that it refuses.

        `BirdHung` and `BirdRefused` leave the last good file in place.
        """
        async with self._lock:
            refused = {**config.refused, **await self._try_peers(config)}
            if written := not self._on_disk(config.without(refused.keys()).encode()):
                refused.update(await self._write(config, refused))
            reloaded = await self._hand_over()
            return ApplyReport(state=self.state, refused=refused, written=written, reloaded=reloaded)

    async def sessions(self) -> tuple[SessionState, ...]:
        """The peers' sessions as BIRD has them; none while it isn't running. `BirdHung` where it doesn't answer."""
        try:
            found = parse_sessions(await self._ask("show protocols all"), PEER_PREFIX)
        except BirdAbsent:
            return ()
        self._unbound = any(session.unbound for session in found)
        if not any(session.stuck for session in found):
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = self._clock.monotonic()
        return found

    async def status(self) -> DaemonStatus | None:
        """What the daemon says of itself, None while it isn't running."""
        try:
            return parse_status(await self._ask("show status"))
        except BirdAbsent:
            return None

    async def _try_peers(self, config: BirdConfig) -> Mapping[str, str]:
        known = self._trials.known(config, _DAEMON)
        if mark := self._trials.program_mark():
            return {**known, **await self._trials.refused(config, self._trials.by_program, mark, self._group())}
        return known

    async def _write(self, config: BirdConfig, refused: Mapping[str, str]) -> Mapping[str, str]:
        """Put the file in place once BIRD calls it good; the peers that only the daemon refuses, with the reason."""
        try:
            await self._write_checked(config.without(refused.keys()))
        except BirdRefused:
            # The daemon is stricter than `bird -p` was, or there is no such program here: it judges each peer itself.
            more = await self._trials.refused(config, self._by_daemon, _DAEMON, self._group())
            if not more.keys() - refused.keys():
                raise
            await self._write_checked(config.without(refused.keys() | more.keys()))
            return more
        return {}

    async def _write_checked(self, text: str) -> None:
        data = text.encode()
        ensure_folder(self._config.parent)
        await asyncio.to_thread(write_atomic, self._candidate, data, _MODE, self._group(), sync=True)
        try:
            verdict = await self._judge(self._candidate)
            if verdict.reason:
                raise BirdRefused("BIRD refuses the configuration", verdict.reason)
            # The kernel's own stamp is up to a tick old: it could lie before the reconfiguration that this one follows.
            now = time.time_ns()
            os.utime(self._candidate, ns=(now, now))
            self._candidate.rename(self._config)
            self._due = True
        except OSError as error:
            raise IOFailure(f"{self._config} can't be written", error.strerror or str(error)) from error
        finally:
            remove(self._candidate)
        self._written = (data, _signature(self._config))

    async def _judge(self, path: Path) -> Verdict:
        with contextlib.suppress(BirdAbsent):
            return await self._by_daemon(path)
        return await self._trials.by_program(path)

    async def _by_daemon(self, path: Path) -> Verdict:
        reply = await self._ask(f'configure check "{path}"')
        return Verdict(reason="" if reply.code == CODE_CHECKED else readable(reply.text) or f"code {reply.code}")

    async def _hand_over(self) -> bool:
        """``configure`` unless BIRD has this file; True where it was needed and taken.

        A session that couldn't bind its socket is tried again by BIRD at the next ``configure`` alone, so that one is
        due from time to time.
        """
        signature = _signature(self._config)
        force = self._due or (self._unbound and self._clock.monotonic() - self._handed_over > _REBIND_GAP)
        if self._loaded == signature and not force:
            return False
        status = await self.status()
        if status is None:
            self._due = False  # BIRD reads the file when it starts
            return False
        if force or not _has_read(status, self._config):
            await self._settled()
            reply = await self._ask("configure")
            if reply.code not in ACCEPTED:
                raise BirdRefused("BIRD refuses the configuration", readable(reply.text))
            await self._settled()
            self._loaded, self._due, self._handed_over = signature, False, self._clock.monotonic()
            return True
        self._loaded = signature
        return False

    async def _settled(self) -> None:
        """Wait until no reconfiguration is under way."""
        end = self._clock.monotonic() + SETTLE_DEADLINE
        while (reply := await self._ask("configure status")).lines[0][0] != CODE_DONE:
            if self._clock.monotonic() >= end:
                self._state = BirdState.HUNG
                raise BirdHung("BIRD doesn't finish its reconfiguration", f"{reply.lines[0][1]!r} for over "
                               f"{SETTLE_DEADLINE:g} s; only a restart of BIRD helps")
            await self._clock.sleep(_SETTLE_STEP)

    async def _ask(self, command: str) -> Reply:
        try:
            reply = await ask(self._socket, command)
        except BirdAbsent:
            # Another BIRD, maybe of another version, comes back: what this one knew and said is void.
            self._state, self._loaded, self._stuck_since = BirdState.ABSENT, None, None
            self._trials.forget(_DAEMON)
            raise
        except BirdHung:
            self._state = BirdState.HUNG
            raise
        self._state = BirdState.RUNNING
        return reply

    def _on_disk(self, data: bytes) -> bool:
        """Whether the file holds these bytes; it is read again only when somebody touched it."""
        signature = _signature(self._config)
        if not signature or not self._readable():
            return False
        if self._written is None or self._written[1] != signature:
            on_disk = read_bytes(self._config)
            self._written = (on_disk, signature) if on_disk is not None else None
        return self._written is not None and self._written[0] == data

    def _readable(self) -> bool:
        """Whether the BIRD that runs can read the file: a root one can, others by their group."""
        with contextlib.suppress(OSError):
            return self._socket.stat().st_gid in {0, self._config.stat().st_gid}
        return True

    def _group(self) -> int | None:
        """The group that must read the file: that of BIRD's socket, else Debian's for BIRD, else ours."""
        with contextlib.suppress(OSError):
            return self._socket.stat().st_gid
        with contextlib.suppress(KeyError):
            return grp.getgrnam(_GROUP).gr_gid
        return None


def _signature(path: Path) -> tuple[int, ...]:
    """What changes with a file's bytes; empty where there is none."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _has_read(status: DaemonStatus, config: Path) -> bool:
    """Whether BIRD's last reading of its file was after the file's last writing."""
    with contextlib.suppress(OSError):
        written = config.stat().st_mtime
        return status.last_reconfiguration is not None and status.last_reconfiguration > written
    return False
