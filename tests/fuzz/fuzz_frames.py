"""Coverage-guided fuzzing of frames: `python -m tests.fuzz.fuzz_frames CORPUS -max_total_time=3600` (make soak)."""

import sys

import atheris

with atheris.instrument_imports(include=["flock"]):
    from tests.fuzz.targets import frames

if __name__ == "__main__":
    atheris.Setup(sys.argv, frames)
    atheris.Fuzz()
