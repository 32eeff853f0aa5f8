"""What holds for the repository as a whole: lock files, scripts, and what must never be committed."""

import ast
import configparser
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
SHELL = [
    path
    for path in [*sorted((ROOT / "scripts").iterdir()), ROOT / ".ci/run", ROOT / "deploy/systemd/flock-bird"]
    if path.is_file() and path.read_bytes().startswith((b"#!/bin/sh", b"#!/usr/bin/env bash"))
]


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_locked_package_has_hashes_and_no_index_is_named(lock: Path) -> None:
    text = lock.read_text()
    assert not re.search(r"://|--index|--find-links|--extra-index|trusted-host", text)
    entries = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]
    assert entries
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_the_agents_packages_are_the_same_in_every_lock() -> None:
    locked = {lock.name: set(re.findall(r"^\S+==\S+", lock.read_text(), re.MULTILINE)) for lock in LOCKS}
    assert locked["runtime.txt"] <= locked["dev.txt"] <= locked["soak.txt"]


@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.name)
def test_scripts_parse(script: Path) -> None:
    shell = "bash" if b"bash" in script.read_bytes().splitlines()[0] else "sh"
    subprocess.run([shell, "-n", script], check=True)


def test_nothing_of_one_machine_is_committed() -> None:
    forbidden = re.compile(rb"/work/|/tmp/plan|PRIVATE KEY-----|pythonhosted|pypi\.org/simple")
    others = [path for path in tracked() if path != Path(__file__)]
    found = [str(path.relative_to(ROOT)) for path in others if forbidden.search(path.read_bytes())]
    assert found == []


def test_every_make_target_says_what_it_is_for() -> None:
    targets = re.findall(r"^([a-z-]+):([^=]*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [name for name, rest in targets if "##" not in rest] == []


def modules() -> dict[str, ast.Module]:
    """Every module of flock by its dotted name."""
    source = ROOT / "src"
    files = sorted((source / "flock").rglob("*.py"))
    return {".".join(path.relative_to(source).with_suffix("").parts): ast.parse(path.read_bytes()) for path in files}


def test_every_module_that_calls_itself_pure_is_held_to_it() -> None:
    rules = configparser.ConfigParser()
    rules.read(ROOT / ".importlinter")
    listed = rules["importlinter:contract:pure"]["source_modules"].split()
    said = [name for name, tree in modules().items() if re.search(r"\bPure\b", ast.get_docstring(tree) or "")]
    assert said
    assert [name for name in said if not any(f"{name}.".startswith(f"{each}.") for each in listed)] == []


ADAPTERS = {"Bird", "CniServer", "DeleteQueue", "HealthServer", "ManifestsFolder", "MasqueradeTable",
            "PodWiring", "Store", "Worker"}


def adapters_built(tree: ast.Module) -> set[str]:
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {call.id for call in calls if isinstance(call, ast.Name)} & ADAPTERS


def test_adapters_are_built_at_the_edge_of_a_program_alone() -> None:
    """The agent's edge is app.py; flockctl, which must work without an agent, is its own."""
    built = {name: found for name, tree in modules().items() if (found := adapters_built(tree))}
    assert built.pop("flock.agent.app") == ADAPTERS
    assert [name for name in built if not name.startswith(("flock.cli.", "flock.testing."))] == []
