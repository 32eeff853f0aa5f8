"""What a person meets first: ``make demo``, and ``flockctl lab`` to look around."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flock_lab import state
from flock_lab.lab import Lab

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

FLOCKCTL = Path(sys.executable).with_name("flockctl")


def _run(*argv: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False,
                          env={**os.environ, **environment})


def _demo(name: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return _run(sys.executable, "-m", "flock_lab.demo", name, **environment)


def test_the_demo_says_who_reaches_whom_and_what_the_router_learned(lab_name: str) -> None:
    done = _demo(lab_name, KEEP="")
    assert done.returncode == 0, done.stdout + done.stderr
    for family in (6, 4):
        path = rf"web-1 to web-2, IPv{family}: +web-1 → node-1 → router → node-2 → web-2 +5 of 5 answered"
        assert re.search(path, done.stdout), done.stdout
    for prefix in ("2001:db8:0:1::/64", "2001:db8:0:2::/64", "10.64.1.0/24", "10.64.2.0/24"):
        assert re.search(rf"^ +{prefix} +unicast .*AS6451[34]", done.stdout, re.MULTILINE), done.stdout
    assert len(set(re.findall(r"2001:db8:0:\d:([0-9a-f]+):", done.stdout))) == 1, "one namespace, one prefix"
    assert state.load(lab_name) is None


def test_the_demo_that_is_kept_stays_until_it_is_taken_down(lab_name: str) -> None:
    done = _demo(lab_name, KEEP="1")
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        lines = re.findall(r"^  (\S*flockctl lab exec .*)$", done.stdout, re.MULTILINE)
        assert len(lines) == 7
        for line in lines[1:]:
            assert _run(*line.split()).returncode == 0, line
        assert "Established" in _run(str(FLOCKCTL), "lab", "exec", "--lab", lab_name, "node-1", "birdc", "-s",
                                     "/run/flock/bird.ctl", "show", "protocols").stdout
    finally:
        down = _run(str(FLOCKCTL), "lab", "down", lab_name)
    assert (down.returncode, down.stdout) == (0, f"{lab_name} is down\n")
    assert state.load(lab_name) is None


def test_a_demo_without_its_parts_fails_and_says_what_is_missing(lab_name: str) -> None:
    done = _demo(lab_name, FLOCK_SHIM="/nowhere")
    assert done.returncode == 1
    assert "the shim isn't built: make shim" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_demo_whose_daemons_are_broken_fails_and_leaves_nothing(lab_name: str, tmp_path: Path) -> None:
    bird = tmp_path / "bird"
    bird.write_text("#!/bin/sh\necho no bird flies here >&2\nexit 1\n")
    bird.chmod(0o755)
    done = _demo(lab_name, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 1, done.stdout
    assert "The demo failed: " in done.stderr
    assert "no bird flies here" in done.stderr
    assert state.load(lab_name) is None


def test_flockctl_lab_goes_up_is_entered_and_goes_down(lab_name: str) -> None:
    up = _run(str(FLOCKCTL), "lab", "up", lab_name, "--nodes", "1")
    assert up.returncode == 0, up.stderr
    assert f"flockctl lab exec --lab {lab_name} node-1" in up.stdout
    enter = (str(FLOCKCTL), "lab", "exec", "--lab", lab_name)
    assert _run(*enter, "node-1", "hostname").stdout == "node-1\n"
    assert _run(*enter, "node-1", "sh", "-c", "exit 7").returncode == 7
    assert "no host 'node-9'" in _run(*enter, "node-9", "true").stderr
    assert lab_name in _run(str(FLOCKCTL), "lab", "list").stdout
    again = _run(str(FLOCKCTL), "lab", "up", lab_name)
    assert again.returncode == 1
    assert "already" in again.stderr
    assert _run(str(FLOCKCTL), "lab", "down", lab_name).stdout == f"{lab_name} is down\n"
    assert _run(str(FLOCKCTL), "lab", "down", lab_name).stdout == f"there is no lab {lab_name}\n"


def test_flockctl_lab_that_can_not_start_leaves_nothing(lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "bird").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bird").chmod(0o755)
    up = _run(str(FLOCKCTL), "lab", "up", lab_name, "--nodes", "1", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert up.returncode == 1
    assert "Traceback" not in up.stderr
    assert not Lab.down(lab_name)
