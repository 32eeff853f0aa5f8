"""Label selectors, as the Kubernetes API defines them (meta/v1 LabelSelector). Pure.

An empty selector matches everything; a selector that isn't there matches nothing or everything, as its user says.
"""

from collections.abc import Mapping
from enum import Enum

import msgspec

from flock.api.reader import Notes, Section


class Operator(Enum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class Requirement(msgspec.Struct, frozen=True):
    """One demand on one label."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case Operator.IN:
                return labels.get(self.key) in self.values
            case Operator.NOT_IN:
                return labels.get(self.key) not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.DOES_NOT_EXIST:
                return self.key not in labels


class Selector(msgspec.Struct, frozen=True):
    """Every requirement must hold."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


def read_selector(section: Section) -> Selector:
    """A selector from its mapping; what is wrong with it goes to the section's notes."""
    found: list[Requirement] = []
    labels = section.get("matchLabels")
    if isinstance(labels, Mapping):
        for key, value in labels.items():
            if isinstance(key, str) and isinstance(value, str):
                found.append(Requirement(key, Operator.IN, frozenset([value])))
            else:
                section.problem("matchLabels", value, "must be a string")
    elif labels is not None:
        section.problem("matchLabels", labels, "must be a mapping")
    for index, raw in enumerate(section.items("matchExpressions")):
        requirement = _read_requirement(raw, f"{section.name('matchExpressions')}[{index}]", section.notes)
        if requirement is not None:
            found.append(requirement)
    section.done()
    return Selector(tuple(found))


def _read_requirement(raw: object, path: str, notes: Notes) -> Requirement | None:
    section = Section(raw, path, notes)
    before = len(notes.problems)
    key = section.text("key") if section.required("key") else None
    word = section.text("operator") if section.required("operator") else None
    values = section.texts("values")
    section.done()
    operator = next((known for known in Operator if known.value == word), None)
    if word is not None and operator is None:
        section.problem("operator", word, f"must be one of {', '.join(known.value for known in Operator)}")
    if operator in (Operator.IN, Operator.NOT_IN) and not values:
        section.problem("values", None, f"must not be empty with {word}")
    if operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST) and values:
        section.problem("values", values, f"must be empty with {word}")
    if len(notes.problems) > before or key is None or operator is None:
        return None
    return Requirement(key, operator, frozenset(values))
