"""What can be read of this node without its agent: the store's files and the marked interfaces.

If the process dies on any line: nothing was changed.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from flock.model.attachment import Attachment
from flock.model.ownership import ALLOCATIONS_DIR, RELEASED_DIR
from flock.system.files import read_bytes

_FILE_LIMIT = 64 * 1024


def stored() -> list[Attachment]:
    """The committed allocations, oldest first; files that can't be read are left to the agent."""
    return sorted(_read(ALLOCATIONS_DIR, ".json"), key=lambda entry: entry.created)


def unfinished() -> list[Attachment]:
    """ADDs under way, or that an agent that died left."""
    return list(_read(ALLOCATIONS_DIR, ".pending"))


def released() -> list[Attachment]:
    """Allocations in quarantine."""
    return list(_read(RELEASED_DIR, ".json"))


def _read(folder: Path, suffix: str) -> Iterator[Attachment]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        data = read_bytes(folder / name, _FILE_LIMIT) if name.endswith(suffix) else None
        if data is None:
            continue
        try:
            yield msgspec.json.decode(data, type=Attachment)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
