"""What refusals of the API server mean."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.cluster.answers import LONGEST_WAIT, refusal, retry_after
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

NOW = 1_800_000_000.0


def body(**fields: object) -> bytes:
    return json.dumps({"kind": "Status", "status": "Failure", **fields}).encode()


@pytest.mark.parametrize(("code", "expected"), [
    (401, ApiForbidden), (403, ApiForbidden), (404, ApiNotFound), (409, ApiConflict), (410, ApiGone),
    (429, ApiThrottled), (400, ApiRefused), (422, ApiRefused), (302, ApiRefused), (500, ApiUnavailable),
    (503, ApiUnavailable),
])
def test_each_status_is_one_error(code: int, expected: type[FlockError]) -> None:
    found = refusal("GET /x", code, {}, body(message="why", reason="Word"), NOW)
    assert type(found) is expected
    assert str(found) == f"GET /x: the API server answered {code} Word: why"


def test_429_and_5xx_with_retry_after_say_how_long() -> None:
    for code in (429, 503):
        found = refusal("x", code, {"Retry-After": "7"}, b"", NOW)
        assert isinstance(found, ApiThrottled)
        assert found.retry_after == 7
    found = refusal("x", 503, {}, body(details={"retryAfterSeconds": 9}), NOW)
    assert isinstance(found, ApiThrottled)
    assert found.retry_after == 9


def test_a_version_that_the_server_never_had_is_gone_too() -> None:
    details = {"retryAfterSeconds": 1, "causes": [{"reason": "ResourceVersionTooLarge", "message": "m"}]}
    assert isinstance(refusal("x", 504, {"Retry-After": "1"}, body(reason="Timeout", details=details), NOW), ApiGone)


def test_a_conflict_says_which_kind_it_is() -> None:
    found = refusal("x", 409, {}, body(reason="AlreadyExists"), NOW)
    assert isinstance(found, ApiConflict)
    assert found.reason == "AlreadyExists"


@pytest.mark.parametrize(("header", "expected"), [
    ("3", 3.0), ("0", 1.0), ("999999999999999999999", LONGEST_WAIT), ("-1", None), ("soon", None), ("", None),
    ("Fri, 15 Jan 2027 08:00:30 GMT", 30.0), ("Fri, 15 Jan 2100 08:00:30 GMT", LONGEST_WAIT),
    ("Fri, 15 Jan 1999 08:00:30 GMT", 1.0), (None, None),
])
def test_retry_after_is_a_number_or_a_date_and_has_bounds(header: str | None, expected: float | None) -> None:
    assert retry_after(header, NOW) == expected


@given(st.integers(300, 999), st.text(max_size=40), st.binary(max_size=200))
def test_any_answer_is_one_printable_line(code: int, header: str, data: bytes) -> None:
    text = str(refusal("GET /x", code, {"Retry-After": header}, data, NOW))
    assert "\n" not in text
    assert text.isprintable()
    assert len(text) < 2000


def test_a_proxys_page_is_shown_as_it_is() -> None:
    assert "Bad Gateway" in str(refusal("GET /x", 502, {}, b"<html>Bad Gateway</html>", NOW))
