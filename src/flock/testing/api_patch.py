"""How an API server changes an object by a patch: the four kinds, for the fake API server. Pure.

Sources: RFC 7386 (merge patch), RFC 6902 (JSON patch), Kubernetes API concepts (strategic merge patch; server-side
apply, here without field owners: what is applied is merged, and nothing is taken away).
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy

MERGE_KEYS = {"conditions": "type", "addresses": "type", "containers": "name", "ports": "containerPort",
              "ownerReferences": "uid", "peers": "name"}
"""Lists whose items are known by a key, as k8s.io/api marks them (``patchMergeKey``, ``listMapKey``)."""


class BadPatch(ValueError):
    """The patch can't be read or doesn't fit."""


def merge_patch(target: object, patch: object) -> object:
    """RFC 7386: null removes, mappings merge, everything else replaces."""
    if not isinstance(patch, Mapping):
        return deepcopy(patch)
    found = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merge_patch(found.get(key), value)
    return found


def strategic_merge_patch(target: object, patch: object, field: str = "") -> object:
    """The same, but lists with a merge key merge by it."""
    if isinstance(patch, Mapping):
        found = dict(target) if isinstance(target, Mapping) else {}
        for key, value in patch.items():
            if key == "$patch":
                raise BadPatch("$patch directives are not known to the fake")
            if value is None:
                found.pop(key, None)
            else:
                found[key] = strategic_merge_patch(found.get(key), value, key)
        return found
    if isinstance(patch, Sequence) and not isinstance(patch, str) and field in MERGE_KEYS:
        return _merge_lists(target if isinstance(target, list) else [], patch, MERGE_KEYS[field])
    return deepcopy(patch)


def _merge_lists(target: Sequence[object], patch: Sequence[object], key: str) -> list[object]:
    found = list(target)
    for item in patch:
        if not isinstance(item, Mapping) or key not in item:
            raise BadPatch(f"an item of a list has no merge key {key}")
        at = next((n for n, one in enumerate(found) if isinstance(one, Mapping) and one.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del found[at]
        elif at is None:
            found.append(deepcopy(dict(item)))
        else:
            found[at] = strategic_merge_patch(found[at], item)
    return found


def json_patch(target: object, patch: object) -> object:
    """RFC 6902, without move and copy."""
    if not isinstance(patch, list):
        raise BadPatch("a JSON patch is a list")
    root: dict[str, object] = {"": deepcopy(target)}
    for step in patch:
        if not isinstance(step, Mapping) or not isinstance(step.get("path"), str):
            raise BadPatch("a step of a JSON patch has op and path")
        _step(root, step)
    return root[""]


def _step(root: dict[str, object], step: Mapping[str, object]) -> None:
    words = [word.replace("~1", "/").replace("~0", "~") for word in str(step["path"]).split("/")]
    parent: object = root
    for word in words[:-1]:
        parent = _child(parent, word)
    last, op = words[-1], step.get("op")
    if op == "test":
        if _child(parent, last) != step.get("value"):
            raise BadPatch(f"testing path {step['path']} has failed")
    elif isinstance(parent, dict) and op in {"add", "replace", "remove"}:
        if op != "add" and last not in parent:
            raise BadPatch(f"path {step['path']} doesn't exist")
        parent.pop(last, None)
        if op != "remove":
            parent[last] = deepcopy(step.get("value"))
    elif isinstance(parent, list) and op in {"add", "replace", "remove"}:
        _list_step(parent, last, op, step.get("value"))
    else:
        raise BadPatch(f"op {op} at {step['path']} is not possible")


def _list_step(parent: list[object], last: str, op: object, value: object) -> None:
    at = len(parent) if last == "-" else int(last) if last.isdigit() else -1
    if not 0 <= at <= len(parent) - (op != "add"):
        raise BadPatch(f"index {last} doesn't exist")
    if op == "add":
        parent.insert(at, deepcopy(value))
    elif op == "replace":
        parent[at] = deepcopy(value)
    else:
        del parent[at]


def _child(parent: object, word: str) -> object:
    if isinstance(parent, dict) and word in parent:
        return parent[word]
    if isinstance(parent, list) and word.isdigit() and int(word) < len(parent):
        return parent[int(word)]
    raise BadPatch(f"path element {word!r} doesn't exist")
