"""What the shim does with an agent, without one, and with one that misbehaves. Every run is under ASan and UBSan."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.contract.shim_world import (
    CONF,
    CONTAINER,
    Outcome,
    Received,
    Shim,
    agent,
    answering,
    env,
    read_request,
    sending,
    wait_closed,
)

from flock.agent.life import give_life_sign
from flock.cni.frames import decode_request, encode_reply, encode_request
from flock.cni.queue import DeleteQueue
from flock.cni.results import render_version
from flock.system.clock import SystemClock

ENTRY = f"{CONTAINER}:eth0"
OWN_NETNS = os.stat("/proc/self/ns/net").st_ino


def error_of(outcome: Outcome) -> tuple[int, str, str]:
    """Code, message and details; the exit status says the same code."""
    body = json.loads(outcome.stdout)
    assert body["cniVersion"] == "1.0.0"
    assert body["code"] == outcome.code
    return body["code"], body["msg"], body.get("details", "")


@contextmanager
def open_pipe() -> Iterator[int]:
    """The end to read of a pipe that nobody closes."""
    reader, writer = os.pipe()
    try:
        yield reader
    finally:
        os.close(reader)
        os.close(writer)


# Without an agent


@pytest.mark.parametrize("stdin", [b"", b"nonsense", CONF])
@pytest.mark.parametrize("others", [{}, {"CNI_NETNS": "dummy", "CNI_IFNAME": "dummy", "CNI_PATH": "dummy"}])
def test_version_depends_on_nothing(shim: Shim, stdin: bytes, others: dict[str, str]) -> None:
    assert shim.run({"CNI_COMMAND": "VERSION"} | others, stdin) == Outcome(0, render_version(), b"")


def test_version_does_not_wait_for_stdin(shim: Shim) -> None:
    with open_pipe() as reader:
        assert shim.run({"CNI_COMMAND": "VERSION"}, reader).code == 0


@pytest.mark.parametrize("environment", [{}, {"CNI_COMMAND": ""}, {"PATH": "/bin"}])
def test_without_a_command_it_says_what_it_is(shim: Shim, environment: dict[str, str]) -> None:
    outcome = shim.run(environment)
    assert (outcome.code, outcome.stdout) == (0, b"")
    assert b"CNI protocol versions supported: 0.3.1, 0.4.0, 1.0.0, 1.1.0" in outcome.stderr


@pytest.mark.parametrize("command", ["add", "FOO", "ADDD", "A" * 60_000, '\x01"\\\n', "%n%s"])
def test_an_unknown_command_is_code_4(shim: Shim, command: str) -> None:
    assert error_of(shim.run(env(command)))[0] == 4


def test_missing_variables_are_named_together(shim: Shim) -> None:
    _, msg, _ = error_of(shim.run({"CNI_COMMAND": "ADD", "CNI_IFNAME": ""}))
    assert msg.endswith(": CNI_CONTAINERID CNI_NETNS CNI_IFNAME")
    _, msg, _ = error_of(shim.run({"CNI_COMMAND": "DEL", "CNI_CONTAINERID": CONTAINER}))
    assert msg.endswith(": CNI_IFNAME")


BAD_IDS = ["some-%%id", "../x", "-a", ".a", "a b", "a/b", "a\n", "ä", "x" * 201, "x" * 60_000, "/", "..", "\xff"]
BAD_IFNAMES = ["eth/0", ".", "..", "a:b", "x" * 16, "a b", "a\tb", "a\x01", "a\x7f", "y" * 60_000, "../../../etc"]


@pytest.mark.parametrize("command", ["ADD", "DEL", "CHECK"])
@pytest.mark.parametrize(
    ("name", "value"), [*(("CNI_CONTAINERID", bad) for bad in BAD_IDS), *(("CNI_IFNAME", bad) for bad in BAD_IFNAMES)]
)
def test_b2_a_bad_identifier_is_code_4_and_touches_no_path(shim: Shim, command: str, name: str, value: str) -> None:
    code, msg, _ = error_of(shim.run(env(command, **{name: value})))
    assert code == 4
    assert msg.startswith(name)
    assert os.listdir(shim.run_dir) == []


@pytest.mark.parametrize("command", ["ADD", "CHECK", "GC"])
def test_without_an_agent_it_is_try_again_later(shim: Shim, command: str) -> None:
    code, _, details = error_of(shim.run(env(command)))
    assert code == 11
    assert details.startswith("nothing listens on ")
    assert os.listdir(shim.run_dir) == []


def test_a_socket_that_refuses_is_no_agent(shim: Shim) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(shim.run_dir / "agent.sock"))
    assert error_of(shim.run(env("ADD")))[0] == 11
    assert shim.run(env("DEL")) == Outcome(0, b"", b"")
    assert shim.queued == [ENTRY]


# The request


def test_the_frame_is_environment_and_stdin_and_the_namespace(shim: Shim) -> None:
    environment = env("ADD", CNI_ARGS="K8S_POD_NAME=web-0;IgnoreUnknown=1")
    hidden = {"PYTHONPATH": "/x", "FLOCK_QUERY": "pods", "FLOCK_NETNS_ERROR": "1", "XCNI_A": "b"}
    with agent(shim.run_dir, answering(0, b'{"a":1}')) as received:
        assert shim.run(hidden | environment) == Outcome(0, b'{"a":1}', b"")
    assert decode_request(received.data).env == environment
    assert decode_request(received.data).stdin == CONF
    assert received.inodes == [OWN_NETNS]


@pytest.mark.parametrize("command", ["DEL", "CHECK"])
def test_every_verb_with_a_container_sends_the_namespace(shim: Shim, command: str) -> None:
    with agent(shim.run_dir, answering(0, b"")) as received:
        assert shim.run(env(command)) == Outcome(0, b"", b"")
    assert received.inodes == [OWN_NETNS]


@pytest.mark.parametrize("command", ["GC", "STATUS"])
def test_other_verbs_send_none(shim: Shim, command: str) -> None:
    empty = {"CNI_CONTAINERID": "", "CNI_IFNAME": "", "CNI_NETNS": ""}
    with agent(shim.run_dir, answering(0, b"")) as received:
        assert shim.run(env(command, **empty)) == Outcome(0, b"", b"")
    assert received.inodes == []


@pytest.mark.parametrize(
    ("path", "number"),
    [("/nonexistent", "2"), ("/dev/null/x", "20"), ("/" + "x" * 300, "36"), ("/" + "x/" * 3000, "36")],
)
def test_a_namespace_that_cannot_be_opened_is_told_by_its_errno(shim: Shim, path: str, number: str) -> None:
    with agent(shim.run_dir, answering(8, b"{}")) as received:
        assert shim.run(env("ADD", CNI_NETNS=path)).code == 8
    assert decode_request(received.data).env["FLOCK_NETNS_ERROR"] == number
    assert received.inodes == []


def test_b4_del_without_a_namespace_just_asks(shim: Shim) -> None:
    for path in ("", "/nonexistent"):
        with agent(shim.run_dir, answering(0, b"")) as received:
            assert shim.run(env("DEL", CNI_NETNS=path)) == Outcome(0, b"", b"")
        assert received.inodes == []


def test_a_fifo_as_namespace_holds_nobody_up(shim: Shim, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with agent(shim.run_dir, answering(8, b"{}")) as received:
        assert shim.run(env("ADD", CNI_NETNS=str(tmp_path / "fifo"))).code == 8
    assert len(received.inodes) == 1


@pytest.mark.parametrize("size", [0, 1, 65_536, 4 * 1024 * 1024])
def test_stdin_up_to_the_limit_arrives_whole(shim: Shim, size: int) -> None:
    stdin = os.urandom(size)
    with agent(shim.run_dir, answering(0, b"ok")) as received:
        assert shim.run(env("ADD"), stdin) == Outcome(0, b"ok", b"")
    assert decode_request(received.data).stdin == stdin


def test_stdin_beyond_the_limit_is_code_6(shim: Shim) -> None:
    for excess in (1, 100_000):
        assert error_of(shim.run(env("ADD"), bytes(4 * 1024 * 1024 + excess)))[0] == 6
    with Path("/dev/zero").open("rb") as endless:
        assert error_of(shim.run(env("DEL"), endless.fileno()))[0] == 6
    assert shim.queued == []


def test_a_closed_stdin_is_an_empty_one(shim: Shim) -> None:
    with agent(shim.run_dir, answering(6, b"{}")) as received:
        assert shim.run(env("ADD"), wrapper=["sh", "-c", 'exec "$@" <&-', "sh"]).code == 6
    assert decode_request(received.data).stdin == b""
    assert received.inodes == [OWN_NETNS]


def test_a_directory_as_stdin_is_code_5(shim: Shim, tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        assert error_of(shim.run(env("ADD"), descriptor))[0] == 5
    finally:
        os.close(descriptor)


def test_an_environment_up_to_the_limit_arrives_and_beyond_is_code_4(shim: Shim) -> None:
    environment = env("ADD")
    room = 64 * 1024 - sum(len(f"{key}={value}") + 1 for key, value in environment.items())
    fits = environment | {"CNI_X": "y" * (room - len("CNI_X=") - 1)}
    with agent(shim.run_dir, answering(0, b"")) as received:
        assert shim.run(fits | {"CNI_NETNS": ""} | {"CNI_NETNS": environment["CNI_NETNS"]}).code == 0
    assert decode_request(received.data).env == fits
    for command in ("ADD", "DEL", "GC"):
        beyond = fits | {"CNI_COMMAND": command, "CNI_Y": "y"}
        assert error_of(shim.run(beyond))[0] == 4
    many = {f"CNI_{number}": "z" * 100 for number in range(2000)}
    assert error_of(shim.run(env("ADD") | many))[0] == 4
    assert shim.run({"CNI_COMMAND": "VERSION"} | many).code == 0


def test_a_namespace_error_fits_behind_a_full_environment(shim: Shim) -> None:
    environment = env("ADD", CNI_NETNS="/nonexistent")
    room = 64 * 1024 - sum(len(f"{key}={value}") + 1 for key, value in environment.items())
    fits = environment | {"CNI_X": "y" * (room - len("CNI_X=") - 1)}
    with agent(shim.run_dir, answering(8, b"{}")) as received:
        assert shim.run(fits).code == 8
    assert received.data.endswith(CONF)
    assert b"\0FLOCK_NETNS_ERROR=2\0" in received.data


def test_the_first_of_two_equal_variables_counts(shim: Shim, tmp_path: Path) -> None:
    source, program = tmp_path / "twice.c", tmp_path / "twice"
    source.write_text(
        "#include <unistd.h>\n"
        'char *e[] = {"CNI_COMMAND=VERSION", "CNI_COMMAND=ADD", "CNI_", "CNI_COMMAND", "=", "", 0};\n'
        "int main(int c, char **v) { (void)c; return execve(v[1], v + 1, e); }\n"
    )
    subprocess.run(["gcc", "-o", str(program), str(source)], check=True, timeout=30)
    assert shim.run({}, wrapper=[str(program)]) == Outcome(0, render_version(), b"")


# The reply


@pytest.mark.parametrize(
    ("code", "status"), [(0, 0), (4, 4), (11, 11), (101, 101), (255, 255), (999, 255), (2**32 - 1, 255)]
)
def test_the_reply_is_printed_and_its_code_is_the_exit_status(shim: Shim, code: int, status: int) -> None:
    body = os.urandom(300)
    with agent(shim.run_dir, answering(code, body)):
        assert shim.run(env("ADD")) == Outcome(status, body, b"")


def test_a_large_reply_comes_whole_and_a_larger_one_not_at_all(shim: Shim) -> None:
    body = os.urandom(1 << 20)
    with agent(shim.run_dir, answering(0, body)):
        assert shim.run(env("ADD")) == Outcome(0, body, b"")
    with agent(shim.run_dir, answering(0, body + b"x")):
        assert error_of(shim.run(env("ADD")))[0] == 11


def test_a_reply_in_single_bytes_is_the_same_reply(shim: Shim) -> None:
    def behave(connection: socket.socket, received: Received) -> None:
        read_request(connection, received)
        for byte in encode_reply(7, b'{"code":7}'):
            connection.sendall(bytes([byte]))

    with agent(shim.run_dir, behave):
        assert shim.run(env("ADD")) == Outcome(7, b'{"code":7}', b"")


@pytest.mark.parametrize("end", [0, 1, 4, 7, 8, 9, 15])
def test_a_reply_that_is_cut_short_is_none(shim: Shim, end: int) -> None:
    with agent(shim.run_dir, sending(encode_reply(0, b"12345678")[:end]), connections=2):
        code, _, details = error_of(shim.run(env("ADD")))
        assert (code, details) == (11, "the agent closed the connection without an answer")
        assert shim.run(env("DEL")) == Outcome(0, b"", b"")
    assert shim.queued == [ENTRY]


def test_an_agent_that_closes_at_once_is_no_answer(shim: Shim) -> None:
    with agent(shim.run_dir, lambda _connection, _received: None, connections=2):
        assert error_of(shim.run(env("ADD"), bytes(3_000_000)))[0] == 11
        assert shim.run(env("DEL")).code == 0
    assert shim.queued == [ENTRY]


def test_a_refusal_in_the_middle_of_the_request_is_still_read(shim: Shim) -> None:
    def behave(connection: socket.socket, _received: Received) -> None:
        connection.recv(100)
        connection.sendall(encode_reply(6, b"refused"))

    with agent(shim.run_dir, behave):
        assert shim.run(env("ADD"), bytes(3_000_000)) == Outcome(6, b"refused", b"")


# Deadlines


@contextmanager
def full_backlog(path: Path) -> Iterator[None]:
    """A socket that listens and never accepts, with no room left."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        waiting = []
        try:
            while True:
                client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                waiting.append(client)
                client.connect(str(path))
        except BlockingIOError:
            yield
        finally:
            for client in waiting:
                client.close()


@pytest.mark.parametrize(("command", "code"), [("ADD", 11), ("STATUS", 50)])
def test_a_full_backlog_ends_at_the_deadline(shim: Shim, command: str, code: int) -> None:
    with full_backlog(shim.run_dir / "agent.sock"):
        assert error_of(shim.run(env(command)))[::2] == (code, "the agent takes no connection")


def test_b5_del_against_a_full_backlog_is_queued(shim: Shim) -> None:
    with full_backlog(shim.run_dir / "agent.sock"):
        assert shim.run(env("DEL")) == Outcome(0, b"", b"")
    assert shim.queued == [ENTRY]


def until_closed(connection: socket.socket, received: Received) -> None:
    """Read everything and say nothing."""
    read_request(connection, received)
    wait_closed(connection)


@pytest.mark.parametrize(("command", "code"), [("ADD", 11), ("CHECK", 11), ("STATUS", 50)])
def test_a_silent_agent_ends_at_the_deadline(shim: Shim, command: str, code: int) -> None:
    with agent(shim.run_dir, until_closed):
        assert error_of(shim.run(env(command)))[::2] == (code, "the agent gave no answer in time")


def test_b5_del_with_a_silent_agent_is_queued(shim: Shim) -> None:
    with agent(shim.run_dir, until_closed) as received:
        assert shim.run(env("DEL")) == Outcome(0, b"", b"")
    assert decode_request(received.data).env == env("DEL")
    assert shim.queued == [ENTRY]


def test_an_agent_that_reads_nothing_ends_at_the_deadline(shim: Shim) -> None:
    with agent(shim.run_dir, lambda connection, _received: wait_closed(connection)):
        assert error_of(shim.run(env("ADD"), bytes(3_000_000)))[0] == 11


def test_a_trickle_does_not_stretch_the_deadline(shim: Shim) -> None:
    def behave(connection: socket.socket, received: Received) -> None:
        read_request(connection, received)
        connection.sendall(encode_reply(0, b"x" * 1000)[:500])
        wait_closed(connection)

    with agent(shim.run_dir, behave):
        outcome = shim.run(env("ADD"))
    assert error_of(outcome)[::2] == (11, "the agent gave no answer in time")


def test_a_stdin_that_nobody_closes_is_bounded(shim: Shim) -> None:
    with open_pipe() as reader:
        assert error_of(shim.run(env("ADD"), reader))[0] == 5
        assert shim.run(env("DEL"), reader) == Outcome(0, b"", b"")
    assert shim.queued == [ENTRY]


def test_a_stdout_that_nobody_reads_is_bounded(shim: Shim) -> None:
    reader, writer = os.pipe()
    body = bytes(1 << 20)
    try:
        with agent(shim.run_dir, answering(0, body)):
            process = subprocess.Popen([shim.program], env=env("ADD"), stdin=subprocess.DEVNULL, stdout=writer)
            assert process.wait(10) == 5
    finally:
        os.close(reader)
        os.close(writer)


def test_a_blocked_alarm_is_unblocked(shim: Shim) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    try:
        with agent(shim.run_dir, until_closed):
            assert error_of(shim.run(env("ADD")))[0] == 11
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})


def test_a_reader_that_is_gone_is_no_signal(shim: Shim) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        with agent(shim.run_dir, answering(0, b"result")):
            process = subprocess.Popen(
                [shim.program], env=env("ADD"), stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.DEVNULL
            )
            assert process.wait(10) == 5
    finally:
        os.close(writer)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors_do_no_harm(shim: Shim, closed: str) -> None:
    with agent(shim.run_dir, answering(0, b"result")) as received:
        outcome = shim.run(env("ADD"), wrapper=["sh", "-c", f'exec "$@" {closed}', "sh"])
    assert outcome.code == (5 if ">&-" in closed.replace("2>&-", "") else 0)
    assert received.inodes == [OWN_NETNS]


# The delete queue


def test_a_queued_delete_is_the_request_with_the_namespace_inode(shim: Shim, tmp_path: Path) -> None:
    assert shim.run(env("DEL")) == Outcome(0, b"", b"")
    entry = shim.deletes / ENTRY
    assert entry.read_bytes() == encode_request(env("DEL") | {"FLOCK_NETNS_INODE": str(OWN_NETNS)}, CONF)
    assert entry.stat().st_mode & 0o777 == 0o600
    assert shim.deletes.stat().st_mode & 0o777 == 0o700
    (queued,) = DeleteQueue(shim.deletes, tmp_path).read()
    assert queued.request.netns_inode == OWN_NETNS
    assert str(queued.request.key) == ENTRY


def test_the_run_folder_is_made_where_it_is_missing(shim: Shim, tmp_path: Path) -> None:
    shim.run_dir.rmdir()
    assert shim.run(env("DEL", CNI_NETNS="")).code == 0
    (queued,) = DeleteQueue(shim.deletes, tmp_path).read()
    assert queued.request.netns_inode == 0


def test_a_second_delete_takes_the_place_of_the_first(shim: Shim) -> None:
    for stdin in (b"first", b"second"):
        assert shim.run(env("DEL"), stdin).code == 0
    assert shim.queued == [ENTRY]
    assert decode_request((shim.deletes / ENTRY).read_bytes()).stdin == b"second"


def test_b5_more_than_256_deletes_are_queued(shim: Shim, tmp_path: Path) -> None:
    for number in range(260):
        assert shim.run(env("DEL", CNI_CONTAINERID=f"c{number}")).code == 0
    entries = DeleteQueue(shim.deletes, tmp_path).read()
    assert {entry.request.key.container_id for entry in entries} == {f"c{number}" for number in range(260)}


def test_the_longest_names_fit(shim: Shim) -> None:
    assert shim.run(env("DEL", CNI_CONTAINERID="x" * 200, CNI_IFNAME="y" * 15)).code == 0
    assert shim.queued == ["x" * 200 + ":" + "y" * 15]


@pytest.mark.parametrize("obstacle", ["run", "deletes"])
def test_a_file_in_the_folders_place_is_code_5(shim: Shim, obstacle: str) -> None:
    if obstacle == "run":
        shim.run_dir.rmdir()
        shim.run_dir.write_text("")
    else:
        shim.deletes.write_text("")
    try:
        code, _, details = error_of(shim.run(env("DEL")))
        assert code == 5
        assert "deletes can't be written" in details
    finally:
        (shim.run_dir if obstacle == "run" else shim.deletes).unlink()


def test_a_folder_in_an_entrys_place_is_code_5_and_nothing_is_left(shim: Shim) -> None:
    (shim.deletes / ENTRY).mkdir(parents=True)
    assert error_of(shim.run(env("DEL")))[0] == 5
    assert shim.queued == [ENTRY]


@pytest.mark.kernel
@pytest.mark.parametrize(("options", "words"), [("size=4k", "no space is left"), ("size=1m,ro", "read-only")])
def test_a_disk_that_takes_nothing_is_code_5_and_nothing_is_left(shim: Shim, options: str, words: str) -> None:
    folder = shim.run_dir
    script = f'mount -t tmpfs -o {options} tmpfs {folder} && "$@"; code=$?; find {folder} -type f >&2; exit $code'
    outcome = shim.run(env("DEL", PATH=os.environ["PATH"]), bytes(20_000), ["unshare", "-m", "sh", "-c", script, "sh"])
    code, _, details = error_of(outcome)
    assert code == 5
    assert words in details
    assert outcome.stderr == b""


# STATUS between two agents


@pytest.mark.parametrize(("age", "code"), [(0, 0), (50, 0), (70, 50), (86_400, 50), (-30, 0), (-7200, 50)])
def test_status_without_an_agent_goes_by_the_last_life_sign(shim: Shim, age: int, code: int) -> None:
    give_life_sign(SystemClock().uptime() - age, shim.run_dir / "alive")
    outcome = shim.run(env("STATUS"))
    assert outcome.code == code
    assert outcome.stdout == b"" if code == 0 else error_of(outcome)[0] == 50


def test_status_without_agent_and_life_sign_is_code_50(shim: Shim) -> None:
    assert error_of(shim.run(env("STATUS")))[0] == 50


def test_status_with_an_agent_is_the_agents_word(shim: Shim) -> None:
    give_life_sign(SystemClock().uptime(), shim.run_dir / "alive")
    with agent(shim.run_dir, answering(50, b"no")):
        assert shim.run(env("STATUS")) == Outcome(50, b"no", b"")


def test_status_with_a_silent_agent_goes_by_the_life_sign(shim: Shim) -> None:
    give_life_sign(SystemClock().uptime(), shim.run_dir / "alive")
    with agent(shim.run_dir, until_closed):
        assert shim.run(env("STATUS")) == Outcome(0, b"", b"")
