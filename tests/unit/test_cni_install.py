"""What a runtime finds: a whole conflist in the versions that all of its plugins speak, and an executable shim."""

import asyncio
import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.cni.install import (
    CHAINED,
    Rival,
    choose_chain,
    common_versions,
    install_shim,
    plugin_versions,
    remove_conflist,
    render_conflist,
    rivals,
    write_conflist,
)
from flock.cni.netconf import VERSIONS
from flock.errors import DecodeFailure, IOFailure
from flock.model.ownership import CONFLIST_NAME
from flock.system.files import write_atomic

OLD = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0"]


def plugin(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    write_atomic(path, f"#!/bin/sh\n{script}\n".encode(), 0o755)
    return path


def speaking(folder: Path, name: str, versions: list[str]) -> Path:
    """A plugin that answers VERSION like the reference ones, which read stdin."""
    answer = json.dumps({"cniVersion": "1.0.0", "supportedVersions": versions})
    return plugin(folder, name, f"cat >/dev/null; [ \"$CNI_COMMAND\" = VERSION ] && echo '{answer}'")


def conflist(folder: Path) -> dict[str, object]:
    result = json.loads((folder / "net.d" / CONFLIST_NAME).read_text())
    assert isinstance(result, dict)
    return result


async def test_alone_it_speaks_all_its_versions(tmp_path: Path) -> None:
    report = await write_conflist(tmp_path / "net.d", tmp_path / "bin")
    assert report.changed
    assert conflist(tmp_path) == {
        "cniVersion": "1.0.0",
        "cniVersions": ["0.3.1", "0.4.0", "1.0.0", "1.1.0"],
        "name": "flock",
        "plugins": [{"type": "flock"}],
    }
    assert (tmp_path / "net.d" / CONFLIST_NAME).stat().st_mode & 0o777 == 0o644


async def test_an_old_portmap_caps_the_versions(tmp_path: Path) -> None:
    speaking(tmp_path / "bin", "portmap", OLD)
    speaking(tmp_path / "bin", "bandwidth", [*OLD, "1.1.0"])
    report = await write_conflist(tmp_path / "net.d", tmp_path / "bin")
    assert report.chained == ("portmap", "bandwidth")
    assert conflist(tmp_path)["cniVersions"] == ["0.3.1", "0.4.0", "1.0.0"]
    assert conflist(tmp_path)["plugins"] == [
        {"type": "flock"},
        {"type": "portmap", "capabilities": {"portMappings": True}},
        {"type": "bandwidth", "capabilities": {"bandwidth": True}},
    ]


async def test_only_other_bytes_are_written(tmp_path: Path) -> None:
    reports = [await write_conflist(tmp_path / "net.d", tmp_path / "bin") for _ in range(2)]
    assert [report.changed for report in reports] == [True, False]
    (tmp_path / "net.d" / CONFLIST_NAME).write_text("{}")
    assert (await write_conflist(tmp_path / "net.d", tmp_path / "bin")).changed


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 1", "exit 1"),
        ("kill -9 $$", "SIGKILL"),
        ("echo nonsense", "something else"),
        ("echo '{\"supportedVersions\": 7}'", "something else"),
        ("head -c 100000 /dev/zero | tr '\\0' '['", "something else"),
        ('echo \'{"supportedVersions": ["1.1.0"]}\'', "no version in common"),
        ("echo '{}'", "no version in common"),
    ],
)
async def test_a_plugin_that_cannot_be_chained_is_left_out_with_its_reason(
    tmp_path: Path, script: str, words: str
) -> None:
    plugin(tmp_path / "bin", "portmap", f"cat >/dev/null; {script}")
    speaking(tmp_path / "bin", "bandwidth", OLD)
    report = await write_conflist(tmp_path / "net.d", tmp_path / "bin")
    assert report.chained == ("bandwidth",)
    assert words in report.left_out["portmap"]


async def test_a_program_that_is_no_program_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "bin" / "portmap").mkdir(parents=True)
    report = await write_conflist(tmp_path / "net.d", tmp_path / "bin")
    assert report.chained == ()
    assert "portmap" in report.left_out


async def test_a_plugin_sees_nothing_of_the_agents_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOCK_SECRET", "x")
    program = plugin(tmp_path / "bin", "portmap", 'echo "{\\"supportedVersions\\": [\\"${FLOCK_SECRET:-none}\\"]}"')
    assert await plugin_versions(program) == {"none"}


async def test_a_missing_plugin_is_an_io_failure(tmp_path: Path) -> None:
    with pytest.raises(IOFailure):
        await plugin_versions(tmp_path / "none")
    with pytest.raises(DecodeFailure):
        await plugin_versions(plugin(tmp_path / "bin", "x", "echo"))


@given(st.dictionaries(st.sampled_from(sorted(CHAINED)), st.frozensets(st.sampled_from([*VERSIONS, "0.2.0", "9.0.0"]))))
def test_any_answers_give_a_conflist_that_every_member_understands(speaks: dict[str, frozenset[str]]) -> None:
    chained = choose_chain(speaks)
    versions = common_versions([speaks[name] for name in chained])
    rendered = json.loads(render_conflist(chained, versions))
    assert rendered["cniVersion"] in rendered["cniVersions"]
    assert rendered["cniVersion"] <= "1.0.0"
    assert all(set(rendered["cniVersions"]) <= speaks[name] for name in chained)
    assert [entry["type"] for entry in rendered["plugins"]] == ["flock", *chained]


async def test_b10_a_reader_never_sees_half_a_conflist(tmp_path: Path) -> None:
    folder = tmp_path / "net.d"
    speaking(tmp_path / "bin", "portmap", OLD)
    await write_conflist(folder, tmp_path / "bin")
    seen: list[object] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            names = [name for name in os.listdir(folder) if name.endswith((".conf", ".conflist", ".json"))]
            assert names == [CONFLIST_NAME]
            seen.append(json.loads((folder / CONFLIST_NAME).read_text())["name"])

    reading = asyncio.create_task(asyncio.to_thread(read))
    for number in range(30):
        speaking(tmp_path / "bin", "portmap", OLD if number % 2 else [*OLD, "1.1.0"])
        assert (await write_conflist(folder, tmp_path / "bin")).changed
    stop.set()
    await reading
    assert set(seen) == {"flock"}


def test_rivals_are_named_and_who_wins(tmp_path: Path) -> None:
    for name in ("00-old.conf", "05-flock.conflist", "10-calico.conflist", "99-loopback.json", "README", "x.conf.bak"):
        (tmp_path / name).write_text("{}")
    assert rivals(tmp_path) == (
        Rival(name="00-old.conf", wins=True),
        Rival(name="10-calico.conflist", wins=False),
        Rival(name="99-loopback.json", wins=False),
    )
    assert rivals(tmp_path / "none") == ()


def test_the_shim_is_put_in_place_by_rename(tmp_path: Path) -> None:
    source = tmp_path / "built"
    source.write_bytes(b"one")
    assert install_shim(source, tmp_path / "bin")
    target = tmp_path / "bin" / "flock"
    assert target.stat().st_mode & 0o777 == 0o755
    assert not install_shim(source, tmp_path / "bin")
    with target.open("rb") as executing:
        source.write_bytes(b"two")
        assert install_shim(source, tmp_path / "bin")
        assert executing.read() == b"one"
    assert target.read_bytes() == b"two"
    assert os.listdir(tmp_path / "bin") == ["flock"]
    target.chmod(0o600)
    assert install_shim(source, tmp_path / "bin")


def test_a_missing_shim_is_named(tmp_path: Path) -> None:
    with pytest.raises(IOFailure, match="is missing"):
        install_shim(tmp_path / "none", tmp_path / "bin")


async def test_the_conflist_goes_at_uninstall(tmp_path: Path) -> None:
    await write_conflist(tmp_path / "net.d", tmp_path / "bin")
    assert [remove_conflist(tmp_path / "net.d"), remove_conflist(tmp_path / "net.d")] == [True, False]
