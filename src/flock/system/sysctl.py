"""Kernel settings under /proc/sys, of the network namespace that the calling thread is in.

Names are written as sysctl(8) reads them: ``net.ipv4.ip_forward``, or with slashes where a part holds a dot itself:
``net/ipv6/conf/bond0.100/accept_ra``.

If the process dies on any line: a setting is old or new; each is one write.
"""

from pathlib import Path

from flock.errors import IOFailure

_ROOT = Path("/proc/sys")


def sysctl_path(name: str) -> Path:
    """Where a setting lives; ValueError for a name that leaves /proc/sys."""
    parts = name.split("/") if "/" in name else name.split(".")
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{name!r} is not a sysctl name")
    return _ROOT.joinpath(*parts)


def read_sysctl(name: str) -> str | None:
    """The value without its newline, or None where this kernel or interface has no such setting."""
    try:
        return sysctl_path(name).read_text().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IOFailure(f"sysctl {name} can't be read", error.strerror or str(error)) from error


def write_sysctl(name: str, value: int | str) -> None:
    """Set it, whatever it was."""
    try:
        sysctl_path(name).write_text(f"{value}\n")
    except OSError as error:
        raise IOFailure(f"sysctl {name} can't be set to {value}", error.strerror or str(error)) from error


def ensure_sysctl(name: str, value: int | str) -> bool:
    """Set it unless it is so already; True where it was changed. A write costs far more than a read."""
    if read_sysctl(name) == str(value):
        return False
    write_sysctl(name, value)
    return True
