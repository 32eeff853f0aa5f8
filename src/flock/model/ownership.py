"""How a restarted agent knows what is its own: every mark that flock leaves on a node. Pure.

The mark is decided here, before the thing is created (ARCHITECTURE.md, "Marks"). Nothing without a mark is ever changed
or removed.
"""

import base64
import hashlib
from functools import lru_cache
from pathlib import Path

from flock.model.ids import AttachmentKey, parse_container_id, parse_ifname

PROTO_HOME = 70
"""rtm_protocol of routes that stay on the node."""

PROTO_ANNOUNCED = 71
"""rtm_protocol of routes that BIRD learns and announces."""

HOST_PREFIX = "flk"
"""Host ends of pods' veths: this and 11 base32 characters."""

ALIAS_PREFIX = "flock:"

MAC_PREFIX = b"fl"
"""The first two bytes of every MAC that flock gives (66:6c, locally administered): a socket filter in the kernel tells
by them that somebody changed one."""

WORKER_THREAD = "flock-worker"
"""What threads that write policy are called (comm, at most 15 characters, an even number of them); nftables' notices
tell by it whose transaction one was."""

MASQUERADE_TABLE = "flock_masquerade"
"""The nft table, of the family ``ip``, that is there while ``masquerade4`` is on."""

RUN_DIR = Path("/run/flock")
ALLOCATIONS_DIR = RUN_DIR / "allocations"
RELEASED_DIR = RUN_DIR / "released"
DELETES_DIR = RUN_DIR / "deletes"
DAMAGED_DIR = RUN_DIR / "damaged"
ALIVE_FILE = RUN_DIR / "alive"
AGENT_SOCKET = RUN_DIR / "agent.sock"
LOCK_FILE = RUN_DIR / "agent.lock"
BIRD_SOCKET = RUN_DIR / "bird.ctl"
BIRD_CONFIG = Path("/etc/flock/bird/bird.conf")
CNI_BIN_DIR = Path("/opt/cni/bin")
CNI_CONF_DIR = Path("/etc/cni/net.d")
CONFLIST_NAME = "05-flock.conflist"
SHIM_NAME = "flock"

GATEWAY6 = "fe80::1"
GATEWAY4 = "169.254.1.1"


@lru_cache(maxsize=1024)
def host_ifname(key: AttachmentKey) -> str:
    """The host end's name, 14 bytes: a function of the attachment alone, so DEL needs no state to find it."""
    digest = hashlib.sha256(f"{key.container_id}/{key.ifname}".encode()).digest()
    return HOST_PREFIX + base64.b32encode(digest)[:11].decode().lower()


@lru_cache(maxsize=1024)
def host_ifalias(key: AttachmentKey) -> str:
    """The alias that names the attachment on its host end: at most 222 of the 255 bytes that the kernel takes."""
    return f"{ALIAS_PREFIX}{key.container_id}:{key.ifname}"


def parse_ifalias(alias: str) -> AttachmentKey | None:
    """The attachment that an alias names, or None for what isn't flock's."""
    if not alias.startswith(ALIAS_PREFIX):
        return None
    container, _, ifname = alias[len(ALIAS_PREFIX):].partition(":")
    try:
        return AttachmentKey(parse_container_id(container), parse_ifname(ifname))
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def pod_mac(key: AttachmentKey) -> bytes:
    """The pod end's MAC: 6 bytes, a function of the attachment, so that CHECK can recompute it."""
    return _mac(b"pod", key)


@lru_cache(maxsize=1024)
def host_mac(key: AttachmentKey) -> bytes:
    """The host end's MAC: 6 bytes, a function of the attachment."""
    return _mac(b"host", key)


def _mac(side: bytes, key: AttachmentKey) -> bytes:
    return MAC_PREFIX + hashlib.sha256(side + b"/" + str(key).encode()).digest()[:4]
