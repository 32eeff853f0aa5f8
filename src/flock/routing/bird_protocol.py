"""BIRD's control protocol: replies out of bytes, and what they say. Pure.

A reply is lines: ``NNNN-text`` and more follow, `` text`` of the same code, ``NNNN text`` the last one, whatever its
code. Columns, order and lines differ between versions, so everything is found by its label. What a neighbour sent
(shutdown message, host name) stands in these lines: BIRD takes control characters out of it, nothing else, so bytes are
decoded with replacement, and only labels at the place where BIRD writes its own count.

Sources: BIRD 2.0.12 to 3.4.0, nest/cli.c, nest/proto.c (proto_cmd_show), proto/bgp/bgp.c (bgp_show_proto_info).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address

from flock.model.family import Address, Family

REPLY_LIMIT = 8 << 20
"""Bytes of one reply: a protocol shows about 4 kB, and nobody asks here for routes."""

GREETING = 1
CODE_DONE = 3
CODE_IN_PROGRESS = 4
CODE_QUEUED = 5
CODE_CHECKED = 20
ACCEPTED = frozenset({CODE_DONE, CODE_IN_PROGRESS, CODE_QUEUED})

_CODED = re.compile(rb"(\d{4})([- ])(.*)", re.DOTALL)
_HEADER = re.compile(r"(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*(.*)")
_ROUTES = re.compile(r"(\d+) (imported|filtered|exported|preferred)")
_CHANNELS = {"ipv6": Family.IPV6, "ipv4": Family.IPV4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One whole reply: the code of its last line and every line with its own code."""

    code: int
    lines: tuple[tuple[int, str], ...]

    @property
    def text(self) -> str:
        """The last line: what went wrong, where something did."""
        return self.lines[-1][1]


class ReplyReader:
    """Cuts a stream of bytes into replies; ValueError for what is no reply of BIRD's."""

    def __init__(self) -> None:
        self._rest = b""
        self._size = 0
        self._lines: list[tuple[int, str]] = []

    def feed(self, data: bytes) -> Iterator[Reply]:
        """Every reply that is whole with these bytes."""
        self._size += len(data)
        if self._size > REPLY_LIMIT:
            raise ValueError(f"a reply is longer than {REPLY_LIMIT} bytes")
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if self._take(line):
                reply = Reply(code=self._lines[-1][0], lines=tuple(self._lines))
                self._lines, self._size = [], len(self._rest)
                yield reply

    def _take(self, line: bytes) -> bool:
        """Keep one line; True where it is the last of its reply."""
        match = _CODED.fullmatch(line)
        if match is not None:
            self._lines.append((int(match[1]), match[3].decode(errors="replace")))
            return match[2] == b" "
        if line[:1] not in {b" ", b""} or not self._lines:
            raise ValueError(f"{line[:80]!r} is no line of a reply")
        self._lines.append((self._lines[-1][0], line[1:].decode(errors="replace")))
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStatus:
    """``show status``. Times are seconds since the epoch, None where BIRD shows them in another form."""

    version: str
    router_id: str
    last_reboot: float | None
    last_reconfiguration: float | None
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelState:
    """One family of a session."""

    family: Family
    state: str = ""
    imported: int = 0
    exported: int = 0
    preferred: int = 0
    limit_hit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """One BGP session. ``state`` is the protocol's (up, start, down, flush), ``bgp_state`` the session's.

    ``description`` is the user's name of the peer. ``neighbor_text`` is what the neighbour sent: not to be trusted.
    """

    protocol: str
    state: str
    since: str
    info: str = ""
    description: str = ""
    bgp_state: str = ""
    neighbor: Address | None = None
    interface: str | None = None
    neighbor_asn: int | None = None
    last_error: str = ""
    neighbor_text: str = ""
    channels: tuple[ChannelState, ...] = field(default=())

    @property
    def established(self) -> bool:
        return self.bgp_state == "Established"

    @property
    def stuck(self) -> bool:
        """Being taken down: for more than some seconds only BIRD 3 does that, and never ends it by itself."""
        return self.state in {"flush", "stop"}

    @property
    def unbound(self) -> bool:
        """It couldn't bind its socket, and BIRD tries that again at the next ``configure`` alone."""
        return self.state == "down" and "No listening socket" in f"{self.info} {self.last_error}"


def parse_status(reply: Reply) -> DaemonStatus:
    """Read ``show status``."""
    found = dict.fromkeys(("BIRD ", "Router ID is ", "Last reboot on ", "Last reconfiguration on "), "")
    for _, line in reply.lines:
        for label in found:
            if line.startswith(label):
                found[label] = line.removeprefix(label).strip()
    version, router_id, reboot, reconfiguration = found.values()
    return DaemonStatus(version=version, router_id=router_id, last_reboot=seconds_of(reboot),
                        last_reconfiguration=seconds_of(reconfiguration), state=reply.text.strip())


def parse_sessions(reply: Reply, prefix: str) -> tuple[SessionState, ...]:
    """The BGP sessions whose protocol has this prefix, by name, out of ``show protocols all``."""
    sessions = (_session(head, lines) for head, lines in _blocks(reply) if head.startswith(prefix))
    return tuple(sorted((session for session in sessions if session is not None), key=lambda one: one.protocol))


def _blocks(reply: Reply) -> Iterator[tuple[str, list[str]]]:
    """Each protocol's line of the table (code 1002) with the lines about it (1006)."""
    head, lines = "", list[str]()
    for code, line in reply.lines:
        if code == 1002 and line.strip():
            yield head, lines
            head, lines = line, []
        elif code == 1006:
            lines.append(line)
    yield head, lines


def _session(head: str, lines: list[str]) -> SessionState | None:
    match = _HEADER.fullmatch(head.rstrip())
    if match is None or match[2] != "BGP":
        return None
    own, channels = _split_channels(lines)
    facts = _labels(own)
    neighbor, _, interface = facts.get("Neighbor address", "").partition("%")
    # The state of the session stands in front of the info: `Active        Socket: Connection closed`.
    state, _, info = match[6].partition(" ")
    return SessionState(
        protocol=match[1], state=match[4], since=match[5], info=info.strip(), description=facts.get("Description", ""),
        bgp_state=facts.get("BGP state", state), neighbor=_address(neighbor), interface=interface or None,
        neighbor_asn=_number(facts.get("Neighbor AS", "")), last_error=facts.get("Last error", ""),
        neighbor_text=facts.get("Message", ""), channels=tuple(channels))


def _split_channels(lines: Iterable[str]) -> tuple[list[str], list[ChannelState]]:
    """The lines about the session itself, and its channels."""
    own: list[str] = []
    channels: list[tuple[Family, list[str]]] = []
    current: list[str] = own
    for line in lines:
        word, _, name = line.strip().partition(" ")
        # Two spaces and the word: what a neighbour wrote never stands there, it always follows a label.
        if word == "Channel" and ":" not in line and name in _CHANNELS:
            current = []
            channels.append((_CHANNELS[name], current))
        else:
            current.append(line)
    return own, [_channel(family, body) for family, body in channels]


def _channel(family: Family, lines: list[str]) -> ChannelState:
    facts = _labels(lines)
    counts = {name: int(number) for number, name in _ROUTES.findall(facts.get("Routes", ""))}
    return ChannelState(family=family, state=facts.get("State", ""), imported=counts.get("imported", 0),
                        exported=counts.get("exported", 0), preferred=counts.get("preferred", 0),
                        limit_hit="[HIT]" in facts.get("Import limit", ""))


def _labels(lines: Iterable[str]) -> dict[str, str]:
    """``Label: value`` of each line, the first of a label: a neighbour's text can't replace BIRD's own line."""
    found: dict[str, str] = {}
    for line in lines:
        label, colon, value = line.strip().partition(":")
        if colon:
            found.setdefault(label, value.strip())
    return found


def _address(text: str) -> Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def seconds_of(text: str) -> float | None:
    """A time as flock lets BIRD write it, in seconds since the epoch; None for any other text."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
    except ValueError:
        return None
