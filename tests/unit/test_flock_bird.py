"""deploy/systemd/flock-bird: -R only where the kernel still has routes of BIRD."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

WRAPPER = Path(__file__).resolve().parents[2] / "deploy/systemd/flock-bird"


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., list[str]]:
    """Run the wrapper with an ``ip``, a ``getent`` and a ``bird`` that say what they were told to."""
    config = tmp_path / "bird.conf"
    config.write_text("router id 192.0.2.1;\n")
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(WRAPPER.read_text().replace("/etc/flock/bird/bird.conf", str(config)))

    def program(name: str, body: str) -> None:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def run(*, routes: str, user: bool = True) -> list[str]:
        program("ip", f'[ "$1" = -6 ] && printf %s "{routes}"; exit 0')
        program("getent", "exit 0" if user else "exit 2")
        program("bird", 'echo "$@"')
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(["sh", wrapper], env=path, capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.split()

    return run


def test_a_fresh_boot_does_not_recover(start: Callable[..., list[str]]) -> None:
    assert "-R" not in start(routes="")


def test_a_restart_recovers(start: Callable[..., list[str]]) -> None:
    assert "-R" in start(routes="default via fe80::1 dev eth0 proto bird metric 2048")


def test_birds_user_is_used_where_there_is_one(start: Callable[..., list[str]]) -> None:
    assert start(routes="")[-4:] == ["-u", "bird", "-g", "bird"]
    assert "-u" not in start(routes="", user=False)
