"""The network configuration on stdin: decoded once, whatever a stranger wrote. Pure.

Invariant: any bytes give a NetConf, DecodeFailure (6: not JSON), IncompatibleVersion (1), UnsupportedField (2) or
InvalidConfig (7: JSON with a wrong value). Keys that flock doesn't know are left alone: runtimes add their own.

Source: CNI specification 1.1.0, section 1 (configuration), section 2 (GC's keys; libcni also sends the older spelling).
"""

from typing import TypeVar

import msgspec

from flock.cni.requests import Dns, PrevResult
from flock.errors import DecodeFailure, IncompatibleVersion, InvalidConfig, UnsupportedField
from flock.model.ids import AttachmentKey, parse_container_id, parse_ifname, parse_network_name
from flock.model.text import shown

VERSIONS = ("0.3.1", "0.4.0", "1.0.0", "1.1.0")
"""The versions of the CNI specification that flock speaks, oldest first."""

DEFAULT_VERSION = "1.0.0"
"""The version of an error about a configuration that couldn't be read."""

_NO_VERSION = "0.1.0"
"""What a configuration without cniVersion means (specification 0.2.0)."""


class Attached(msgspec.Struct, frozen=True):
    """One entry of GC's list."""

    container_id: str = msgspec.field(name="containerID")
    ifname: str


class RuntimeConfig(msgspec.Struct, frozen=True):
    """Capability arguments that flock could be given."""

    ips: tuple[str, ...] | None = None
    mac: str | None = None


class NetConf(msgspec.Struct, frozen=True):
    """The fields that flock reads."""

    version: str = msgspec.field(name="cniVersion", default=_NO_VERSION)
    name: str = ""
    type: str = ""
    ipam: dict[str, msgspec.Raw] | None = None
    dns: Dns | None = None
    runtime: RuntimeConfig | None = msgspec.field(name="runtimeConfig", default=None)
    prev_result: msgspec.Raw = msgspec.field(name="prevResult", default=msgspec.Raw())
    valid: tuple[Attached, ...] | None = msgspec.field(name="cni.dev/valid-attachments", default=None)
    valid_older: tuple[Attached, ...] | None = msgspec.field(name="cni.dev/attachments", default=None)

    @property
    def has_prev_result(self) -> bool:
        return bytes(self.prev_result).strip() not in (b"", b"null")


class _VersionOnly(msgspec.Struct):
    version: str = msgspec.field(name="cniVersion", default=DEFAULT_VERSION)


_netconf = msgspec.json.Decoder(NetConf)
_version_only = msgspec.json.Decoder(_VersionOnly)
_prev_result = msgspec.json.Decoder(PrevResult)

T = TypeVar("T")


def parse_netconf(stdin: bytes) -> NetConf:
    """Decode and check what every verb needs: a version that flock speaks and a network name."""
    conf = _decode(_netconf, stdin, "network configuration")
    if conf.version not in VERSIONS:
        raise IncompatibleVersion(
            f"incompatible CNI versions: the configuration has cniVersion {shown(conf.version)}",
            f"flock supports {', '.join(VERSIONS)}",
        )
    try:
        parse_network_name(conf.name)
    except ValueError as error:
        raise InvalidConfig(f"name: {shown(conf.name)} {error}") from error
    if conf.ipam:
        raise UnsupportedField(
            f"ipam: {shown(sorted(conf.ipam))} is not supported: flock hands out addresses itself, from NodeConfig"
        )
    return conf


def parse_prev_result(conf: NetConf) -> PrevResult:
    """``prevResult`` of CHECK, which must be there."""
    if not conf.has_prev_result:
        raise InvalidConfig("prevResult: is missing; CHECK needs the result of ADD")
    return _decode(_prev_result, bytes(conf.prev_result), "prevResult")


def parse_valid(conf: NetConf) -> frozenset[AttachmentKey] | None:
    """GC's list. None where neither key is there (or is null): unknown means valid. Both keys: what either lists."""
    if conf.valid is None and conf.valid_older is None:
        return None
    return frozenset(_attached(entry) for entry in (*(conf.valid or ()), *(conf.valid_older or ())))


def version_of(stdin: bytes) -> str:
    """The version to put on an error, from a configuration that may be anything."""
    try:
        version = _decode(_version_only, stdin, "").version
    except (DecodeFailure, InvalidConfig):
        return DEFAULT_VERSION
    return version if version in VERSIONS else DEFAULT_VERSION


def _attached(entry: Attached) -> AttachmentKey:
    try:
        return AttachmentKey(parse_container_id(entry.container_id), parse_ifname(entry.ifname))
    except ValueError as error:
        raise InvalidConfig(
            f"cni.dev/valid-attachments: containerID {shown(entry.container_id)}, ifname {shown(entry.ifname)}: {error}"
        ) from error


def _decode(decoder: msgspec.json.Decoder[T], data: bytes, what: str) -> T:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise InvalidConfig(f"{what}: {_plain(str(error))}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeFailure(f"{what} is not JSON", _plain(str(error))) from error
    except RecursionError as error:
        raise DecodeFailure(f"{what} is nested too deeply") from error


def _plain(text: str, limit: int = 200) -> str:
    """The decoder's own words, which may quote a key that a stranger chose."""
    return "".join(char if char.isprintable() else "?" for char in text[:limit])
