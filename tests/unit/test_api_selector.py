"""Label selectors, as the Kubernetes API defines them."""

import pytest

from flock.api.reader import Notes, Section, parse_duration
from flock.api.selector import Selector, read_selector


def read(raw: object) -> tuple[Selector, list[str]]:
    notes = Notes()
    found = read_selector(Section(raw, "sel", notes))
    return found, [str(problem) for problem in notes.problems] + notes.unknown


@pytest.mark.parametrize(
    ("raw", "labels", "expected"),
    [
        ({}, {}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "2"}, False),
        ({"matchLabels": {"a": "1", "b": "2"}}, {"a": "1"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, {"a": "2"}, True),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}, {}, False),
        # NotIn is met by an object without the label (meta/v1 LabelSelectorRequirement).
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {"a": "1"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": ""}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": ""}, False),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {}, True),
    ],
)
def test_a_selector_matches_as_the_api_says(raw: object, labels: dict[str, str], expected: bool) -> None:
    selector, wrong = read(raw)
    assert not wrong
    assert selector.matches(labels) is expected


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"matchLabels": []}, "sel.matchLabels a list must be a mapping"),
        ({"matchLabels": {"a": 1}}, "sel.matchLabels 1 must be a string"),
        ({"matchExpressions": [{"operator": "In", "values": ["1"]}]}, "sel.matchExpressions[0].key is required"),
        (
            {"matchExpressions": [{"key": "a", "operator": "in", "values": ["1"]}]},
            'sel.matchExpressions[0].operator "in" must be one of In, NotIn, Exists, DoesNotExist',
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "In"}]},
            "sel.matchExpressions[0].values null must not be empty with In",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["1"]}]},
            "sel.matchExpressions[0].values a list must be empty with Exists",
        ),
        ({"matchlabels": {}}, "sel.matchlabels"),
        ([], "sel a list must be a mapping"),
    ],
)
def test_what_is_wrong_with_a_selector(raw: object, problem: str) -> None:
    assert read(raw)[1] == [problem]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("120s", 120.0), ("300ms", 0.3), ("1h30m", 5400.0), ("1.5s", 1.5), ("0", 0.0), ("250us", 0.00025)],
)
def test_durations_are_read_as_go_writes_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1 s", "1s ", "1d", "1e3s", "٣s", "1s\n", "9" * 500 + "s"])
def test_what_is_no_duration(text: str) -> None:
    assert parse_duration(text) is None
