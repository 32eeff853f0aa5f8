"""The BGP peers as a NodeConfig's status shows them: those that are configured, in order, and those left out. Pure.

What a neighbour sent as text isn't shown: anybody could write into the status of a cluster's object by it.
"""

from collections.abc import Iterable, Mapping, Sequence

from flock.api.node_config import NodeConfig
from flock.model.times import rfc3339
from flock.routing.bird_protocol import SessionState, seconds_of

PEERS_LIMIT = 256
REASON_LIMIT = 1024
_ESTABLISHED = "Established"
_LEFT_OUT = "LeftOut"


def peers_status(config: NodeConfig, refused: Mapping[str, str], sessions: Iterable[SessionState],
                 unknown: str = "BIRD doesn't know it yet") -> list[dict[str, object]]:
    """One entry for each peer of the spec, valid or not; ``unknown`` is said of those that have no session."""
    if config.spec.bgp is None:
        return []
    by_name = {session.description: session for session in sessions}
    found: list[dict[str, object]] = []
    for peer in config.spec.bgp.peers:
        entry: dict[str, object] = {"name": peer.name, "address": str(peer.address), "asn": peer.asn}
        if peer.name in refused:
            entry |= {"state": _LEFT_OUT, "reason": refused[peer.name][:REASON_LIMIT]}
        elif peer.name in by_name:
            entry |= _session(by_name[peer.name])
        else:
            entry |= {"state": "Unknown", "reason": unknown[:REASON_LIMIT]}
        found.append(entry)
    return found + [{"name": bad.name, "state": _LEFT_OUT, "reason": refused.get(bad.name, "")[:REASON_LIMIT]}
                    for bad in config.spec.bgp.bad_peers]


def _session(session: SessionState) -> dict[str, object]:
    entry: dict[str, object] = {
        "state": session.bgp_state or session.state,
        "imported": sum(channel.imported for channel in session.channels),
        "exported": sum(channel.exported for channel in session.channels),
    }
    since = seconds_of(session.since)
    if since is not None:
        entry["since"] = rfc3339(since)
    if not session.established and session.last_error:
        entry["reason"] = session.last_error[:REASON_LIMIT]
    return entry


def peers_up(peers: Sequence[Mapping[str, object]]) -> str:
    """``2/3``: how many of them are up; empty where there are none."""
    if not peers:
        return ""
    return f"{sum(peer['state'] == _ESTABLISHED for peer in peers)}/{len(peers)}"
