"""What flock prints for a CNI client: results and errors in the shape of each version. Pure.

Source: CNI specification 1.1.0, section 5 (Success, Error, Version); 0.4.0 for ``version`` of an IP. ``mtu`` of an
interface came with 1.1.0. podman wants a MAC on every interface with a sandbox, and IPs that name their interface;
go-cni wants the first IP that kubelet shall see to come first.
"""

import re

import msgspec

from flock.cni.netconf import DEFAULT_VERSION, VERSIONS
from flock.cni.requests import Dns
from flock.errors import FlockError
from flock.model.attachment import Attachment
from flock.model.family import FAMILIES, Family
from flock.model.ownership import GATEWAY4, GATEWAY6, host_mac, pod_mac

MESSAGE_LIMIT = 1000
"""Bytes of ``msg``; kubelet writes it into an Event, whose message the API server limits to 1,024."""

_SUCCESS_TO_GO_CNI = re.compile("not found|no such file or directory", re.IGNORECASE)
_GATEWAY = {Family.IPV6: GATEWAY6, Family.IPV4: GATEWAY4}
_ANYWHERE = {Family.IPV6: "::/0", Family.IPV4: "0.0.0.0/0"}
_POD_INTERFACE = 1
"""The pod's end in ``interfaces``; the host's is 0, as in the reference plugins."""


class _Interface(msgspec.Struct, omit_defaults=True):
    name: str
    mac: str
    sandbox: str = ""
    mtu: int = 0


class _IP(msgspec.Struct, omit_defaults=True):
    address: str
    gateway: str
    interface: int = -1
    version: str = ""


class _Route(msgspec.Struct):
    dst: str
    gw: str


class _Result(msgspec.Struct, rename={"version": "cniVersion"}):
    version: str
    interfaces: list[_Interface]
    ips: list[_IP]
    routes: list[_Route]
    dns: Dns


class _Error(msgspec.Struct, omit_defaults=True, rename={"version": "cniVersion"}):
    version: str
    code: int
    msg: str
    details: str = ""


class _Version(msgspec.Struct, rename={"version": "cniVersion", "supported": "supportedVersions"}):
    version: str
    supported: tuple[str, ...]


_encoder = msgspec.json.Encoder()


def render_add(version: str, attachment: Attachment, dns: Dns | None = None) -> bytes:
    """ADD's result: IPv6 first, the host's end and the pod's."""
    key = attachment.key
    mtu = attachment.mtu if version == "1.1.0" else 0
    with_family = version.startswith("0.")
    ips, routes = [], []
    for family in FAMILIES:
        # The text as it is stored, which is canonical: parsing and printing it again would be half of this function.
        address = attachment.ip6 if family is Family.IPV6 else attachment.ip4
        if address is None:
            continue
        gateway = _GATEWAY[family]
        label = family.suffix if with_family else ""
        ips.append(_IP(f"{address}/{family.bits}", gateway, _POD_INTERFACE, label))
        routes.append(_Route(_ANYWHERE[family], gateway))
    host = _Interface(attachment.host_ifname, _colons(host_mac(key)), "", mtu)
    pod = _Interface(attachment.ifname, _colons(pod_mac(key)), attachment.netns, mtu)
    return _encoder.encode(_Result(version, [host, pod], ips, routes, dns or Dns()))


def render_error(version: str, error: FlockError, *, deleting: bool = False) -> bytes:
    """An error, cut so that it fits in an Event.

    go-cni takes any failed DEL whose text holds "not found" (or "no such file or directory") for a success.
    """
    version = version if version in VERSIONS else DEFAULT_VERSION
    texts = [_cut(error.msg), _cut(error.details)]
    if deleting:
        texts = [_SUCCESS_TO_GO_CNI.sub("missing", text) for text in texts]
    return _encoder.encode(_Error(version, error.code, *texts))


def render_version() -> bytes:
    """What VERSION prints; the shim has the same text built in."""
    return _encoder.encode(_Version(VERSIONS[-1], VERSIONS))


def _cut(text: str) -> str:
    data = text[:MESSAGE_LIMIT].encode(errors="backslashreplace")
    if len(text) <= MESSAGE_LIMIT and len(data) <= MESSAGE_LIMIT:
        return data.decode()
    return data[: MESSAGE_LIMIT - 3].decode(errors="ignore") + "…"


def _colons(mac: bytes) -> str:
    return mac.hex(":")
