"""The store: what is on disk after each step, what a start makes of every kind of file, full and vanished folders."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.errors import IOFailure
from flock.ipam.store import Store
from flock.model.attachment import Attachment
from flock.model.ids import AttachmentKey, ContainerID, IfName
from flock.model.ownership import host_ifname

NOW = 1000.0


def entry(container: str = "c1", ip6: str = "2001:db8::1", created: float = 1.0) -> Attachment:
    key = AttachmentKey(ContainerID(container), IfName("eth0"))
    return Attachment(container_id=key.container_id, ifname=key.ifname, host_ifname=host_ifname(key), namespace="ns",
                      pod="pod", ip6=ip6, ip4="10.0.0.2", created=created)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = opened(tmp_path)
    made.load(NOW)
    return made


def opened(path: Path) -> Store:
    return Store(path / "allocations", path / "released", path / "damaged")


def names(path: Path, folder: str = "allocations") -> list[str]:
    return sorted(os.listdir(path / folder))


def test_each_step_is_one_file(store: Store, tmp_path: Path) -> None:
    one = entry()
    store.write_pending(one)
    assert names(tmp_path) == ["c1:eth0.pending"]
    assert store.get(one.key) is None
    store.commit(one.key)
    assert names(tmp_path) == ["c1:eth0.json"]
    assert store.get(one.key) == one
    released = store.release(one.key, 12.5)
    assert names(tmp_path) == []
    assert names(tmp_path, "released") == ["c1:eth0@12500.json"]
    assert released is not None
    assert released.released == 12.5


def test_I15_R3_a_restart_reads_back_what_was_written(store: Store, tmp_path: Path) -> None:
    done, halfway, gone = entry("c1"), entry("c2", "2001:db8::2"), entry("c3", "2001:db8::3")
    for one in (done, halfway, gone):
        store.write_pending(one)
    store.commit(done.key)
    store.commit(gone.key)
    store.release(gone.key, 40.0)
    loaded = opened(tmp_path).load(NOW)
    assert loaded.committed == [done]
    assert loaded.pending == [halfway.key]
    assert [one.released for one in loaded.released] == [40.0]
    assert not loaded.damaged
    assert not loaded.vanished


def test_a_reused_container_id_has_both_lives(store: Store, tmp_path: Path) -> None:
    for address, time in (("2001:db8::1", 10.0), ("2001:db8::2", 20.0)):
        store.write_pending(entry(ip6=address))
        store.commit(entry().key)
        store.release(entry().key, time)
    assert len(opened(tmp_path).load(NOW).released) == 2


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"container_id": 5}', b"\0" * 100, b"[" * 100_000,
                                     b'{"container_id":"other","ifname":"eth0","host_ifname":"flkx"}',
                                     b'{"container_id":"c1","ifname":"eth0","host_ifname":"x","ip6":"nonsense"}',
                                     b" " * 70_000])
def test_a_bad_file_is_moved_aside_and_harms_one_allocation(tmp_path: Path, content: bytes) -> None:
    store = opened(tmp_path)
    store.load(NOW)
    store.write_pending(entry("good"))
    store.commit(entry("good").key)
    (tmp_path / "allocations" / "c1:eth0.json").write_bytes(content)
    loaded = opened(tmp_path).load(NOW)
    assert [one.container_id for one in loaded.committed] == ["good"]
    assert [one.key for one in loaded.damaged] == [entry("c1").key]
    assert names(tmp_path, "damaged") == ["c1:eth0.json"]


@pytest.mark.parametrize("name", ["README", "a b:eth0.json", "..:eth0.json", "c1.json", ":eth0.json", "c1:a b.json"])
def test_a_foreign_file_is_moved_aside(tmp_path: Path, name: str) -> None:
    opened(tmp_path).load(NOW)
    (tmp_path / "allocations" / name).write_text("{}")
    loaded = opened(tmp_path).load(NOW)
    assert len(loaded.damaged) == 1
    assert names(tmp_path) == []


def test_leftover_temporary_files_are_removed(tmp_path: Path) -> None:
    opened(tmp_path).load(NOW)
    (tmp_path / "allocations" / "c1:eth0.pending.tmp").write_bytes(b"half")
    loaded = opened(tmp_path).load(NOW)
    assert names(tmp_path) == []
    assert not loaded.damaged


def test_a_vanished_folder_is_said_and_rebuilt_whole(store: Store, tmp_path: Path) -> None:
    for number in range(3):
        store.write_pending(entry(f"c{number}", f"2001:db8::{number + 1}"))
        store.commit(entry(f"c{number}").key)
    for name in names(tmp_path):
        (tmp_path / "allocations" / name).unlink()
    (tmp_path / "allocations").rmdir()
    assert not store.intact()
    store.write_pending(entry("c9", "2001:db8::9"))
    assert names(tmp_path) == ["c0:eth0.json", "c1:eth0.json", "c2:eth0.json", "c9:eth0.pending"]
    assert opened(tmp_path / "elsewhere").load(NOW).vanished


def test_a_commit_whose_file_a_stranger_took_is_written_anew(store: Store, tmp_path: Path) -> None:
    store.write_pending(entry())
    (tmp_path / "allocations" / "c1:eth0.pending").unlink()
    store.commit(entry().key)
    assert names(tmp_path) == ["c1:eth0.json"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "allocations").write_text("a file where the folder should be")
    store = opened(tmp_path)
    with pytest.raises(IOFailure):
        store.load(NOW)
    with pytest.raises(IOFailure):
        store.write_pending(entry())
    assert not store.known(entry().key)


def test_quarantine_ends_by_time_oldest_first(store: Store, tmp_path: Path) -> None:
    for number in range(3):
        one = entry(f"c{number}", f"2001:db8::{number + 1}")
        store.write_pending(one)
        store.commit(one.key)
        store.release(one.key, 100.0 + number)
    assert store.expire(219.0, 120.0) == 3
    assert store.expire(221.0, 120.0) == 1
    assert names(tmp_path, "released") == ["c2:eth0@102000.json"]


@given(st.text(max_size=20), st.text(max_size=20))
def test_whatever_a_pod_is_called_it_reads_back(namespace: str, pod: str) -> None:
    one = msgspec.structs.replace(entry(), namespace=namespace, pod=pod)
    assert msgspec.json.decode(msgspec.json.encode(one), type=Attachment) == one


def test_times_that_are_yet_to_come_count_as_now(store: Store, tmp_path: Path) -> None:
    """A former agent wrote the date: its quarantines would never end, and its pods never be old."""
    kept, gone = entry("c1", created=1.8e9), entry("c2", "2001:db8::2")
    for one in (kept, gone):
        store.write_pending(one)
        store.commit(one.key)
    store.release(gone.key, 1.8e9)
    again = opened(tmp_path)
    loaded = again.load(NOW)
    assert [one.created for one in loaded.committed] == [NOW]
    assert [one.released for one in loaded.released] == [NOW]
    assert names(tmp_path, "released") == ["c2:eth0@1000000.json"]
    assert again.expire(NOW + 120, 120.0) == 0
    assert names(tmp_path, "released") == []
