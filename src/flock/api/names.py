"""Names of API objects, and the head that every one of them has: apiVersion, kind, metadata.name. Pure.

Sources: Kubernetes "Object Names and IDs" (RFC 1123 subdomains, at most 253 characters).
"""

import re

from flock.api.problems import printable
from flock.api.reader import Section

API_GROUP = "flock.fritzlab.net"
API_VERSION = f"{API_GROUP}/v1alpha1"

_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def parse_object_name(text: str) -> str:
    """A DNS subdomain; ValueError is the rule."""
    if len(text) > 253 or not _SUBDOMAIN.fullmatch(text):
        raise ValueError("must be 1 to 253 lower-case letters, digits, '-' and '.' (a DNS subdomain)")
    return text


def check_head(top: Section, api_version: str, kind: str) -> str | None:
    """The object's name; a wrong apiVersion or kind is noted, an absent one isn't (items of a list have none)."""
    for key, expected in (("apiVersion", api_version), ("kind", kind)):
        found = top.get(key)
        if found is not None and found != expected:
            top.problem(key, found, f'must be "{expected}"')
    metadata = top.section("metadata") if top.required("metadata") else None
    if metadata is None or not metadata.required("name"):
        return None
    return metadata.parsed("name", parse_object_name)


def subject_of(kind: str, name: str | None, namespace: str = "") -> str:
    """How an object is called in messages: ``Pod default/web``."""
    where = f"{printable(namespace, 64)}/" if namespace else ""
    return f"{kind} {where}{printable(name, 253)}" if name else kind
