"""Coverage-guided fuzzing of netconf: `python -m tests.fuzz.fuzz_netconf CORPUS -max_total_time=3600` (make soak)."""

import sys

import atheris

with atheris.instrument_imports(include=["flock"]):
    from tests.fuzz.targets import netconf

if __name__ == "__main__":
    atheris.Setup(sys.argv, netconf)
    atheris.Fuzz()
