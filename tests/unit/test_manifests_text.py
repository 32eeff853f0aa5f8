"""The text of manifests: what it says, where its fields stand, and that nothing in it can do harm."""

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flock.api.node_config import NodeConfig
from flock.cluster.documents import FILE_LIMIT, Lines, read_documents
from flock.cluster.manifest_file import FileState, assemble, is_manifest, read_file
from flock.cluster.yaml_values import Document, ManifestError

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\n"
NODE = """apiVersion: flock.fritzlab.net/v1alpha1
kind: NodeConfig
metadata: {name: n1}
spec:
  cidr6: ["2001:db8::/64"]
  bgp:
    asn: 64513
    peers:
      - {name: a, address: "2001:db8:f::1", asn: %s}
      - {name: b, address: "2001:db8:f::2", asn: 64512}
"""


def read(text: str, before: FileState | None = None, file: str = "x.yaml") -> FileState:
    return read_file(file, text.encode(), before)


def told(state: FileState) -> list[str]:
    return [str(problem) for problem in state.problems]


def value(text: str) -> object:
    (document,) = read_documents(text.encode(), as_json=False)
    return document.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yes", "yes"),
        ("no", "no"),
        ("true", True),
        ("False", False),
        ('"true"', "true"),
        ("7", 7),
        ("-7", -7),
        ("0x1F", 31),
        ("0o17", 15),
        ("017", 17),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("1:30", "1:30"),
        ("2001:db8::1", "2001:db8::1"),
        ("2026-11-30", "2026-11-30"),
        (".inf", ".inf"),
        ("!!str 7", "7"),
        ("[a, null, ~]", ["a", None, None]),
        ("{a: {b: [1]}}", {"a": {"b": [1]}}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("9" * 5000, "9" * 5000),
        ("|\n  a\n  b\n", "a\nb\n"),
    ],
)
def test_scalars_are_read_as_yaml_1_2_does(text: str, expected: object) -> None:
    assert value(text) == expected


def test_documents_are_numbered_and_know_their_lines() -> None:
    found = read_documents(b"# c\na: 1\n---\n---\n\nb: 2\n...\n---\nc: 3\n", as_json=False)
    assert [(one.number, one.line, one.value) for one in found] == [
        (1, 2, {"a": 1}),
        (3, 6, {"b": 2}),
        (4, 9, {"c": 3}),
    ]
    assert read_documents(b"", as_json=False) == read_documents(b"# nothing\n---\n", as_json=False) == []


def test_a_field_is_found_by_its_path_or_the_nearest_around_it() -> None:
    text = b"x: 1\n---\nspec:\n  bgp:\n    peers:\n      - name: a\n      - asn: 1\n        name: b\n"
    (_, document) = read_documents(text, as_json=False)
    lines = Lines(text)
    assert lines.find(document, "spec.bgp.peers[1].name") == 8
    assert lines.find(document, "spec.bgp.peers[1].bfd.interval") == 5
    assert lines.find(document, "spec.foo") == 3
    assert lines.find(document, "foo") == 3
    assert Lines(b"\xff").find(Document(1, 1, {}), "a.b") == 1


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: [", 3, "is not YAML"),
        ("a: 1\na: 2", 2, "has the key 'a' twice"),
        ("a:\n  <<: {b: 1}", 2, "merge key"),
        ("a: !!python/object:os.system {}", 1, "has the tag"),
        ("a: !!set {b, c}", 1, "has the tag"),
        ("a: !ours b", 1, "has the tag"),
        ("a: *b", 1, "alias"),
        ("? [a]\n: b", 1, "as a key"),
        ("? {a: 1}\n: b", 1, "as a key"),
        ("a: \x00", 1, "is not YAML"),
        ("\n\na: \x07", 3, "is not YAML"),
        ("[" * 500, 1, "is nested deeper than 100 levels"),
        ("[" * 5_000_000, 1, "nest"),
        ("- " * 500_000, 1, "nest"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(ManifestError, match=message) as caught:
        read_documents(text.encode(), as_json=False)
    assert caught.value.line == line


def test_bytes_that_are_no_text_and_a_mark_at_their_beginning() -> None:
    with pytest.raises(ManifestError, match="UTF-8") as caught:
        read_documents(b"a: 1\nb: \xff\n", as_json=False)
    assert caught.value.line == 2
    assert value("\ufeffa: 1") == {"a": 1}
    with pytest.raises(ManifestError, match="larger than"):
        read_documents(b" " * (FILE_LIMIT + 1), as_json=False)


def test_aliases_count_as_what_they_stand_for() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(ManifestError, match="holds more than 1000000 values"):
        read_documents("\n".join(lines).encode(), as_json=False)
    assert isinstance(value("\n".join(lines[:4])), dict)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('{"a": 1,\n "b": }', 2, "is not JSON"),
        ('{"a": 1, "a": 2}', 1, "the key 'a' is there twice"),
        ('{"a": NaN}', 1, "NaN is no number"),
        ("[" * 90_000 + "]" * 90_000, 1, "is nested deeper than 100 levels"),
        ("[" * 200 + "]" * 200, 1, "is nested deeper than 100 levels"),
        ("9" * 5000, 1, "is not JSON"),
    ],
)
def test_json_has_its_own_rules(text: str, line: int, message: str) -> None:
    with pytest.raises(ManifestError, match=message) as caught:
        read_documents(text.encode(), as_json=True)
    assert caught.value.line == line


def test_json_with_tabs_and_surrogate_pairs() -> None:
    (document,) = read_documents(b'{\n\t"a": "\\ud83d\\ude00",\n\t"b": "\\/"}', as_json=True)
    assert document.value == {"a": "\U0001f600", "b": "/"}


NUMBER = re.compile(r"\s*[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?\s*|\s*0o[0-7]+\s*")
"""A number of YAML 1.2, which PyYAML (1.1) leaves unquoted where 1.1 knows none: ``0E0``."""

TEXT = st.text(st.characters(codec="utf-8"), max_size=20).filter(lambda text: not NUMBER.fullmatch(text))
PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**9), 10**9), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=20,
)


@given(PLAIN)
def test_what_yaml_and_json_write_is_read_back(plain: object) -> None:
    if plain is None or "<<" in json.dumps(plain):
        return
    assert [one.value for one in read_documents(json.dumps(plain).encode(), as_json=True)] == [plain]
    text = yaml.safe_dump(plain, default_style='"', allow_unicode=True)
    dumped = yaml.safe_load(text)
    assert [one.value for one in read_documents(yaml.safe_dump(dumped).encode(), as_json=False)] == [dumped]


@given(st.one_of(st.binary(), st.text().map(str.encode), st.text("{}[]:,-&*!?|>'\"% \n#ab").map(str.encode)))
def test_any_bytes_are_documents_or_a_manifest_error(data: bytes) -> None:
    for as_json in (False, True):
        try:
            documents = read_documents(data, as_json=as_json)
        except ManifestError as error:
            refused = error
        else:
            assert all(one.line >= 1 for one in documents)
            continue
        assert refused.document >= 1
        assert refused.line >= 1


@given(st.one_of(st.binary(), PLAIN.map(lambda plain: json.dumps(plain).encode())))
def test_any_bytes_are_a_file_state(data: bytes) -> None:
    for file in ("x.yaml", "x.json"):
        state = read_file(file, data)
        assert not (state.objects and state.problems)


def test_files_that_are_read() -> None:
    assert all(map(is_manifest, ["a.yaml", "b.yml", "c.json"]))
    assert not any(map(is_manifest, [".a.yaml", "a.yaml.swp", "a.txt", ".#a.yaml", "yaml", "..data", "a.YAML~"]))


def test_every_kind_and_a_list_of_them() -> None:
    text = NODE % 64512 + "---\n" + POD % "web" + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: prod}\n"
    text += (
        "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny}\nspec: {podSelector: {}}\n"
    )
    state = read(text)
    assert told(state) == []
    assert [one.identity for one in state.objects] == [
        ("NodeConfig", "", "n1"),
        ("Pod", "default", "web"),
        ("Namespace", "", "prod"),
        ("NetworkPolicy", "default", "deny"),
    ]
    snapshot = assemble({"x.yaml": state}, "n1")
    assert snapshot.complete
    assert snapshot.policies["default", "deny"].ingress == ()
    assert snapshot.pods["default", "web"].node_name == "n1"
    listed = {"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(POD % name) for name in "ab"]}
    state = read(json.dumps(listed), file="x.json")
    assert [one.identity[2] for one in state.objects] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Service\napiVersion: v1\n", 'line 1: kind "Service" is not one that a manifests folder may hold'),
        ("a: 1\n", "line 1: kind null is not one that"),
        ("kind: [Pod]\n", "line 1: kind a list is not one that"),
        ("just words\n", 'line 1: "just words" is no object'),
        ("kind: Pod\napiVersion: v2\nmetadata: {name: a}\n", 'line 2: apiVersion "v2" must be "v1"'),
        ("kind: Pod\nmetadata: {name: a}\n", 'line 1: apiVersion must be "v1"'),
        ("apiVersion: v1\nkind: Pod\nmetadata:\n  name: A\n", 'line 4: Pod: metadata.name "A" must be'),
        (
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {}\n",
            "line 3: NetworkPolicy: metadata.name is required",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n    flock.fritzlab.net/ipv6: true\n",
            "line 6: Pod a: metadata.annotations.flock.fritzlab.net/ipv6 true must be a string (quote it)",
        ),
        (NODE % 64512 + "  mtuu: 1\n", "line 11: NodeConfig n1: spec.mtuu is not a field of NodeConfig"),
        (POD % "a" + "---\n" + POD % "a", "document 2, line 5: Pod default/a is there already (line 1)"),
    ],
)
def test_a_wrong_object_is_told_with_file_document_and_line(text: str, message: str) -> None:
    state = read(text)
    assert state.objects == ()
    assert len(state.problems) == 1
    assert told(state)[0].startswith("x.yaml, document ")
    assert message in told(state)[0]


def test_the_last_good_state_of_a_file_stays() -> None:
    good = read(NODE % 64512 + "---\n" + POD % "web")
    for bad in (
        (NODE % 64512 + "---\n" + POD % "web")[:-20],
        NODE % 64512 + "---\nkind: Pdo\napiVersion: v1\n",
        (NODE % 64512).replace("64513", "0"),
        NODE % 0,
        "",
        " \n",
        "\x00",
    ):
        state = read(bad, good)
        assert state.objects == good.objects
        assert state.problems
        again = read(POD % "other", state)
        assert [one.identity[2] for one in again.objects] == ["other"]
        assert again.problems == ()
    assert read("# nothing left\n", good).objects == ()


def test_a_peer_that_was_never_good_is_left_out_and_told() -> None:
    state = read(NODE % 0)
    (found,) = (one.thing for one in state.objects)
    assert isinstance(found, NodeConfig)
    assert found.spec.bgp is not None
    assert [peer.name for peer in found.spec.bgp.peers] == ["b"]
    assert told(state) == [
        "x.yaml, document 1, line 9: NodeConfig n1: spec.bgp.peers[0].asn 0 must be a whole number from 1 to 4294967294"
    ]
    # It stays a small matter while the rest is edited, and is none once it is mended.
    edited = read((NODE % 0).replace("db8::/64", "db8:1::/64"), state)
    assert edited.objects != state.objects
    assert read(NODE % 64512, edited).problems == ()


def test_equal_bytes_are_not_read_again() -> None:
    state = read(POD % "a")
    assert read(POD % "a", state) is state


def test_of_an_object_in_two_files_the_first_by_name_wins_and_the_other_is_told() -> None:
    files = {name: read(POD % "web", file=name) for name in ("b.yaml", "a.yaml")}
    snapshot = assemble(files, "n1")
    assert list(map(str, snapshot.problems)) == [
        "b.yaml, document 1, line 1: Pod default/web is there already (file a.yaml wins)"
    ]
    assert len(snapshot.pods) == 1


def test_many_problems_are_capped() -> None:
    state = read("".join(f"---\nkind: X{n}\n" for n in range(1000)))
    assert len(state.problems) == 100
