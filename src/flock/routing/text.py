"""Values as BIRD reads them. Pure.

Invariant: what a function here returns is one token of BIRD's language, whatever it was given; what can't be one is a
ValueError that names the rule. BIRD's strings have no escapes (conf/cf-lex.l), NUL cuts one short, and one of 4,096
bytes kills the daemon, by ``configure check``, too.
"""

from collections.abc import Iterable, Sequence

from flock.api.bgp import Community
from flock.model.family import Network

STRING_LIMIT = 200
PASSWORD_LIMIT = 80
"""TCP_MD5SIG_MAXKEYLEN (include/uapi/linux/tcp.h), in bytes; BIRD 3.1.8 dies of a longer one when it connects."""


def quoted(value: str, limit: int = STRING_LIMIT) -> str:
    """A string in quotes: without quotation marks and control characters, valid UTF-8, 1 to ``limit`` bytes."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError("must be valid UTF-8") from None
    if not 1 <= size <= limit:
        raise ValueError(f"must be 1 to {limit} bytes long, is {size}")
    if '"' in value or any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in value):
        raise ValueError("must hold no quotation mark and no control character")
    return f'"{value}"'


def described(value: str) -> str:
    """A user's word as a description: what can't stand in a string is replaced, what is too long is cut."""
    clean = "".join(char if char.isprintable() and char != '"' else "?" for char in value).strip() or "?"
    return quoted(clean.encode(errors="replace")[:STRING_LIMIT].decode(errors="ignore"))


def prefix_set(patterns: Iterable[str]) -> str:
    """A set of prefix patterns, each once and in a stable order, so that equal input gives equal bytes."""
    return f"[ {', '.join(sorted(set(patterns)))} ]"


def exactly(network: Network) -> str:
    """The pattern of one prefix alone."""
    return str(network)


def hosts_of(network: Network) -> str:
    """The pattern of every single address in a prefix."""
    bits = network.max_prefixlen
    return f"{network}{{{bits},{bits}}}"


def all_within(network: Network) -> str:
    """The pattern of a prefix and everything in it."""
    return f"{network}+"


def add_community(community: Community) -> str:
    """The filter statement that puts a community on a route."""
    kind = "bgp_large_community" if community.large else "bgp_community"
    return f"{kind}.add(({_numbers(community.parts)}));"


def _numbers(parts: Sequence[int]) -> str:
    return ",".join(str(int(part)) for part in parts)
