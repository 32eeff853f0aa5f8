"""The delete queue: every entry is done once, a bad file is moved aside, and a look costs one stat."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flock.cni.frames import encode_request
from flock.cni.queue import DeleteQueue
from flock.model.ids import AttachmentKey, ContainerID, IfName


@pytest.fixture
def queue(tmp_path: Path) -> DeleteQueue:
    (tmp_path / "deletes").mkdir()
    return DeleteQueue(tmp_path / "deletes", tmp_path / "damaged")


def frame(container: str, ifname: str = "eth0", **others: str) -> bytes:
    env = {"CNI_COMMAND": "DEL", "CNI_CONTAINERID": container, "CNI_IFNAME": ifname, "CNI_NETNS": "/run/netns/x"}
    return encode_request(env | others, b'{"cniVersion":"1.1.0","name":"flock"}')


def put(folder: Path, name: str, data: bytes, age: float = 1000.0) -> Path:
    """An entry as the shim leaves it, of this age in seconds."""
    path = folder / "deletes" / name
    path.write_bytes(data)
    stamp = path.stat().st_mtime_ns - int(age * 1e9)
    os.utime(path, ns=(stamp, stamp))
    return path


def age_folder(folder: Path) -> None:
    """As if nothing had changed for a while."""
    os.utime(folder / "deletes", ns=(10**18, 10**18))


def names(queue: DeleteQueue) -> list[str]:
    return [entry.name for entry in queue.read()]


def test_entries_come_oldest_first(queue: DeleteQueue, tmp_path: Path) -> None:
    put(tmp_path, "b:eth0", frame("b"), age=10)
    put(tmp_path, "a:eth1", frame("a", "eth1", FLOCK_NETNS_INODE="4026531840"), age=30)
    put(tmp_path, "c:eth0", frame("c"), age=20)
    entries = queue.read()
    assert [entry.name for entry in entries] == ["a:eth1", "c:eth0", "b:eth0"]
    assert entries[0].request.key == AttachmentKey(ContainerID("a"), IfName("eth1"))
    assert [entry.request.netns_inode for entry in entries] == [4026531840, 0, 0]


def test_a_missing_folder_is_an_empty_queue(tmp_path: Path) -> None:
    queue = DeleteQueue(tmp_path / "none", tmp_path / "damaged")
    assert queue.read() == ()
    assert not queue.changed()
    assert not queue.forget(AttachmentKey(ContainerID("a"), IfName("eth0")))
    (tmp_path / "none").mkdir()
    assert queue.changed()


def test_a_look_says_whether_there_may_be_more(queue: DeleteQueue, tmp_path: Path) -> None:
    assert queue.changed(), "nothing was read yet"
    age_folder(tmp_path)
    assert names(queue) == []
    assert not queue.changed()
    put(tmp_path, "a:eth0", frame("a"))
    assert queue.changed()


def test_a_change_of_the_same_tick_as_the_reading_is_not_missed(queue: DeleteQueue, tmp_path: Path) -> None:
    put(tmp_path, "a:eth0", frame("a"))
    assert names(queue) == ["a:eth0"]
    assert queue.changed(), "the folder's time is too young to rely on"


def test_r15_an_entry_that_is_not_done_is_given_again(queue: DeleteQueue, tmp_path: Path) -> None:
    put(tmp_path, "a:eth0", frame("a"))
    put(tmp_path, "b:eth0", frame("b"))
    age_folder(tmp_path)
    failing, done = queue.read()
    queue.remove(done)
    age_folder(tmp_path)
    assert queue.changed()
    assert queue.read() == (failing,)
    assert queue.changed()
    queue.forget(failing.request.key)
    age_folder(tmp_path)
    assert queue.read() == ()
    assert not queue.changed()


def test_what_is_done_goes_away_and_a_newer_one_of_the_name_stays(queue: DeleteQueue, tmp_path: Path) -> None:
    put(tmp_path, "a:eth0", frame("a"))
    put(tmp_path, "b:eth0", frame("b"))
    first, second = queue.read()
    newer = put(tmp_path, ".1", frame("b", FLOCK_NETNS_INODE="7"), age=0)
    newer.rename(tmp_path / "deletes" / "b:eth0")
    for entry in (first, second, second):
        queue.remove(entry)
    assert [entry.request.netns_inode for entry in queue.read()] == [7]


def test_an_add_forgets_what_was_queued_of_its_name(queue: DeleteQueue, tmp_path: Path) -> None:
    put(tmp_path, "a:eth0", frame("a"))
    put(tmp_path, "a:eth1", frame("a", "eth1"))
    key = AttachmentKey(ContainerID("a"), IfName("eth0"))
    assert [queue.forget(key), queue.forget(key)] == [True, False]
    assert names(queue) == ["a:eth1"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a:eth0", b""),
        ("a:eth0", frame("a")[:-1]),
        ("a:eth0", frame("a") + b"x"),
        ("a:eth0", b"\0" * 10_000),
        ("a:eth0", frame("b")),
        ("a:eth0", frame("a", CNI_COMMAND="ADD")),
        ("a:eth0", frame("a", FLOCK_NETNS_INODE="x")),
        ("a:eth0", frame("../a")),
        ("nonsense", frame("a")),
        ("a:eth0", bytes(5 * 1024 * 1024)),
    ],
)
def test_a_damaged_file_is_moved_aside_and_the_others_are_read(
    queue: DeleteQueue, tmp_path: Path, name: str, data: bytes
) -> None:
    put(tmp_path, name, data)
    put(tmp_path, "good:eth0", frame("good"))
    assert names(queue) == ["good:eth0"]
    assert os.listdir(tmp_path / "damaged") == [f"delete-{name}"]
    assert (tmp_path / "damaged" / f"delete-{name}").read_bytes() == data


def test_what_is_no_file_is_moved_aside_unopened(queue: DeleteQueue, tmp_path: Path) -> None:
    (tmp_path / "deletes" / "dir:eth0").mkdir()
    os.mkfifo(tmp_path / "deletes" / "fifo:eth0")
    (tmp_path / "deletes" / "link:eth0").symlink_to("/etc/passwd")
    assert names(queue) == []
    assert sorted(os.listdir(tmp_path / "damaged")) == ["delete-dir:eth0", "delete-fifo:eth0", "delete-link:eth0"]


def test_a_damaged_file_that_cannot_be_moved_harms_no_other(queue: DeleteQueue, tmp_path: Path) -> None:
    (tmp_path / "damaged").write_text("in the way")
    put(tmp_path, "a:eth0", b"")
    put(tmp_path, "good:eth0", frame("good"))
    assert names(queue) == ["good:eth0"]


def test_unfinished_files_are_no_entries_and_old_ones_go(queue: DeleteQueue, tmp_path: Path) -> None:
    put(tmp_path, ".1.2", b"half", age=1)
    put(tmp_path, ".3.4", b"half", age=100)
    assert names(queue) == []
    assert os.listdir(tmp_path / "deletes") == [".1.2"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.integers(0, 100), st.integers(0, 255))
def test_arbitrary_content_never_stops_the_reading(
    queue: DeleteQueue, tmp_path: Path, data: bytes, place: int, byte: int
) -> None:
    changed = bytearray(frame("b"))
    changed[place % len(changed)] = byte
    put(tmp_path, "a:eth0", data)
    put(tmp_path, "b:eth0", bytes(changed))
    put(tmp_path, "good:eth0", frame("good"))
    assert "good:eth0" in names(queue)
