"""The schema of a NodeConfig's ``status``, which the agent alone writes (``flock.cluster.status``). Pure."""

from flock.api.schema import Schema, array, choice, keyed, mapping, number, text, time

CONDITIONS_LIMIT = 32
MESSAGE_LIMIT = 32768
"""As in meta/v1 Condition."""

NAME_LIMIT = 253
REASON_LIMIT = 1024
STATUS_PEERS_LIMIT = 256
_MOST = 2**53


def status_schema() -> Schema:
    """The whole of ``status``."""
    return mapping({
        "observedGeneration": number(0, _MOST),
        "conditions": keyed(_condition(), CONDITIONS_LIMIT, "type"),
        "addresses": keyed(_addresses(), 2, "family"),
        "peersUp": text(32),
        "peers": array(_peer(), STATUS_PEERS_LIMIT),
    })


def _condition() -> Schema:
    return mapping({
        "type": text(316, 1),
        "status": choice(["True", "False", "Unknown"]),
        "observedGeneration": number(0, _MOST),
        "lastTransitionTime": time(),
        "reason": text(1024, 1),
        "message": text(MESSAGE_LIMIT),
    }, "type", "status", "lastTransitionTime", "reason", "message")


def _addresses() -> Schema:
    """``free`` is absent where there are more than anybody will use."""
    return mapping({
        "family": choice(["ipv6", "ipv4"]),
        "used": number(0, _MOST),
        "resting": number(0, _MOST),
        "free": number(0, _MOST),
    }, "family")


def _peer() -> Schema:
    return mapping({
        "name": text(NAME_LIMIT),
        "address": text(64),
        "asn": number(0, 2**32 - 1),
        "state": text(64),
        "since": time(),
        "reason": text(REASON_LIMIT),
        "imported": number(0, _MOST),
        "exported": number(0, _MOST),
    }, "name", "state")
