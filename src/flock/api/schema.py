"""The words of a structural schema, as CustomResourceDefinitions are made of them. Pure.

Source: Kubernetes API extensions, structural schemas and validation rules (apiextensions/v1 JSONSchemaProps).
"""

from collections.abc import Mapping, Sequence

Schema = dict[str, object]


def rules(texts: Mapping[str, str]) -> Schema:
    """CEL rules, each with what a user reads where it doesn't hold."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in texts.items()]}


def mapping(fields: Mapping[str, Schema], *required: str) -> Schema:
    """A mapping with exactly these fields."""
    schema: Schema = {"type": "object", "properties": dict(fields)}
    return schema | ({"required": list(required)} if required else {})


def array(items: Schema, most: int, least: int = 0) -> Schema:
    return {"type": "array", "maxItems": most} | ({"minItems": least} if least else {}) | {"items": items}


def keyed(items: Schema, most: int, key: str) -> Schema:
    """A list in which every item has another ``key``."""
    return array(items, most) | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


def text(most: int, least: int = 0, pattern: str = "") -> Schema:
    schema: Schema = {"type": "string", "maxLength": most}
    return schema | ({"minLength": least} if least else {}) | ({"pattern": f"^({pattern})$"} if pattern else {})


def choice(words: Sequence[str]) -> Schema:
    return {"type": "string", "enum": list(words)}


def number(least: int, most: int) -> Schema:
    return {"type": "integer", "format": "int64", "minimum": least, "maximum": most}


def flag() -> Schema:
    return {"type": "boolean"}


def time() -> Schema:
    return {"type": "string", "format": "date-time"}
