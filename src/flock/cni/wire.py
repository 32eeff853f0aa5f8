"""From a frame to a request, with every rule of the CNI specification about its parts. Pure.

Invariant: ``parse_request`` gives a Request or raises a FlockError of the right CNI code; no text of a stranger gets
through that isn't checked. Rendering is in ``results``; both are one module to those who import this one.

Source: CNI specification 1.1.0, section 2; the codes that runtimes know: ``pkg/skel`` of containernetworking/cni.
"""

import re
from collections.abc import Mapping
from errno import errorcode

from flock.cni.frames import RawRequest
from flock.cni.netconf import VERSIONS, NetConf, parse_netconf, parse_prev_result, parse_valid, version_of
from flock.cni.requests import (
    AddRequest,
    CheckRequest,
    DelRequest,
    Dns,
    GcRequest,
    PodArgs,
    PrevResult,
    QueryRequest,
    Request,
    StatusRequest,
    Verb,
    VersionRequest,
)
from flock.cni.results import render_add, render_error, render_version
from flock.errors import IncompatibleVersion, InvalidConfig, InvalidEnvironment, InvalidNetns
from flock.model.family import Address, parse_address
from flock.model.ids import AttachmentKey, parse_container_id, parse_ifname
from flock.model.text import shown

__all__ = [
    "VERSIONS",
    "AddRequest",
    "CheckRequest",
    "DelRequest",
    "Dns",
    "GcRequest",
    "PodArgs",
    "PrevResult",
    "QueryRequest",
    "Request",
    "StatusRequest",
    "Verb",
    "VersionRequest",
    "parse_del_frame",
    "parse_request",
    "render_add",
    "render_error",
    "render_version",
    "version_of",
]

_REQUIRED = {
    "ADD": ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"),
    "DEL": ("CNI_CONTAINERID", "CNI_IFNAME"),
    "CHECK": ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"),
    "GC": (),
    "STATUS": (),
    "VERSION": (),
}
_SINCE = {"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}
_POD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,252}\Z")
_MAC = re.compile(r"[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}\Z")
_NUMBER = re.compile(r"[0-9]{1,20}\Z")


def parse_request(raw: RawRequest) -> Request:
    """Read a frame; FlockError with the CNI code of the first rule that it breaks."""
    env = raw.env
    if query := env.get("FLOCK_QUERY"):
        return QueryRequest(query, raw.stdin)
    command = env.get("CNI_COMMAND", "")
    if command not in _REQUIRED:
        raise InvalidEnvironment(f"CNI_COMMAND: {shown(command)} is not one of {', '.join(_REQUIRED)}")
    if command == "VERSION":
        return VersionRequest()
    _check_env(command, env)
    if command in ("GC", "STATUS"):
        conf = _conf(command, raw.stdin)
        if command == "STATUS":
            return StatusRequest(network=conf.name, version=conf.version)
        return GcRequest(network=conf.name, version=conf.version, valid=parse_valid(conf))
    key = _key(env)
    conf = _conf(command, raw.stdin)
    netns = env.get("CNI_NETNS", "")
    if command == "DEL":
        return DelRequest(key=key, netns=netns, network=conf.name, version=conf.version)
    return _with_netns(command, key, netns, conf, env)


def parse_del_frame(raw: RawRequest) -> DelRequest:
    """A DEL from the queue: the environment decides alone, the configuration is only looked at for its version."""
    env = raw.env
    if env.get("CNI_COMMAND") != "DEL":
        raise InvalidEnvironment(f"CNI_COMMAND: {shown(env.get('CNI_COMMAND', ''))} is not DEL")
    _check_env("DEL", env)
    inode = env.get("FLOCK_NETNS_INODE", "0")
    if not _NUMBER.match(inode):
        raise InvalidEnvironment(f"FLOCK_NETNS_INODE: {shown(inode)} is not a number")
    return DelRequest(
        key=_key(env), netns=env.get("CNI_NETNS", ""), version=version_of(raw.stdin), netns_inode=int(inode)
    )


def _check_env(command: str, env: Mapping[str, str]) -> None:
    missing = [name for name in _REQUIRED[command] if not env.get(name)]
    if missing:
        raise InvalidEnvironment(f"required env variables {', '.join(missing)} are missing for {command}")
    for name in ("CNI_NETNS", "CNI_ARGS"):
        value = env.get(name, "")
        if not value.isprintable():
            raise InvalidEnvironment(f"{name}: {shown(value)} holds bytes that aren't printable UTF-8 text")


def _key(env: Mapping[str, str]) -> AttachmentKey:
    container, ifname = env["CNI_CONTAINERID"], env["CNI_IFNAME"]
    try:
        container_id = parse_container_id(container)
    except ValueError as error:
        raise InvalidEnvironment(f"CNI_CONTAINERID: {shown(container)} {error}") from error
    try:
        return AttachmentKey(container_id, parse_ifname(ifname))
    except ValueError as error:
        raise InvalidEnvironment(f"CNI_IFNAME: {shown(ifname)} {error}") from error


def _conf(command: str, stdin: bytes) -> NetConf:
    conf = parse_netconf(stdin)
    since = _SINCE.get(command)
    if since is not None and VERSIONS.index(conf.version) < VERSIONS.index(since):
        raise IncompatibleVersion(
            f"config version {conf.version} does not allow {command}", f"{command} came with {since}"
        )
    return conf


def _with_netns(command: str, key: AttachmentKey, netns: str, conf: NetConf, env: Mapping[str, str]) -> Verb:
    args = _args(env.get("CNI_ARGS", ""))
    pod = _pod_args(args)
    if command == "CHECK":
        prev_result = parse_prev_result(conf)
        _check_netns(netns, env)
        return CheckRequest(
            key=key, netns=netns, network=conf.name, version=conf.version, prev_result=prev_result, args=pod
        )
    if conf.has_prev_result:
        raise InvalidConfig("prevResult: must not be there at ADD: flock has to be the first plugin of its chain")
    ips, mac = _wishes(args, conf)
    _check_netns(netns, env)
    return AddRequest(
        key=key,
        netns=netns,
        network=conf.name,
        version=conf.version,
        args=pod,
        ips=ips,
        mac=mac,
        dns=conf.dns or Dns(),
    )


def _check_netns(netns: str, env: Mapping[str, str]) -> None:
    """The shim opens the path; what stopped it comes as an errno."""
    number = env.get("FLOCK_NETNS_ERROR", "")
    if number:
        reason = errorcode.get(int(number)) if _NUMBER.match(number) else None
        raise InvalidNetns(f"CNI_NETNS: {shown(netns)} can't be opened", reason or shown(number))
    if not netns.startswith("/"):
        raise InvalidNetns(f"CNI_NETNS: {shown(netns)} is not an absolute path")


def _args(text: str) -> dict[str, str]:
    """CNI_ARGS in any order. Unknown keys are left alone: runtimes send IgnoreUnknown=1, and some don't."""
    args: dict[str, str] = {}
    for pair in text.split(";"):
        if not pair:
            continue
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InvalidEnvironment(f"CNI_ARGS: {shown(pair)} is not KEY=VALUE")
        args[key] = value
    return args


def _pod_args(args: Mapping[str, str]) -> PodArgs:
    if not args.get("K8S_POD_NAMESPACE") or not args.get("K8S_POD_NAME"):
        return PodArgs()
    fields = {
        "namespace": "K8S_POD_NAMESPACE",
        "name": "K8S_POD_NAME",
        "uid": "K8S_POD_UID",
        "infra": "K8S_POD_INFRA_CONTAINER_ID",
    }
    values = {field: args.get(key, "") for field, key in fields.items()}
    for field, value in values.items():
        if value and not _POD_NAME.match(value):
            raise InvalidEnvironment(
                f"CNI_ARGS: {fields[field]} {shown(value)} must hold at most 253 letters, digits, '_', '.' and '-'"
            )
    return PodArgs(**values)


def _wishes(args: Mapping[str, str], conf: NetConf) -> tuple[tuple[Address, ...], bytes]:
    """Addresses and MAC that the user asked for; a capability argument wins over CNI_ARGS."""
    runtime = conf.runtime
    try:
        if runtime is not None and runtime.ips:
            ips = tuple(_wished_ip(text) for text in runtime.ips)
        else:
            ips = tuple(_wished_ip(text) for text in args.get("IP", "").split(",") if text)
        mac = (runtime.mac if runtime is not None else None) or args.get("MAC", "")
        if mac and not _MAC.match(mac):
            raise ValueError(f"{shown(mac)} is not a MAC address")
    except ValueError as error:
        raise InvalidEnvironment(f"requested address: {error}") from error
    return ips, bytes.fromhex(mac.replace(":", ""))


def _wished_ip(text: str) -> Address:
    """An address; a prefix length behind it says nothing to a routed network."""
    return parse_address(text[:80].partition("/")[0])
