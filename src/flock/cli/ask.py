"""A question to the agent of this node, over the socket that the shim uses.

If the process dies on any line: nothing was changed.
"""

import socket
from typing import Any

import msgspec

from flock.cni.frames import RawReply, decode_reply, encode_request
from flock.errors import AgentUnavailable, DecodeFailure, FlockFailure
from flock.model.ownership import AGENT_SOCKET
from flock.model.text import shown

DEADLINE = 10.0


def ask(query: str, body: bytes = b"") -> Any:  # noqa: ANN401 - JSON of the agent's, shown as it is
    """The agent's answer, decoded; AgentUnavailable where nobody answers."""
    reply = _exchange(encode_request({"FLOCK_QUERY": query}, body))
    try:
        answer = msgspec.json.decode(reply.body)
    except msgspec.DecodeError as error:
        raise DecodeFailure("the agent answered with something else", shown(reply.body)) from error
    if reply.code != 0:
        raise FlockFailure(str(answer.get("msg", "")), str(answer.get("details", "")))
    return answer


def _exchange(request: bytes) -> RawReply:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(DEADLINE)
            sock.connect(str(AGENT_SOCKET))
            sock.sendall(request)
            data = b""
            while (reply := decode_reply(data)) is None:
                chunk = sock.recv(65536)
                if not chunk:
                    raise AgentUnavailable("the agent closed the connection without an answer")
                data += chunk
    except OSError as error:
        raise AgentUnavailable(f"the agent doesn't answer on {AGENT_SOCKET}", error.strerror or str(error)) from error
    return reply
