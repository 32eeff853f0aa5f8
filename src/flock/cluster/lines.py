"""A stream of bytes as lines, bounded. Pure.

Invariant: no stream makes it hold more than the limit: of a line that is longer, the head is handed out at once and the
rest is skipped, and the lines after it are whole.
"""

import msgspec

LINE_LIMIT = 8 * 1024 * 1024
"""An object in etcd has at most 1.5 MiB unless somebody has raised that; as JSON in a watch it grows a little."""

HEAD = 64 * 1024


class Oversized(msgspec.Struct, frozen=True):
    """The beginning of a line that is too long to keep."""

    head: bytes


class LineSplitter:
    """``feed`` takes what came and gives the lines that are whole now, without their ends."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._rest: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes | Oversized]:
        *whole, rest = chunk.split(b"\n")
        found: list[bytes | Oversized] = []
        if not (rest or self._rest or self._skipping) and len(chunk) <= self._limit:
            # Most chunks are whole lines.
            found.extend(line for line in whole if line and not line.isspace())
            return found
        for piece in whole:
            self._keep(piece, found)
            if not self._skipping:
                line = b"".join(self._rest)
                if line.strip():
                    found.append(line)
            self._forget()
            self._skipping = False
        self._keep(rest, found)
        return found

    def _keep(self, piece: bytes, found: list[bytes | Oversized]) -> None:
        if self._skipping or not piece:
            return
        self._rest.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            found.append(Oversized(b"".join(self._rest)[:HEAD]))
            self._forget()
            self._skipping = True

    def _forget(self) -> None:
        self._rest.clear()
        self._size = 0
