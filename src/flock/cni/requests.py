"""What a CNI client asks for: a closed union of frozen types, one for each verb. Pure.

Sources: CNI specification 1.1.0, section 2; what runtimes put into CNI_ARGS is theirs (containerd, CRI-O: K8S_*; podman
only K8S_POD_NAME, and IP= and MAC= where the user asked for them).
"""

import msgspec

from flock.model.family import Address
from flock.model.ids import AttachmentKey


class PodArgs(msgspec.Struct, frozen=True, kw_only=True):
    """The pod that the runtime named. All empty where it named none; podman's container name is no pod."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    infra: str = ""

    def __bool__(self) -> bool:
        return bool(self.name)


class Dns(msgspec.Struct, frozen=True, omit_defaults=True):
    """``dns`` of the network configuration; it goes into the result as it came."""

    nameservers: tuple[str, ...] = ()
    domain: str = ""
    search: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class PrevInterface(msgspec.Struct, frozen=True):
    name: str
    mac: str = ""
    sandbox: str = ""


class PrevIP(msgspec.Struct, frozen=True):
    address: str
    interface: int | None = None
    gateway: str = ""


class PrevRoute(msgspec.Struct, frozen=True):
    dst: str
    gw: str = ""


class PrevResult(msgspec.Struct, frozen=True):
    """The part of ``prevResult`` that CHECK compares; later plugins of the chain may have added to it."""

    interfaces: tuple[PrevInterface, ...] = ()
    ips: tuple[PrevIP, ...] = ()
    routes: tuple[PrevRoute, ...] = ()


class AddRequest(msgspec.Struct, frozen=True, kw_only=True):
    """ADD. ``ips`` and ``mac`` are what the user asked the runtime for; empty: flock chooses."""

    key: AttachmentKey
    netns: str
    network: str
    version: str
    args: PodArgs = PodArgs()
    ips: tuple[Address, ...] = ()
    mac: bytes = b""
    dns: Dns = Dns()


class DelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """DEL. The key alone decides; ``netns_inode`` is 0 where it isn't known (only a queued DEL carries it)."""

    key: AttachmentKey
    netns: str = ""
    network: str = ""
    version: str
    netns_inode: int = 0


class CheckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """CHECK, with the result that ADD gave, as the last plugin left it."""

    key: AttachmentKey
    netns: str
    network: str
    version: str
    prev_result: PrevResult
    args: PodArgs = PodArgs()


class GcRequest(msgspec.Struct, frozen=True, kw_only=True):
    """GC. ``valid`` None: the runtime didn't say, so nothing may be removed; empty: everything of this network goes."""

    network: str
    version: str
    valid: frozenset[AttachmentKey] | None


class StatusRequest(msgspec.Struct, frozen=True, kw_only=True):
    """STATUS: can this agent serve?"""

    network: str
    version: str


class VersionRequest(msgspec.Struct, frozen=True):
    """VERSION. The shim answers it by itself; other clients may ask the agent."""


class QueryRequest(msgspec.Struct, frozen=True):
    """A question of flockctl, which no runtime asks (the shim passes CNI_* alone)."""

    name: str
    body: bytes


Verb = AddRequest | DelRequest | CheckRequest | GcRequest | StatusRequest
Request = Verb | VersionRequest | QueryRequest
