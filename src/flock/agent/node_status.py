"""A NodeConfig's status, put together from what its agent knows, and how much a change of it matters. Pure.

Invariant: ``essence`` has everything that somebody waits for; what it leaves out are counts, which may be late.
"""

from collections.abc import Iterable, Mapping, Sequence

from flock.agent.conditions import Condition, FamilyUse, used_addresses, written
from flock.agent.peers_status import PEERS_LIMIT, peers_up
from flock.api.node_config import NodeConfig

Status = Mapping[str, object]

_COUNTS = frozenset({"imported", "exported"})


def build_status(config: NodeConfig, known: Status, *, conditions: Iterable[Condition], uses: Iterable[FamilyUse],
                 peers: Sequence[Mapping[str, object]], wall: float) -> dict[str, object]:
    """The whole of it; ``known`` is what was read or written last, which says since when a condition is what it is."""
    former = known.get("conditions")
    return {
        "observedGeneration": config.generation,
        "conditions": written(conditions, former if isinstance(former, list) else (), config.generation, wall),
        "addresses": used_addresses(uses),
        "peersUp": peers_up(peers),
        "peers": list(peers[:PEERS_LIMIT]),
    }


def differs(status: Status, known: Status) -> bool:
    """Whether a write would change anything."""
    return any(known.get(key) != value for key, value in status.items())


def essence(status: Status) -> object:
    """What must be written at once where it changes."""
    peers = status.get("peers")
    return (
        status.get("observedGeneration"), status.get("conditions"), status.get("peersUp"),
        [{key: value for key, value in peer.items() if key not in _COUNTS} if isinstance(peer, Mapping) else peer
         for peer in peers] if isinstance(peers, Sequence) else peers,
    )
