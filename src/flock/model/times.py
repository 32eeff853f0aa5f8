"""Times as the Kubernetes API writes them. Pure."""

from datetime import UTC, datetime


def rfc3339(wall: float) -> str:
    """Seconds since the epoch in RFC 3339, to the second, in UTC: meta/v1 Time."""
    return datetime.fromtimestamp(int(wall), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
