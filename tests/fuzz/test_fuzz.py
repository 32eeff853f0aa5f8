"""The fuzz targets: over their corpus and mutations of it in every run, guided by coverage for hours in a soak."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fuzz import targets

HERE = Path(__file__).parent
RUNS = 20_000
TARGETS = [targets.frames, targets.netconf]
TOKENS = [
    *(
        b"\0",
        b"\xff",
        b'"',
        b"\\u0000",
        b"{",
        b"[" * 2000,
        b"}",
        b"null",
        b"1e999",
        b"-0",
        b"FLK1",
        b"\xff\xff\xff\x7f",
    ),
    *(b'"cniVersion":"1.1.0"', b'"prevResult":{}', b'"cni.dev/attachments":[]', b"CNI_COMMAND=GC\0", b"CNI_ARGS=a\0"),
]


def corpus(target: Callable[[bytes], None]) -> list[bytes]:
    return [path.read_bytes() for path in sorted((HERE / "corpus" / target.__name__).iterdir())]


def mutate(seed: bytes, source: random.Random) -> bytes:
    """A few changes at random places: other bytes, tokens, cuts, repetitions."""
    data = bytearray(seed)
    for _ in range(source.randint(1, 4)):
        place = source.randint(0, len(data))
        match source.randint(0, 4):
            case 0:
                data[place : place + 1] = source.randbytes(1)
            case 1:
                data[place:place] = source.choice(TOKENS)
            case 2:
                del data[place : place + source.randint(1, 20)]
            case 3:
                data[place:place] = data[place : place + source.randint(1, 50)]
            case _:
                data[place : place + 4] = source.choice([0, 1, 12, 255, 65_536, 2**31, 2**32 - 1]).to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_breaks_nothing(target: Callable[[bytes], None]) -> None:
    seeds = corpus(target)
    assert len(seeds) >= 5
    for seed in seeds:
        target(seed)


@pytest.mark.parametrize("target", TARGETS)
def test_mutations_of_the_corpus_break_nothing(target: Callable[[bytes], None]) -> None:
    source = random.Random(20)
    seeds = corpus(target)
    must_not_raise = target
    for _ in range(RUNS):
        must_not_raise(mutate(source.choice(seeds), source))


@pytest.mark.soak
@pytest.mark.parametrize("target", TARGETS)
def test_the_fuzzer_finds_nothing(target: Callable[[bytes], None], tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="the fuzzer is in .venv-soak (make soak)")
    seconds = os.environ.get("FLOCK_FUZZ_SECONDS", "60")
    found = tmp_path / "found"
    found.mkdir()
    seeds = HERE / "corpus" / target.__name__
    command = [sys.executable, "-m", f"tests.fuzz.fuzz_{target.__name__}", str(found), str(seeds)]
    limits = [f"-max_total_time={seconds}", "-max_len=20000", "-timeout=10", "-rss_limit_mb=1024"]
    done = subprocess.run(
        [*command, *limits, f"-artifact_prefix={tmp_path}/"],
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
