"""What goes over the agent's socket: one request frame there, one reply frame back. Pure.

Request::

    "FLK1"  u32le env length  u32le stdin length  env (NUL-terminated KEY=VALUE)  stdin

The descriptor of the pod's network namespace, where there is one, rides as SCM_RIGHTS on the first byte. Reply::

    u32le exit code  u32le body length  body (what the shim prints)

One request and one reply a connection. The client keeps its side open until the reply is whole: an end of file before
that means that nobody waits any more. ``shim/flock.c`` has the other end; in the delete queue lie the same bytes.

Invariant: how the bytes are cut into pieces changes nothing, and no bytes raise anything but DecodeFailure.
"""

import struct
from collections.abc import Mapping

import msgspec

from flock.errors import DecodeFailure
from flock.model.text import shown

MAGIC = b"FLK1"
ENV_LIMIT = 64 * 1024
STDIN_LIMIT = 4 * 1024 * 1024
REPLY_LIMIT = 64 * 1024 * 1024

_REQUEST = struct.Struct("<4sII")
_REPLY = struct.Struct("<II")


class RawRequest(msgspec.Struct, frozen=True):
    """A whole frame: the environment as text (bytes that aren't UTF-8 as lone surrogates) and stdin as it was."""

    env: Mapping[str, str]
    stdin: bytes


class RawReply(msgspec.Struct, frozen=True):
    """An exit code and what goes to stdout."""

    code: int
    body: bytes


class RequestDecoder:
    """Gathers one request. ``feed`` returns it once, when its last byte is there."""

    __slots__ = ("_buffer", "_env_length", "_total")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._env_length = 0
        self._total = 0

    def feed(self, data: bytes) -> RawRequest | None:
        """Take the next bytes; DecodeFailure as soon as they can't become a request."""
        buffer = self._buffer
        buffer += data
        if not self._total:
            if len(buffer) < _REQUEST.size:
                self._check_magic(bytes(buffer[: len(MAGIC)]))
                return None
            self._read_header()
        if len(buffer) < self._total:
            return None
        if len(buffer) > self._total:
            raise DecodeFailure("request frame is followed by more bytes", f"{len(buffer) - self._total} bytes")
        split = _REQUEST.size + self._env_length
        return RawRequest(_decode_env(bytes(buffer[_REQUEST.size : split])), bytes(buffer[split:]))

    @staticmethod
    def _check_magic(start: bytes) -> None:
        if not MAGIC.startswith(start):
            raise DecodeFailure("not a request frame", f"it starts with {shown(start)} instead of {MAGIC!r}")

    def _read_header(self) -> None:
        magic, env_length, stdin_length = _REQUEST.unpack_from(self._buffer)
        self._check_magic(magic)
        if env_length > ENV_LIMIT:
            raise DecodeFailure("environment is too large", f"{env_length} bytes; at most {ENV_LIMIT}")
        if stdin_length > STDIN_LIMIT:
            raise DecodeFailure("network configuration is too large", f"{stdin_length} bytes; at most {STDIN_LIMIT}")
        self._env_length = env_length
        self._total = _REQUEST.size + env_length + stdin_length


def decode_request(data: bytes) -> RawRequest:
    """A frame that must be whole, as it lies in the delete queue."""
    raw = RequestDecoder().feed(data)
    if raw is None:
        raise DecodeFailure("request frame is cut short", f"{len(data)} bytes")
    return raw


def _decode_env(data: bytes) -> dict[str, str]:
    if not data:
        return {}
    if not data.endswith(b"\0"):
        raise DecodeFailure("environment in the request frame doesn't end with NUL")
    env: dict[str, str] = {}
    for entry in data[:-1].decode(errors="surrogateescape").split("\0"):
        key, equals, value = entry.partition("=")
        if not key or not equals:
            raise DecodeFailure("environment in the request frame isn't KEY=VALUE", shown(entry))
        env.setdefault(key, value)
    return env


def encode_request(env: Mapping[str, str], stdin: bytes) -> bytes:
    """A request frame, for clients in Python; DecodeFailure where the other end would refuse it."""
    if any("\0" in key or "=" in key or not key or "\0" in value for key, value in env.items()):
        raise DecodeFailure("environment can't be put in a request frame", "a key or a value holds NUL or '='")
    try:
        packed = b"".join(f"{key}={value}\0".encode(errors="surrogateescape") for key, value in env.items())
    except UnicodeEncodeError as error:
        raise DecodeFailure("environment can't be put in a request frame", shown(error.object)) from error
    if len(packed) > ENV_LIMIT or len(stdin) > STDIN_LIMIT:
        raise DecodeFailure("request is too large for a frame", f"{len(packed)} and {len(stdin)} bytes")
    return _REQUEST.pack(MAGIC, len(packed), len(stdin)) + packed + stdin


def encode_reply(code: int, body: bytes) -> bytes:
    """A reply frame."""
    return _REPLY.pack(code, len(body)) + body


def decode_reply(data: bytes) -> RawReply | None:
    """The reply in all bytes received so far, or None while it isn't whole."""
    if len(data) < _REPLY.size:
        return None
    code, length = _REPLY.unpack_from(data)
    if length > REPLY_LIMIT:
        raise DecodeFailure("reply is too large", f"{length} bytes; at most {REPLY_LIMIT}")
    end = _REPLY.size + length
    if len(data) > end:
        raise DecodeFailure("reply frame is followed by more bytes", f"{len(data) - end} bytes")
    return RawReply(code, data[_REPLY.size :]) if len(data) == end else None
