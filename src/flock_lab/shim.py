"""Where the built shim is. The lab runs from a checkout, where ``make shim`` leaves it."""

import os
import platform
from pathlib import Path

VARIABLE = "FLOCK_SHIM"
_CHECKOUT = Path(__file__).resolve().parents[2]


def shim_path() -> Path | None:
    """The shim for this machine, or None where none is built; the environment may name another."""
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else _CHECKOUT / "build" / "shim" / platform.machine() / "flock"
    return path if path.is_file() else None
