"""``masquerade4``: pods' IPv4 that leaves the cluster goes out under the node's address. Pure.

The table ``ip flock_masquerade`` is one chain with one rule: what comes from this node's pods and goes to nobody's pods
is translated, by the kernel's own choice of the address of the link that it leaves by. Apart from the table of the
policy, whose transactions come with every change of a pod or policy: one that fails or is undone must not take the
translation with it, this one must go alone when it is switched off, and both can be read, and blamed, by themselves.

Invariants: what goes to another pod keeps its source, whichever node has it. No packet's mark is
read or written, since kube-proxy's own masquerading lives there, and nothing counts, so that what was written reads
the same for ever.
Only the first packet of a flow meets the rule: a change of the table moves no flow that stands. No named set: nft 1.0.6
dies of those with one field that nft 1.1.2 and later write, for the whole namespace; anonymous ones both can read.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, collapse_addresses

from flock.api.node_config import NodeConfig, NodeConfigSpec
from flock.model.ownership import HOST_PREFIX, MASQUERADE_TABLE
from flock.netlink.conntrack import Flow

CHAIN = "postrouting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Masquerade:
    """Whose packets are translated, and to where they are not; both sorted, without overlaps."""

    sources: tuple[IPv4Network, ...]
    cluster: tuple[IPv4Network, ...]

    @property
    def mark(self) -> str:
        """The comment of the one rule: who compares it need not understand the kernel's form of the rest."""
        return f"flock {hashlib.sha256(_rule(self).encode()).hexdigest()[:16]}"


def plan_masquerade(spec: NodeConfigSpec, configs: Iterable[NodeConfig], pods: Iterable[IPv4Address],
                    known: Iterable[IPv4Network] = ()) -> Masquerade | None:
    """What a node is to translate; None where nothing is.

    ``configs`` are all NodeConfigs, this node's too; ``pods`` the addresses of its pods, some of which may be older
    than its CIDRs; ``known`` what is to be taken for the cluster's beside the NodeConfigs.
    """
    if not spec.masquerade4:
        return None
    older = (IPv4Network(address) for address in pods if not any(address in cidr for cidr in spec.cidr4))
    sources = tuple(collapse_addresses((*spec.cidr4, *older)))
    if not sources:
        return None
    others = (cidr for config in configs for cidr in config.spec.cidr4)
    return Masquerade(sources=sources, cluster=tuple(collapse_addresses((*sources, *others, *known))))


def render_masquerade(masquerade: Masquerade, *, anew: bool = False) -> str:
    """The transaction, for ``nft -f``, after which the table is this, whatever it was.

    The chain is refilled in place: to every packet it has either the old rule or the new. ``anew`` takes the table away
    before, in the same transaction, which also mends what strangers added to it; a flow that begins at that very moment
    may stay untranslated.
    """
    table = f"ip {MASQUERADE_TABLE}"
    return "\n".join([
        f"add table {table}",
        *([f"delete table {table}", f"add table {table}"] if anew else []),
        f"add chain {table} {CHAIN} {{ type nat hook postrouting priority srcnat; policy accept; }}",
        f"flush chain {table} {CHAIN}",
        f'add rule {table} {CHAIN} {_rule(masquerade)} comment "{masquerade.mark}"',
        "",
    ])


def must_begin_anew(masquerade: Masquerade, flow: Flow) -> bool:
    """Whether a flow that was never answered goes out of the cluster from a pod of this node, untranslated."""
    return (not flow.answered and flow.source == flow.reply_target
            and any(flow.source in network for network in masquerade.sources)
            and not any(flow.reply_source in network for network in masquerade.cluster))


def _rule(masquerade: Masquerade) -> str:
    return (f"ip saddr {_set(masquerade.sources)} ip daddr != {_set(masquerade.cluster)} "
            f'oifname != "{HOST_PREFIX}*" masquerade fully-random')


def _set(networks: Iterable[IPv4Network]) -> str:
    return f"{{ {', '.join(map(str, networks))} }}"
