"""The shim with sanitizers is compiled once a session."""

import pytest
from tests.contract.shim_world import Shim, build


@pytest.fixture(scope="session")
def shim_program(tmp_path_factory: pytest.TempPathFactory) -> Shim:
    folder = tmp_path_factory.mktemp("shim")
    return Shim(program=build(folder), run_dir=folder / "run")


@pytest.fixture
def shim(shim_program: Shim) -> Shim:
    shim_program.clear()
    return shim_program
