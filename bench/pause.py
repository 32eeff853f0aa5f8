"""The one place where a bench lets time pass: what it measures is what happens in that time."""

import threading


def pause(seconds: float) -> None:
    """Do nothing for so long."""
    threading.Event().wait(seconds)
