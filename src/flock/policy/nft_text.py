"""The table ``inet flock`` as text for ``nft -f``: the frame that every packet of a pod passes, and a program's chains.

Pure. Invariant: a text is one transaction that can be applied to whatever the table is, and leaves it whole at every
moment: chains are flushed and filled again, the table is never deleted (new flows would be dropped for a millisecond).
Maps and sets with one field are not made here (see ``netlink.nft_sets``); they must be there before.

The frame, in the order in which a packet meets it:

- ``pre`` (raw): a pod sends from its own addresses, or not at all. Link-local ones, and none at all, are for neighbour
  discovery and multicast listeners, which never leave the link.
- ``feg``: flows that a change of policy forbids carry the dead bit; replies, and errors that belong to a flow, pass
  (path MTU discovery needs them); a new flow is judged by its source's egress. An interface of flock's that is in no
  map is not known yet, and closed.
- ``fin``: the same for the destination's ingress, in a chain of another priority: an accept in one never skips the
  other.

No rule writes the packet's mark (kube-proxy's masquerading lives there), none drops ``invalid`` or demands SYN (a flow
that anycast moved would hang).
"""

from collections.abc import Iterable, Iterator

from flock.model.family import Family
from flock.model.ownership import HOST_PREFIX
from flock.policy.ruleset import BlockSet, Chain, PortMap

TABLE = "flock"
EGRESS_MAP = "egm"
INGRESS_MAP = "inm"
SOURCES = {4: "spoof4", 16: "spoof6"}
"""The sets of ``interface . address`` by the length of an address."""

DEAD = 0x80000000
_T = f"inet {TABLE}"
_OURS = f'"{HOST_PREFIX}*"'
_DEAD_RULE = f'ct mark & {DEAD:#x} != 0 counter drop comment "cut"'
_REPLIES = "ct state established,related accept"

_BASE_CHAINS = {
    "pre": ("prerouting", "raw", (
        f"iifname != {_OURS} accept",
        "iifname . ip saddr @spoof4 accept",
        "iifname . ip6 saddr @spoof6 accept",
        "ip6 saddr fe80::/10 accept",
        "ip6 saddr :: icmpv6 type { nd-neighbor-solicit, mld2-listener-report } accept",
        'counter drop comment "spoofed"',
    )),
    "feg": ("forward", "filter - 10", (
        _DEAD_RULE,
        _REPLIES,
        f"iifname vmap @{EGRESS_MAP}",
        f'iifname {_OURS} counter drop comment "unknown source interface"',
    )),
    "fin": ("forward", "filter - 9", (
        _REPLIES,
        f"oifname vmap @{INGRESS_MAP}",
        f'oifname {_OURS} counter drop comment "unknown target interface"',
    )),
}
BASE_CHAINS = frozenset(_BASE_CHAINS)
BASE_RULES = {name: len(rules) for name, (_, _, rules) in _BASE_CHAINS.items()}


def render_table() -> str:
    """The table by itself, where it may be missing."""
    return f"add table {_T}\n"


def render_sources() -> str:
    """The sets of the addresses that pods may send from, where they may be missing."""
    return _text(f"add set {_T} spoof{number} {{ type ifname . ipv{number}_addr; }}" for number in (4, 6))


def render_frame() -> str:
    """The base chains, as they must be; what they lead to must be there."""
    lines: list[str] = []
    for name, (hook, priority, rules) in _BASE_CHAINS.items():
        lines.append(f"add chain {_T} {name} {{ type filter hook {hook} priority {priority}; policy accept; }}")
        lines.extend(_filled(name, rules))
    return _text(lines)


def render_chains(ported: Iterable[tuple[str, Family]], blocks: Iterable[BlockSet], maps: Iterable[PortMap],
                  chains: Iterable[Chain]) -> str:
    """All that some programs need beside the sets with one field; ``ported`` are sets of addresses with ports."""
    blocks, maps, chains = tuple(blocks), tuple(maps), tuple(chains)
    lines = [f"add set {_T} {name} {{ type ipv{family.suffix}_addr . inet_proto . inet_service; }}"
             for name, family in ported]
    lines += [f"add chain {_T} {chain.name}" for chain in chains]
    for block in blocks:
        lines.append(f"add set {_T} {block.name} {{ type {_block_type(block)}; flags interval; }}")
        lines.append(f"flush set {_T} {block.name}")
        lines.append(f"add element {_T} {block.name} {{ {', '.join(block.elements)} }}")
    for one in maps:
        lines.append(f"flush map {_T} {one.name}")
        lines.append(f"add element {_T} {one.name} {{ {', '.join(one.elements)} }}")
    for chain in chains:
        lines.extend(_filled(chain.name, chain.rules))
    return _text(lines)


def _block_type(block: BlockSet) -> str:
    return f"inet_proto . ipv{block.family.suffix}_addr"


def _filled(chain: str, rules: Iterable[str]) -> Iterator[str]:
    yield f"flush chain {_T} {chain}"
    for rule in rules:
        yield f"add rule {_T} {chain} {rule}"


def _text(lines: Iterable[str]) -> str:
    return "\n".join((*lines, ""))
