"""Replies and environments that nobody means well with: no buffer runs over, nothing half is printed."""

import json
import os
import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.shim_world import Outcome, Shim, agent, env, sending

from flock.cni.frames import decode_reply, encode_reply
from flock.errors import DecodeFailure
from flock.model.ids import parse_container_id, parse_ifname

quick = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

replies = st.one_of(
    st.binary(max_size=64),
    st.builds(lambda code, length, body: code.to_bytes(4, "little") + length.to_bytes(4, "little") + body,
              st.integers(0, 2**32 - 1), st.integers(0, 40) | st.integers(0, 2**32 - 1), st.binary(max_size=40)),
    st.builds(encode_reply, st.integers(0, 300), st.binary(max_size=2000)),
)  # fmt: skip


def whole(data: bytes) -> Outcome | None:
    """What a shim prints of these bytes, if a reply is in them."""
    if len(data) < 8:
        return None
    end = 8 + int.from_bytes(data[4:8], "little")
    try:
        reply = decode_reply(data[:end])
    except DecodeFailure:
        return None
    return None if reply is None else Outcome(min(reply.code, 255), reply.body, b"")


@quick
@given(replies)
def test_a_reply_is_printed_whole_or_not_at_all(shim: Shim, data: bytes) -> None:
    with agent(shim.run_dir, sending(data)):
        outcome = shim.run(env("ADD"))
    expected = whole(data)
    if expected is None:
        assert json.loads(outcome.stdout)["code"] == outcome.code == 11
    else:
        assert outcome == expected


names = st.sampled_from(
    [b"CNI_COMMAND", b"CNI_CONTAINERID", b"CNI_IFNAME", b"CNI_NETNS", b"CNI_ARGS", b"CNI_", b"CNI_CONTAINERIDX", b"CNI"]
)
texts = st.one_of(
    st.binary(max_size=30).map(lambda data: data.replace(b"\0", b"")),
    st.sampled_from([b"ADD", b"DEL", b"CHECK", b"GC", b"STATUS", b"VERSION", b"abc", b"eth0", b"/proc/self/ns/net"]),
    st.integers(0, 70_000).map(lambda size: b"x" * size),
)


@quick
@given(st.dictionaries(names, texts, max_size=6))
def test_any_environment_gives_silence_or_one_error(shim: Shim, environment: dict[bytes, bytes]) -> None:
    outcome = shim.run(environment)
    if outcome.code == 0:
        assert outcome.stdout == b"" or "supportedVersions" in json.loads(outcome.stdout)
    else:
        assert json.loads(outcome.stdout)["code"] == outcome.code
        assert outcome.code in {4, 11, 50}


# ASCII alone: what lies beyond is the agent's to judge, which knows Unicode.
near_identifiers = st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1, max_size=18) | st.text(
    st.sampled_from("aZ0_.-%/: "), min_size=1, max_size=210
)


@pytest.mark.parametrize(("name", "parse"), [("CNI_CONTAINERID", parse_container_id), ("CNI_IFNAME", parse_ifname)])
@quick
@given(near_identifiers)
def test_shim_and_agent_agree_on_identifiers(shim: Shim, name: str, parse: object, value: str) -> None:
    assert callable(parse)
    try:
        parse(value)
        expected = 11
    except ValueError:
        expected = 4
    assert shim.run(env("ADD", **{name: value})).code == expected


@pytest.mark.soak
def test_replies_for_hours(shim: Shim) -> None:
    source = random.Random()
    seconds = float(os.environ.get("FLOCK_FUZZ_SECONDS", "60"))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        length = source.choice([0, 1, 20, 2**20, 2**20 + 1, 2**31, 2**32 - 1, source.randrange(100_000)])
        body = source.randbytes(source.choice([0, length % 100_000, source.randrange(3000), 2**20, 2**20 + 1]))
        data = source.randbytes(4) + length.to_bytes(4, "little") + body
        data = data[: source.choice([len(data), source.randrange(len(data) + 1)])]
        with agent(shim.run_dir, sending(data)):
            outcome = shim.run(env("ADD"))
        expected = whole(data)
        assert outcome.code == 11 if expected is None or len(expected.stdout) > 2**20 else outcome == expected, data[
            :64
        ]
