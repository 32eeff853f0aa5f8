"""The manifests folder as a source: what is seen, when, and what stays."""

import asyncio
import os
import selectors
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from flock.cluster.manifests import ManifestsFolder
from flock.cluster.view import Snapshot, View
from flock.errors import IOFailure

QUEUE = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\n"


class Changes:
    """The view's notices: waits for one after which something is true."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._event = asyncio.Event()
        self.count = 0
        view.subscribe(self._note)

    def _note(self) -> None:
        self.count += 1
        self._event.set()

    async def until(self, true: Callable[[Snapshot], bool]) -> None:
        async with asyncio.timeout(5):
            while not true(self._view.snapshot):
                await self._event.wait()
                self._event.clear()

    async def until_pods(self, *names: str) -> None:
        await self.until(lambda snapshot: {name for _, name in snapshot.pods} == set(names))

    async def until_problem(self, text: str) -> None:
        await self.until(lambda snapshot: any(text in str(problem) for problem in snapshot.problems))


@pytest_asyncio.fixture
async def folder(tmp_path: Path) -> AsyncIterator[ManifestsFolder]:
    path = tmp_path / "manifests"
    path.mkdir()
    found = ManifestsFolder(path, "n1", asyncio.get_running_loop())
    yield found
    found.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "manifests"


async def test_an_empty_folder_is_complete_and_holds_nothing(folder: ManifestsFolder) -> None:
    assert not folder.view.complete
    await folder.start()
    assert folder.view.snapshot == Snapshot(complete=True)


async def test_what_is_there_at_the_start_is_known_when_it_returns(folder: ManifestsFolder, path: Path) -> None:
    (path / "a.yaml").write_text(POD % "web")
    (path / "b.txt").write_text("not read")
    (path / ".c.yaml").write_text("{not read")
    await folder.start()
    assert folder.view.pod("default", "web") is not None
    assert folder.view.problems == ()
    assert folder.view.pod("default", "other") is None
    assert folder.view.namespace("x") is None
    assert folder.view.node_config("x") is None


async def test_no_folder_is_a_clear_error(tmp_path: Path) -> None:
    folder = ManifestsFolder(tmp_path / "none", "n1", asyncio.get_running_loop())
    with pytest.raises(IOFailure, match=r"manifests folder .*none: No such file"):
        await folder.start()
    folder.close()


async def test_files_come_change_and_go(folder: ManifestsFolder, path: Path) -> None:
    await folder.start()
    seen = Changes(folder.view)
    (path / "a.yaml").write_text(POD % "a")
    await seen.until_pods("a")
    (path / ".b").write_text(POD % "b")
    os.rename(path / ".b", path / "b.yaml")
    await seen.until_pods("a", "b")
    (path / ".new").write_text(POD % "b2")
    os.rename(path / ".new", path / "b.yaml")
    await seen.until_pods("a", "b2")
    os.rename(path / "b.yaml", path / "c.yml")
    await seen.until_pods("a", "b2")
    os.rename(path / "c.yml", path / "c.off")
    await seen.until_pods("a")
    (path / "a.yaml").unlink()
    await seen.until_pods()
    assert folder.view.problems == ()


async def test_links_are_followed_and_the_kubelets_swap_is_seen(folder: ManifestsFolder, path: Path) -> None:
    for version in ("one", "two"):
        (path / f"..{version}").mkdir()
        (path / f"..{version}" / "pod.yaml").write_text(POD % version)
    (path / "..data").symlink_to("..one")
    (path / "pod.yaml").symlink_to("..data/pod.yaml")
    await folder.start()
    seen = Changes(folder.view)
    await seen.until_pods("one")
    (path / "..data_tmp").symlink_to("..two")
    os.rename(path / "..data_tmp", path / "..data")
    await seen.until_pods("two")
    (path / "..two" / "more").write_text(POD % "hard")
    os.link(path / "..two" / "more", path / "more.yaml")
    await seen.until_pods("two", "hard")
    (path / "dangling.yaml").symlink_to("nowhere")
    (path / "last.yaml").write_text(POD % "last")
    await seen.until_pods("two", "hard", "last")
    assert folder.view.problems == ()


async def test_a_file_that_is_being_written_is_read_when_it_is_closed(folder: ManifestsFolder, path: Path) -> None:
    (path / "a.yaml").write_text(POD % "a")
    await folder.start()
    seen = Changes(folder.view)
    with (path / "a.yaml").open("w") as file:
        file.write("apiVersion: v1\nkind: P")
        file.flush()
        (path / "b.yaml").write_text(POD % "b")
        await seen.until_pods("a", "b")
        assert folder.view.problems == ()
        file.seek(0)
        file.write(POD % "a2")
    await seen.until_pods("a2", "b")


async def test_a_wrong_file_is_told_and_its_last_good_state_stays(folder: ManifestsFolder, path: Path) -> None:
    (path / "a.yaml").write_text(POD % "a")
    await folder.start()
    seen = Changes(folder.view)
    (path / "a.yaml").write_text(POD % "b" + "---\nkind: [")
    await seen.until_problem("a.yaml, document 2, line")
    assert folder.view.pod("default", "a") is not None
    assert folder.view.pod("default", "b") is None
    (path / "a.yaml").write_text("")
    await seen.until_problem("a.yaml: is empty; to remove its objects, remove the file")
    (path / "a.yaml").unlink()
    await seen.until_pods()
    assert folder.view.problems == ()


async def test_what_is_no_ordinary_file_is_told_and_never_waited_for(folder: ManifestsFolder, path: Path) -> None:
    os.mkfifo(path / "fifo.yaml")
    (path / "folder.yaml").mkdir()
    (path / "big.yaml").write_bytes(b"#" * (8 * 1024 * 1024 + 1))
    (path / "loop.yaml").symlink_to("loop.yaml")
    await folder.start()
    told = "\n".join(map(str, folder.view.problems))
    assert "fifo.yaml: is not a regular file" in told
    assert "folder.yaml: can't be read: Is a directory" in told or "folder.yaml: is not a regular file" in told
    assert "big.yaml: is larger than 8388608 bytes" in told
    assert "loop.yaml: can't be read: Too many levels of symbolic links" in told
    assert folder.view.complete


def replace_folder(path: Path) -> None:
    path.mkdir()


async def test_a_folder_that_goes_takes_nothing_along_and_is_found_again(folder: ManifestsFolder, path: Path) -> None:
    (path / "a.yaml").write_text(POD % "a")
    await folder.start()
    seen = Changes(folder.view)
    os.rename(path, path.parent / "elsewhere")
    await seen.until_problem("the manifests folder is gone; what it said last stays")
    assert folder.view.pod("default", "a") is not None
    replace_folder(path)
    (path / "b.yaml").write_text(POD % "b")
    await seen.until_pods("b")
    assert folder.view.problems == ()
    (path / "c.yaml").write_text(POD % "c")
    await seen.until_pods("b", "c")


async def test_lost_notices_are_made_up_by_reading_everything(folder: ManifestsFolder, path: Path) -> None:
    await folder.start()
    seen = Changes(folder.view)
    for _ in range(QUEUE // 2 + 10):
        # Two notices each, of a name that changes so that none is merged; the loop doesn't run meanwhile.
        (path / "x.yaml").symlink_to("nowhere")
        os.unlink(path / "x.yaml")
    (path / "a.yaml").write_text(POD % "a")
    await seen.until_pods("a")
    assert folder.view.problems == ()


async def test_many_changes_at_once_are_read_in_few_batches(folder: ManifestsFolder, path: Path) -> None:
    await folder.start()
    seen = Changes(folder.view)
    for number in range(200):
        (path / f"{number}.yaml").write_text(POD % f"p{number}")
    await seen.until(lambda snapshot: len(snapshot.pods) == 200)
    assert seen.count < 20


async def test_what_changes_nothing_tells_nobody(folder: ManifestsFolder, path: Path) -> None:
    (path / "a.yaml").write_text(POD % "a")
    await folder.start()
    seen = Changes(folder.view)
    (path / "a.yaml").write_text(POD % "a")
    (path / "b.yaml").write_text(POD % "b")
    await seen.until_pods("a", "b")
    assert seen.count <= 2


async def test_an_unsubscribed_callback_is_called_no_more(folder: ManifestsFolder, path: Path) -> None:
    await folder.start()
    calls: list[int] = []
    end = folder.view.subscribe(lambda: calls.append(1))
    end()
    end()
    seen = Changes(folder.view)
    (path / "a.yaml").write_text(POD % "a")
    await seen.until_pods("a")
    assert calls == []


async def test_a_closed_folder_watches_nothing(folder: ManifestsFolder, path: Path) -> None:
    await folder.start()
    folder.close()
    folder.close()
    (path / "a.yaml").write_text(POD % "a")
    assert folder.view.snapshot.pods == {}


class CountingSelector(selectors.DefaultSelector):
    """Notes how long each wait may last."""

    def __init__(self) -> None:
        super().__init__()
        self.timeouts: list[float | None] = []

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.timeouts.append(timeout)
        return super().select(timeout)


def test_an_idle_folder_never_wakes_the_loop(tmp_path: Path) -> None:
    selector = CountingSelector()
    loop = asyncio.SelectorEventLoop(selector)
    folder = ManifestsFolder(tmp_path, "n1", loop)

    async def wait_for_one_change() -> None:
        await folder.start()
        changed = asyncio.Event()
        folder.view.subscribe(changed.set)
        selector.timeouts.clear()
        loop.call_soon((tmp_path / "a.yaml").write_text, POD % "a")
        await changed.wait()

    try:
        loop.run_until_complete(wait_for_one_change())
        # Every wait was for ever: no timer is pending.
        assert {timeout for timeout in selector.timeouts if timeout != 0} == {None}
    finally:
        folder.close()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
