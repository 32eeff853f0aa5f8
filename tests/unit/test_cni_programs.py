"""The image's programs on a node: by rename, and never over what somebody else put there."""

from pathlib import Path

import pytest

from flock.cni.programs import LEDGER, install_programs, remove_programs
from flock.errors import IOFailure


def shipped(folder: Path, **programs: str) -> Path:
    source = folder / "shipped"
    source.mkdir(exist_ok=True)
    for name, text in programs.items():
        (source / name).write_text(text)
    return source


def installed(source: Path, bin_dir: Path) -> dict[str, str]:
    return {one.name: one.done for one in install_programs(source, bin_dir)}


def test_programs_are_installed_once_and_can_be_executed(tmp_path: Path) -> None:
    source, bin_dir = shipped(tmp_path, flock="shim 1", portmap="portmap 1"), tmp_path / "bin"
    assert installed(source, bin_dir) == {"flock": "installed", "portmap": "installed"}
    assert installed(source, bin_dir) == {"flock": "unchanged", "portmap": "unchanged"}
    assert (bin_dir / "portmap").stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in bin_dir.iterdir()) == [LEDGER, "flock", "portmap"], "nothing half-done is left"


def test_a_program_that_runs_isnt_written_to(tmp_path: Path) -> None:
    source, bin_dir = shipped(tmp_path, flock="shim 1"), tmp_path / "bin"
    installed(source, bin_dir)
    with (bin_dir / "flock").open() as running:
        installed(shipped(tmp_path, flock="shim 2"), bin_dir)
        assert running.read() == "shim 1"
    assert (bin_dir / "flock").read_text() == "shim 2"


def test_flocks_own_plugin_is_upgraded_and_another_one_is_kept(tmp_path: Path) -> None:
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    (bin_dir / "bandwidth").write_text("the distribution's")
    installed(shipped(tmp_path, portmap="1", bandwidth="1"), bin_dir)
    assert installed(shipped(tmp_path, portmap="2", bandwidth="2"), bin_dir) == {
        "portmap": "installed", "bandwidth": "kept"}
    assert (bin_dir / "bandwidth").read_text() == "the distribution's"


def test_the_shim_is_flocks_whoever_put_it_there(tmp_path: Path) -> None:
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    (bin_dir / "flock").write_text("of an install without a ledger")
    assert installed(shipped(tmp_path, flock="new"), bin_dir) == {"flock": "installed"}


@pytest.mark.parametrize("ledger", ["", "no json", "[1]", '{"portmap": 7}', '{"../../etc/passwd": "x"}'])
def test_a_damaged_ledger_makes_nobodys_plugin_flocks(tmp_path: Path, ledger: str) -> None:
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    (bin_dir / "portmap").write_text("somebody else's")
    (bin_dir / LEDGER).write_text(ledger)
    assert installed(shipped(tmp_path, portmap="1"), bin_dir) == {"portmap": "kept"}
    assert remove_programs(bin_dir) == ()
    assert (bin_dir / "portmap").exists()


def test_what_flock_put_there_goes_and_what_was_changed_since_stays(tmp_path: Path) -> None:
    bin_dir = tmp_path / "bin"
    installed(shipped(tmp_path, flock="1", portmap="1", bandwidth="1"), bin_dir)
    (bin_dir / "bandwidth").write_text("another one since")
    assert remove_programs(bin_dir) == ("flock", "portmap")
    assert [path.name for path in bin_dir.iterdir()] == ["bandwidth"]


def test_an_image_without_programs_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(IOFailure, match="nowhere has no programs"):
        install_programs(tmp_path / "nowhere", tmp_path / "bin")
