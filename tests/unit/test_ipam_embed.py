"""ip-algo addresses, built and read back."""

import hashlib
from ipaddress import IPv6Address, IPv6Network

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from flock.api.ip_algo import Field, FieldKind, parse_ip_algo
from flock.errors import InvalidConfig
from flock.ipam.embed import Candidates, EmbedValues, decode, embed, field_widths, name_digits, prefix

NET = IPv6Network("2001:db8:0:1::/64")
DIGEST = "0123456789abcdef" * 4
NAMES = st.text(min_size=1, max_size=12)
HEX = st.text("0123456789abcdef", min_size=64, max_size=64)
VALUES = st.builds(
    EmbedValues,
    namespace=NAMES,
    pod=NAMES,
    image=st.one_of(st.none(), HEX, HEX.map(lambda digits: f"sha256:{digits}")),
    container_id=st.one_of(HEX, NAMES),
    node=NAMES,
    service_account=NAMES,
)
KINDS = st.sampled_from([kind for kind in FieldKind if kind is not FieldKind.LITERAL])
LITERALS = st.text("0123456789abcdef", min_size=1, max_size=4).map(
    lambda digits: Field(FieldKind.LITERAL, len(digits), digits)
)
FIELDS = st.tuples(
    st.lists(
        st.one_of(st.builds(Field, KINDS, st.one_of(st.none(), st.integers(1, 5))), LITERALS),
        min_size=1,
        max_size=5,
        unique_by=lambda field: (field.kind, field.digits),
    )
).map(lambda one: tuple(one[0]))
CIDRS = st.builds(
    lambda length, bits: IPv6Network((0x2001_0DB8 << 96 | bits, length), strict=False),
    st.integers(32, 124),
    st.integers(0, (1 << 96) - 1),
)


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def candidates_of(values: EmbedValues) -> Candidates:
    return Candidates(
        namespaces=["other", values.namespace],
        pods=[values.pod, "other"],
        images=[values.image] if values.image else [],
        container_ids=[values.container_id],
        nodes=[values.node],
        service_accounts=[values.service_account],
    )


def test_I10_each_field_is_where_an_operator_reads_it() -> None:
    values = EmbedValues(namespace="prod", pod="web-0", image=f"sha256:{DIGEST}")
    one = embed(NET, parse_ip_algo("namespace=6,pod=5,image=4"), values, 0xE)
    digits = f"{int(one):032x}"
    assert digits[:16] == "20010db800000001"
    assert digits[16:] == sha("prod")[:6] + sha("web-0")[:5] + "0123" + "e"


@pytest.mark.parametrize(
    ("image", "container", "expected"),
    [
        (DIGEST, "", "0123"),
        (f"sha256:{DIGEST}", "", "0123"),
        (DIGEST.upper(), "", "0123"),
        (None, "fedc" + "0" * 60, "fedc"),
        ("not-a-digest", "fedc" + "0" * 60, "fedc"),
        ("", "my_container.1", sha("my_container.1")[:4]),
    ],
)
def test_I10_the_image_is_its_digest_else_the_container_id(image: str | None, container: str, expected: str) -> None:
    one = embed(NET, parse_ip_algo("image=4"), EmbedValues(image=image, container_id=container), 0)
    assert f"{int(one):032x}"[16:20] == expected


@pytest.mark.parametrize(
    ("cidr", "text", "widths"),
    [
        ("2001:db8::/64", "namespace,pod,image", (5, 5, 5)),
        ("2001:db8::/64", "namespace,pod", (8, 7)),
        ("2001:db8::/64", "namespace,pod,image,node", (4, 4, 4, 3)),
        ("2001:db8::/64", "namespace=6,pod,image", (6, 5, 4)),
        ("2001:db8::/64", "0xab,namespace,pod", (2, 7, 6)),
        ("2001:db8::/64", "namespace=3", (3,)),
        ("2001:db8::/62", "namespace,pod", (8, 7)),
        ("2001:db8::/48", "namespace", (19,)),
        ("2001:db8::/120", "pod", (1,)),
    ],
)
def test_widths_are_shared_evenly_and_the_earlier_take_the_remainder(
    cidr: str, text: str, widths: tuple[int, ...]
) -> None:
    assert field_widths(IPv6Network(cidr), parse_ip_algo(text)) == widths


@pytest.mark.parametrize(
    ("cidr", "text"),
    [
        ("2001:db8::/64", "namespace=10,pod=6"),
        ("2001:db8::/64", "namespace=15,pod"),
        ("2001:db8::/124", "pod"),
        ("2001:db8::/127", "pod"),
        ("2001:db8::/128", "pod"),
    ],
)
def test_fields_that_do_not_fit_are_refused_with_cidr_and_room(cidr: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{text}.* doesn't fit {cidr}, which has"):
        embed(IPv6Network(cidr), parse_ip_algo(text), EmbedValues(), 0)


@given(CIDRS, FIELDS, VALUES, st.integers(0, 15))
def test_decode_of_embed_finds_what_went_in(
    cidr: IPv6Network, fields: tuple[Field, ...], values: EmbedValues, nibble: int
) -> None:
    try:
        one = embed(cidr, fields, values, nibble)
    except InvalidConfig:
        reject()
    assert one in cidr
    found = decode(one, cidr, fields, candidates_of(values))
    assert found is not None
    assert found.plausible
    assert found.nibble == nibble
    expected = {
        FieldKind.NAMESPACE: values.namespace,
        FieldKind.POD: values.pod,
        FieldKind.NODE: values.node,
        FieldKind.SERVICE_ACCOUNT: values.service_account,
        FieldKind.IMAGE: values.image or values.container_id,
    }
    for field in found.fields:
        if field.field.kind is FieldKind.LITERAL:
            assert field.matches
        else:
            assert expected[field.field.kind] in field.matches


@given(CIDRS, FIELDS, VALUES, st.integers(0, 15), st.integers(0, 5))
def test_the_prefix_of_what_is_known_holds_the_address(
    cidr: IPv6Network, fields: tuple[Field, ...], values: EmbedValues, nibble: int, known_count: int
) -> None:
    known = {
        FieldKind.NAMESPACE: values.namespace,
        FieldKind.POD: values.pod,
        FieldKind.NODE: values.node,
        FieldKind.SERVICE_ACCOUNT: values.service_account,
        FieldKind.IMAGE: values.image or DIGEST,
    }
    kept = {kind: text for kind, text in known.items() if kind in {field.kind for field in fields[:known_count]}}
    try:
        one = embed(cidr, fields, EmbedValues(**{**as_dict(values), "image": values.image or DIGEST}), nibble)
    except InvalidConfig:
        reject()
    found = prefix(cidr, fields, kept)
    assert one in found
    assert found.subnet_of(cidr)


def as_dict(values: EmbedValues) -> dict[str, str]:
    return {name: getattr(values, name) for name in values.__struct_fields__}


def test_prefix_of_a_namespace_on_a_node() -> None:
    fields = parse_ip_algo("namespace=6,pod=5,image=4")
    digits = sha("prod")[:6]
    assert prefix(NET, fields, {FieldKind.NAMESPACE: "prod"}) == IPv6Network(
        (int(NET.network_address) | int(digits, 16) << 40, 88)
    )
    # A field behind one that isn't known fixes nothing.
    assert prefix(NET, fields, {FieldKind.POD: "web-0"}) == NET
    assert prefix(NET, parse_ip_algo("0xab,pod"), {}).prefixlen == 72
    assert prefix(NET, parse_ip_algo("pod=2"), {FieldKind.POD: "web-0"}).prefixlen == 124
    assert prefix(NET, (), {}) == NET


def test_decode_shows_leading_digits_and_says_what_is_not_ours() -> None:
    fields = parse_ip_algo("0xab,namespace=4")
    one = embed(NET, fields, EmbedValues(namespace="prod"), 3)
    known = Candidates(namespaces=["prod", "dev"])
    found = decode(one, NET, fields, known)
    assert found is not None
    assert [(field.digits, field.matches) for field in found.fields] == [
        ("ab", ("0xab",)),
        (name_digits("prod")[:4], ("prod",)),
    ]
    assert decode(IPv6Address("2001:db8:0:2::1"), NET, fields, known) is None
    for stranger in (int(one) ^ 1 << 60, int(one) ^ 1 << 4):
        odd = decode(IPv6Address(stranger), NET, fields, known)
        assert odd is not None
        assert not odd.plausible


def test_a_short_image_candidate_is_no_match() -> None:
    fields = parse_ip_algo("image=4")
    one = embed(NET, fields, EmbedValues(image=DIGEST), 0)
    found = decode(one, NET, fields, Candidates(images=["", "0123", "busybox", f"sha256:{DIGEST}"]))
    assert found is not None
    assert found.fields[0].matches == (f"sha256:{DIGEST}",)
