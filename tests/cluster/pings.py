"""Pinging from a container, by its own busybox. Pure.

Invariant: the words of the summary differ between versions of busybox; the loss is told in the same ones.
"""

from flock.model.family import Address


def command(target: Address) -> tuple[str, ...]:
    """Two echo requests, told apart from one whose answer is late."""
    return ("ping", "-c", "2", "-i", "0.2", "-W", "2", str(target))


def must_be_answered(said: str) -> None:
    assert "2 packets transmitted" in said, said
    assert ", 0% packet loss" in said, said
