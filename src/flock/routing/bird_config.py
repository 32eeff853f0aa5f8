"""BIRD's configuration from typed input. Pure: equal input gives equal bytes, and equal bytes are never reloaded (R9).

What is announced isn't decided here: BIRD learns the kernel's routes of protocol 71 and announces those that the export
filter lets pass. So the file changes with a NodeConfig, a Secret or the node's addresses, never with a pod.

Options of ``protocol kernel`` never change while BIRD runs: a change withdraws everything and leaves copies behind.
``persist`` and ``graceful restart`` there and ``graceful restart on`` in the sessions are all three needed for a
restart without loss. ``metric 2048``: BIRD's default of 32 would beat a local pod's route (1024). Without ``netlink rx
buffer`` a burst of changes overflows, and the rest is seen at the next scan. ``preference = 200``: another node's equal
prefix (BGP: 100) must not stop our own announcement.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from ipaddress import IPv4Address

from flock.api.node_config import NodeConfig
from flock.model.family import FAMILIES, Family, Network, family_of
from flock.model.ownership import PROTO_ANNOUNCED
from flock.routing.peers import BirdInputs, PeerText, render_peer, why_not
from flock.routing.text import all_within, exactly, hosts_of, prefix_set

_TIME = '"%Y-%m-%dT%H:%M:%S.%6f%z"'
"""One word and with its zone, in all versions: the only form that the reader of ``show`` can split off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BirdConfig:
    """The file in parts; ``refused`` are the peers that can't be in it, by the user's name, with the reason."""

    head: str
    peers: tuple[PeerText, ...]
    refused: Mapping[str, str]

    @property
    def text(self) -> str:
        """The whole file."""
        return self.without(frozenset())

    def without(self, names: AbstractSet[str]) -> str:
        """The file without some peers, by the user's names."""
        return "\n".join([self.head, *(peer.text for peer in self.peers if peer.name not in names)])


def bird_inputs(config: NodeConfig, router_id: IPv4Address, *, drain: bool = False) -> BirdInputs:
    """What a NodeConfig says about BIRD; the caller adds what the node and its Secrets say (``replace``)."""
    spec, bgp = config.spec, config.spec.bgp
    return BirdInputs(
        node=config.name, router_id=router_id, asn=bgp.asn if bgp else 0,
        cidrs=tuple(cidr for family in FAMILIES for cidr in spec.cidrs(family)), host_routes=spec.host_routes,
        anycast_cidrs=tuple(rule.cidr for rule in spec.anycast), peers=bgp.peers if bgp else (), drain=drain)


def render_bird(inputs: BirdInputs) -> BirdConfig:
    """The configuration, without the peers that can't be rendered: one bad statement would refuse the whole file."""
    texts: dict[str, PeerText] = {}
    refused: dict[str, str] = {}
    for peer in inputs.peers:
        reason = why_not(peer, inputs)
        if reason is None:
            try:
                text = render_peer(peer, inputs)
            except ValueError as error:
                # Which of its strings it is matters less than that a password is never shown.
                reason = f"a string of this peer {error}"
            else:
                twin = texts.setdefault(text.protocol, text)
                reason = None if twin is text else f'has the address and interface of peer "{twin.name}"'
        if reason is not None:
            refused[peer.name] = reason
    return BirdConfig(head="\n".join(_head(inputs)) + "\n", refused=refused,
                      peers=tuple(texts[protocol] for protocol in sorted(texts)))


def trial_text(peer: PeerText, config: BirdConfig) -> str:
    """The smallest file with this peer in it, for ``bird -p``."""
    return f"{config.head}\n{peer.text}"


def _head(inputs: BirdInputs) -> Iterator[str]:
    yield "# Written by flock-agent; changes are overwritten."
    yield "log stderr all;"
    yield f"router id {inputs.router_id};"  # without one BIRD dies on a node without IPv4
    yield "graceful restart wait 8;"  # the default of 240 s lets one dead peer hold everything back
    yield f"timeformat protocol {_TIME};"
    yield f"timeformat base {_TIME};"
    for family in FAMILIES:
        yield f"define FLOCK_OUT{family.suffix} = {prefix_set(_announced(inputs, family))};"
        yield f"define FLOCK_OURS{family.suffix} = {prefix_set(map(all_within, _of(inputs.cidrs, family)))};"
    yield f"define FLOCK_DRAIN = {'true' if inputs.drain else 'false'};"
    yield f"filter flock_own {{ if krt_source != {PROTO_ANNOUNCED} then reject; preference = 200; accept; }}"
    yield "protocol device flock_device { scan time 10; }"
    if any(peer.bfd is not None for peer in inputs.peers):
        yield "protocol bfd flock_bfd { }"  # without it `bfd` in a peer is silently no protection
    if any(peer.multihop is not None for peer in inputs.peers):
        # Next hops of sessions over several hops are resolved in BIRD's own table.
        yield 'protocol direct flock_direct { ipv4; ipv6; interface -"flk*", "*"; }'
    for family in FAMILIES:
        yield from _kernel(family)


def _kernel(family: Family) -> Iterator[str]:
    yield f"protocol kernel flock_kernel{family.suffix} {{"
    yield "  learn; persist; graceful restart; merge paths; metric 2048; scan time 5; netlink rx buffer 33554432;"
    yield f"  ipv{family.suffix} {{"
    yield "    import filter flock_own;"
    yield "    export where source = RTS_BGP && dest = RTD_UNICAST;"
    yield "  };"
    yield "}"


def _announced(inputs: BirdInputs, family: Family) -> Iterator[str]:
    yield from map(exactly, _of(inputs.cidrs, family))
    yield from map(hosts_of, _of(inputs.host_routes, family))
    yield from map(hosts_of, _of(inputs.anycast_cidrs, family))


def _of(networks: tuple[Network, ...], family: Family) -> Iterator[Network]:
    return (network for network in networks if family_of(network) is family)
