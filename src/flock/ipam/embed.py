"""ip-algo addresses: built from what a pod is, and read back into what it may be. Pure.

The host part of a CIDR is cut into nibbles counted from the end of the address, so that each is one hex digit of its
text: the fields from the left, then zeros where they leave room, then N in the last one. Host bits above the first
whole nibble are zero.

A namespace, pod, node or service account is the leading digits of SHA-256 over its name; an image those of its manifest
digest, so that an operator can read it off the address (I10: where no digest is known, the container ID stands in).

Invariant: ``decode(embed(x))`` finds ``x`` among its candidates.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv6Address, IPv6Network

import msgspec

from flock.api.ip_algo import Field, FieldKind, render_ip_algo
from flock.errors import InvalidConfig

_HEX = re.compile(r"[0-9a-f]{32,}")


class EmbedValues(msgspec.Struct, frozen=True, kw_only=True):
    """What an address can be made from; ``image`` is a digest with or without ``sha256:``, None where unknown."""

    namespace: str = ""
    pod: str = ""
    image: str | None = None
    container_id: str = ""
    node: str = ""
    service_account: str = ""


class Candidates(msgspec.Struct, frozen=True, kw_only=True):
    """The names among which an address is looked up."""

    namespaces: Sequence[str] = ()
    pods: Sequence[str] = ()
    images: Sequence[str] = ()
    container_ids: Sequence[str] = ()
    nodes: Sequence[str] = ()
    service_accounts: Sequence[str] = ()


class DecodedField(msgspec.Struct, frozen=True):
    """One field of an address: its hex digits, and the candidates that they fit."""

    field: Field
    digits: str
    matches: tuple[str, ...]


class Decoded(msgspec.Struct, frozen=True):
    """What an address can mean. ``plausible`` is false where a literal or the zeros in it show another origin."""

    address: IPv6Address
    cidr: IPv6Network
    fields: tuple[DecodedField, ...]
    nibble: int
    plausible: bool


def embed(cidr: IPv6Network, fields: Sequence[Field], values: EmbedValues, nibble: int) -> IPv6Address:
    """The address of a pod; ``InvalidConfig`` where the fields don't fit the CIDR's host part."""
    return IPv6Address(embed_base(cidr, fields, values) | nibble)


def embed_base(cidr: IPv6Network, fields: Sequence[Field], values: EmbedValues) -> int:
    """The address as a number, N being 0."""
    host = 0
    nibbles = _host_nibbles(cidr)
    for field, width in zip(fields, field_widths(cidr, fields), strict=True):
        host = host << 4 * width | int(_digits(field, values, width), 16)
        nibbles -= width
    return int(cidr.network_address) | host << 4 * nibbles


def field_widths(cidr: IPv6Network, fields: Sequence[Field]) -> tuple[int, ...]:
    """Nibbles for each field; ``InvalidConfig`` where there are too few."""
    room = _host_nibbles(cidr) - 1
    left = room - sum(field.width or 0 for field in fields)
    open_count = sum(field.width is None for field in fields)
    if left < open_count:
        raise InvalidConfig(
            f'ip-algo "{render_ip_algo(tuple(fields))}" doesn\'t fit {cidr}, which has {max(room, 0)} nibbles beside N'
        )
    share, extra = divmod(left, open_count) if open_count else (0, 0)
    widths: list[int] = []
    for field in fields:
        widths.append(field.width if field.width is not None else share + (extra > 0))
        extra -= field.width is None
    return tuple(widths)


def decode(address: IPv6Address, cidr: IPv6Network, fields: Sequence[Field], candidates: Candidates) -> Decoded | None:
    """What an address can mean, None where it isn't in the CIDR; ``InvalidConfig`` where the fields don't fit that."""
    if address not in cidr:
        return None
    widths = field_widths(cidr, fields)
    text = f"{int(address):032x}"
    at = 32 - _host_nibbles(cidr)
    found: list[DecodedField] = []
    for field, width in zip(fields, widths, strict=True):
        digits = text[at : at + width]
        found.append(DecodedField(field, digits, tuple(_matches(field, digits, candidates))))
        at += width
    odd = (int(address) & int(cidr.hostmask)) >> 4 * _host_nibbles(cidr)
    zeros = int(text[at:31] or "0", 16)
    literal = all(one.matches for one in found if one.field.kind is FieldKind.LITERAL)
    return Decoded(address, cidr, tuple(found), int(text[31], 16), literal and not odd and not zeros)


def prefix(cidr: IPv6Network, fields: Sequence[Field], known: Mapping[FieldKind, str]) -> IPv6Network:
    """The longest prefix that the leading known fields fix; literals are always known."""
    fixed: list[Field] = []
    for field in fields:
        if field.kind is not FieldKind.LITERAL and field.kind not in known:
            break
        fixed.append(field)
    widths = field_widths(cidr, fields)
    values = EmbedValues(
        namespace=known.get(FieldKind.NAMESPACE, ""),
        pod=known.get(FieldKind.POD, ""),
        image=known.get(FieldKind.IMAGE),
        node=known.get(FieldKind.NODE, ""),
        service_account=known.get(FieldKind.SERVICE_ACCOUNT, ""),
    )
    if len(fixed) == len(fields):
        length = 124 if fields else cidr.prefixlen
    else:
        length = 128 - 4 * (_host_nibbles(cidr) - sum(widths[: len(fixed)]))
    base = embed_base(cidr, fields, values)
    return IPv6Network((base >> 128 - length << 128 - length, max(length, cidr.prefixlen)))


def _host_nibbles(cidr: IPv6Network) -> int:
    return (128 - cidr.prefixlen) // 4


def _digits(field: Field, values: EmbedValues, width: int) -> str:
    match field.kind:
        case FieldKind.LITERAL:
            return field.digits.rjust(width, "0")
        case FieldKind.IMAGE:
            return _image_digits(values.image, values.container_id)[:width]
        case FieldKind.NAMESPACE:
            return name_digits(values.namespace)[:width]
        case FieldKind.POD:
            return name_digits(values.pod)[:width]
        case FieldKind.NODE:
            return name_digits(values.node)[:width]
        case FieldKind.SERVICE_ACCOUNT:
            return name_digits(values.service_account)[:width]


def name_digits(name: str) -> str:
    """The hex digits that stand for a name."""
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()


def _image_digits(image: str | None, container_id: str) -> str:
    known = _manifest_digits(image or "")
    if known:
        return known
    # Container IDs are 64 hex digits from every runtime of Kubernetes; others may be any word, and have a hash.
    return container_id if _HEX.fullmatch(container_id) else name_digits(container_id)


def _manifest_digits(image: str) -> str:
    """The digits of a digest, empty where it is none."""
    digest = image.removeprefix("sha256:").lower()
    return digest if _HEX.fullmatch(digest) else ""


def _matches(field: Field, digits: str, candidates: Candidates) -> Iterable[str]:
    names: Iterable[str] = ()
    match field.kind:
        case FieldKind.LITERAL:
            return (f"0x{field.digits}",) if digits == field.digits.rjust(len(digits), "0") else ()
        case FieldKind.IMAGE:
            pinned = [name for name in candidates.images if digits and _manifest_digits(name).startswith(digits)]
            return pinned + [name for name in candidates.container_ids if _image_digits(None, name).startswith(digits)]
        case FieldKind.NAMESPACE:
            names = candidates.namespaces
        case FieldKind.POD:
            names = candidates.pods
        case FieldKind.NODE:
            names = candidates.nodes
        case FieldKind.SERVICE_ACCOUNT:
            names = candidates.service_accounts
    return [name for name in names if name_digits(name).startswith(digits)]
