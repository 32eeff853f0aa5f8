"""What the API server's refusals mean: an HTTP answer as one of the errors of ``flock.cluster.errors``. Pure.

Invariant: any status, any headers, any body give an error with one short printable line; a server can't make a client
wait longer than ``LONGEST_WAIT`` by asking for it.

Sources: Kubernetes API conventions, "Response Status Kind"; RFC 9110 section 10.2.3 (Retry-After).
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from flock.api.problems import printable
from flock.cluster.errors import (
    ApiConflict,
    ApiForbidden,
    ApiGone,
    ApiNotFound,
    ApiRefused,
    ApiThrottled,
    ApiUnavailable,
)
from flock.errors import FlockError

LONGEST_WAIT = 120.0
SHORTEST_WAIT = 1.0
_TEXT = 300


class Cause(msgspec.Struct, frozen=True):
    """One more reason."""

    reason: str | None = None


class Details(msgspec.Struct, frozen=True):
    """The part of a Status that says when to come back, and why."""

    retryAfterSeconds: int | None = None  # noqa: N815 - the API's spelling
    causes: tuple[Cause, ...] | None = None


class Status(msgspec.Struct, frozen=True):
    """The API's own words for how a request, or a watch, ended."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: Details | None = None

    @property
    def gone(self) -> bool:
        """Whether the server can't go on from the resource version that was asked for.

        It has forgotten it, or has never had it: its etcd was restored from an older copy.
        """
        causes = self.details.causes or () if self.details is not None else ()
        return (self.code == 410 or self.reason in {"Expired", "Gone"}
                or any(cause.reason == "ResourceVersionTooLarge" for cause in causes))


_STATUS = msgspec.json.Decoder(Status)


def read_status(body: bytes) -> Status:
    """The Status in an answer's body; an empty one where there is none (a proxy's page, say)."""
    try:
        return _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Status(message=body[:_TEXT].decode(errors="replace").strip() or None)


def refusal(what: str, code: int, headers: Mapping[str, str], body: bytes, now: float) -> FlockError:
    """The error that an answer with a status of 300 or more is. ``now`` is the wall clock's time."""
    status = read_status(body)
    reason = printable(status.reason or "", 64)
    msg = f"{what}: the API server answered {code}" + (f" {reason}" if reason else "")
    details = printable(status.message or "", _TEXT)
    wait = retry_after(headers.get("Retry-After"), now)
    if wait is None and status.details is not None and status.details.retryAfterSeconds:
        wait = _bounded(status.details.retryAfterSeconds)
    if status.gone:
        return ApiGone(msg, details)
    if code == 429 or (code >= 500 and wait is not None):
        return ApiThrottled(msg, details, retry_after=wait if wait is not None else SHORTEST_WAIT)
    if code >= 500:
        return ApiUnavailable(msg, details, status=code)
    match code:
        case 401 | 403:
            return ApiForbidden(msg, details, status=code, reason=reason)
        case 404:
            return ApiNotFound(msg, details, status=code, reason=reason)
        case 409:
            return ApiConflict(msg, details, reason=reason or "Conflict")
        case 410:
            return ApiGone(msg, details)
        case _:
            return ApiRefused(msg, details, status=code, reason=reason)


def retry_after(header: str | None, now: float) -> float | None:
    """Seconds to wait, from a number or a date, within bounds; None where the header says nothing."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        return _bounded(int(text[:9]))
    try:
        date = parsedate_to_datetime(text[:64])
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
    date = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return _bounded((date - datetime.fromtimestamp(now, UTC)).total_seconds())


def _bounded(seconds: float) -> float:
    return min(max(float(seconds), SHORTEST_WAIT), LONGEST_WAIT)
