"""Files are whole or not there, with exactly the asked mode, and every failure names the path."""

import os
import stat
import threading
from pathlib import Path

import pytest

from flock.errors import IOFailure
from flock.system.files import ensure_folder, read_bytes, read_text, remove, remove_leftovers, write_atomic


def test_a_file_is_replaced_with_its_mode_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    old = os.umask(0o077)
    try:
        write_atomic(path, b"new" * 100_000, 0o640, sync=True)
    finally:
        os.umask(old)
    assert read_bytes(path) == b"new" * 100_000
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_the_group_is_given_by_name_or_number(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"x", group=os.getegid())
    assert path.stat().st_gid == os.getegid()
    with pytest.raises(IOFailure, match="no-such-group"):
        write_atomic(path, b"y", group="no-such-group")
    assert read_bytes(path) == b"x"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "target"
    folder.mkdir()
    with pytest.raises(IOFailure, match="target can't be written"):
        write_atomic(folder, b"x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["target"]
    with pytest.raises(IOFailure, match="No such file or directory"):
        write_atomic(tmp_path / "missing" / "file", b"x")


def test_a_dead_writers_leftover_harms_nobody_and_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / ".file.12345.tmp").write_bytes(b"half")
    (tmp_path / ".hidden").write_bytes(b"not ours")
    write_atomic(tmp_path / "file", b"x")
    assert remove_leftovers(tmp_path) == 1
    assert remove_leftovers(tmp_path / "missing") == 0
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".hidden", "file"]


def test_a_link_that_stands_where_the_temporary_file_goes_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"safe")
    (tmp_path / f".file.{threading.get_native_id()}.tmp").symlink_to(victim)
    with pytest.raises(IOFailure):
        write_atomic(tmp_path / "file", b"x")
    assert victim.read_bytes() == b"safe"


def test_reading_knows_none_from_unreadable(tmp_path: Path) -> None:
    assert read_bytes(tmp_path / "missing") is None
    assert read_text(tmp_path / "missing") is None
    with pytest.raises(IOFailure, match="can't be read"):
        read_bytes(tmp_path)
    (tmp_path / "file").write_bytes(b"\xff" * 10)
    assert read_text(tmp_path / "file") == "\ufffd" * 10
    with pytest.raises(IOFailure, match="longer than 9 bytes"):
        read_bytes(tmp_path / "file", limit=9)
    assert read_bytes(tmp_path / "file", limit=10) == b"\xff" * 10


def test_removing_twice_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    assert remove(path) is True
    assert remove(path) is False
    with pytest.raises(IOFailure, match="can't be removed"):
        remove(tmp_path)


def test_a_folder_is_made_once_and_a_file_in_its_place_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    ensure_folder(folder, 0o700)
    ensure_folder(folder, 0o755)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (tmp_path / "file").touch()
    with pytest.raises(IOFailure, match="can't be made"):
        ensure_folder(tmp_path / "file")
