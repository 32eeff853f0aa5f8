"""What the fuzzers call: bytes go in, and anything but a FlockError or a broken invariant comes out as an exception.

One function for each input that strangers write. They are plain Python, so that `make test` runs them without a fuzzer.
"""

import json
import struct

from flock.cni.frames import MAGIC, RawRequest, RequestDecoder, decode_reply, encode_request
from flock.cni.netconf import VERSIONS, version_of
from flock.cni.results import render_error
from flock.cni.wire import parse_del_frame, parse_request
from flock.errors import DecodeFailure, FlockError

ENV = {
    "CNI_CONTAINERID": "0123456789abcdef",
    "CNI_IFNAME": "eth0",
    "CNI_NETNS": "/run/netns/x",
    "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b",
}
HEADER = 12
CODES_OF_A_REQUEST = {1, 2, 4, 6, 7, 8}


def frames(data: bytes) -> None:
    """The first byte says where the rest is cut; the result must not depend on it.

    The rest is taken as a frame, and as environment and stdin of a frame whose lengths are right.
    """
    if not data:
        return
    cut, data = data[0] * len(data) // 256, data[1:]
    _frame(data, cut)
    content = data[HEADER:]
    end = content.rfind(b"\0", 0, cut) + 1
    _frame(struct.pack("<4sII", MAGIC, end, len(content) - end) + content, cut)


def _frame(data: bytes, cut: int) -> None:
    whole, split = _decode([data]), _decode([data[:cut], data[cut:]])
    assert whole == split, "a frame depends on how it is cut"
    if isinstance(whole, RawRequest):
        assert _decode([encode_request(whole.env, whole.stdin)]) == whole, "a frame changes on its way"
        _judge(whole)
    try:
        decode_reply(data)
    except DecodeFailure:
        return


def netconf(data: bytes) -> None:
    """Any bytes on stdin, for every verb."""
    for command in ("ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"):
        _judge(RawRequest(ENV | {"CNI_COMMAND": command}, data))
    assert version_of(data) in VERSIONS


def _decode(pieces: list[bytes]) -> RawRequest | str | None:
    decoder = RequestDecoder()
    result: RawRequest | None = None
    for piece in pieces:
        # Bytes after a whole frame are refused when they come along with it, and seen by the connection otherwise.
        if result is not None:
            return "refused" if piece else result
        try:
            result = decoder.feed(piece)
        except DecodeFailure:
            return "refused"
    return result


def _judge(raw: RawRequest) -> None:
    for parse in (parse_request, parse_del_frame):
        try:
            parse(raw)
        except FlockError as error:
            _judge_error(error)


def _judge_error(error: FlockError) -> None:
    assert error.code in CODES_OF_A_REQUEST, f"code {error.code}"
    body = json.loads(render_error("1.1.0", error))
    assert "\n" not in body["msg"], "a message of several lines"
    assert len(body["msg"].encode()) <= 1000, "a message that fits in no Event"
