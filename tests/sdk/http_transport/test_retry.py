"""Retries: which errors, how many, and the delays, by the rules of the OpenAI client, with a fixed clock."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.errors import (
    APIConnectionError,
    APIError,
    APIResponseValidationError,
    APITimeoutError,
    status_error,
)
from specclient.http_transport.retry import backoff, parse_delay, requested_delay, retrying, should_retry

pytestmark = pytest.mark.anyio

NOW = 1_755_780_000.0  # 2025-08-21T12:40:00Z


def failure(status: int, headers: Mapping[str, str] | None = None, body: Any = None) -> APIError:
    response = SimpleNamespace(status_code=status, headers=headers or {})
    return status_error(status, f"status {status}", response=response, body=body)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        (" 1.5 ", 1.5),
        ("11726.28", 11726.28),
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("2m59.56s", 179.56),
        ("825ms", 0.825),
        ("1h2m3s", 3723.0),
        ("22s", 22.0),
        ("2025-08-21T12:41:00Z", 60.0),
        ("2025-08-21T14:41:00+02:00", 60.0),
        ("2025-08-21T12:39:00Z", 0.0),
        ("Thu, 21 Aug 2025 12:40:30 GMT", 30.0),
        ("Thu, 21 Aug 2025 12:39:30 GMT", 0.0),
    ],
)
def test_delays_are_parsed_in_every_format(text: str, seconds: float) -> None:
    assert parse_delay(text, NOW) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "soon", "-1", "nan", "inf", "1e400", "1x", "s", "5 apples", "9" * 5, "2025-99-99"]
)
def test_invalid_delays_are_none(text: str) -> None:
    expected = 99999.0 if text == "9" * 5 else None
    assert parse_delay(text, NOW) == expected


def test_retry_after_ms_precedes_retry_after_which_precedes_geminis_retry_info() -> None:
    body = {"details": [{"@type": "QuotaFailure"}, {"@type": "google.rpc.RetryInfo", "retryDelay": "22.5s"}]}
    assert requested_delay({"retry-after-ms": "250", "retry-after": "9"}, body, NOW) == 0.25
    assert requested_delay({"retry-after-ms": "x", "retry-after": "9"}, body, NOW) == 9.0
    assert requested_delay({"retry-after": "whenever"}, body, NOW) == 22.5
    assert requested_delay({}, {"details": "none"}, NOW) is None
    assert requested_delay({}, "text", NOW) is None


def test_backoff_doubles_up_to_eight_seconds_with_a_jitter_of_minus_25_percent() -> None:
    assert [backoff(k, 0.0) for k in range(6)] == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert backoff(10_000, 0.0) == 8.0
    assert backoff(1, 1.0) == 0.75


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_retried_statuses(status: int) -> None:
    assert should_retry(failure(status), NOW)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 418])
def test_statuses_that_are_not_retried(status: int) -> None:
    assert not should_retry(failure(status), NOW)


def test_x_should_retry_overrides_the_status() -> None:
    assert should_retry(failure(400, {"x-should-retry": "true"}), NOW)
    assert not should_retry(failure(500, {"x-should-retry": "false"}), NOW)
    assert should_retry(failure(500, {"x-should-retry": "perhaps"}), NOW)


def test_connection_errors_and_timeouts_are_retried_and_invalid_responses_are_not() -> None:
    assert should_retry(APIConnectionError(), NOW)
    assert should_retry(APITimeoutError(), NOW)
    assert not should_retry(APIResponseValidationError(), NOW)
    assert not should_retry(status_error(500, "refused before it was sent"), NOW)
    assert not should_retry(RuntimeError("a bug"), NOW)


def test_a_spent_quota_and_a_retry_after_over_two_minutes_are_not_retried() -> None:
    assert not should_retry(failure(429, body={"code": "insufficient_quota"}), NOW)
    assert not should_retry(failure(429, body={"type": "insufficient_quota"}), NOW)
    assert should_retry(failure(429, {"retry-after": "120"}), NOW)
    assert not should_retry(failure(429, {"retry-after": "121"}), NOW)
    assert not should_retry(failure(429, {"retry-after": "3600", "x-should-retry": "true"}), NOW)


def test_a_spent_daily_quota_is_not_retried_despite_its_retry_delay() -> None:
    def refused(*quotas: str) -> dict[str, Any]:
        violations = [{"quotaId": f"GenerateRequests{quota}PerProjectPerModel-FreeTier"} for quota in quotas]
        return {
            "code": 429,
            "details": [
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "22s"},
                {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations},
            ],
        }

    assert should_retry(failure(429, body=refused("PerMinute")), NOW)
    assert not should_retry(failure(429, body=refused("PerMinute", "PerDay")), NOW)
    for junk in ({"violations": 5}, {"violations": [None, {"quotaId": 5}]}, "PerDay"):
        assert should_retry(failure(429, body={"code": 429, "details": [junk]}), NOW)


async def run(max_retries: int, *failures: BaseException) -> tuple[Any, list[float]]:
    """Raise ``failures`` one by one, then succeed; return the result or error, and the pauses."""
    left, pauses = list(failures), []

    async def attempt() -> str:
        if left:
            raise left.pop(0)
        return "done"

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    try:
        return await retrying(max_retries, sleep=sleep, random=lambda: 0.5, now=lambda: NOW)(attempt), pauses
    except APIError as error:
        return error, pauses


async def test_pauses_are_the_backoff_or_the_delay_of_the_server() -> None:
    result, pauses = await run(3, failure(500), failure(429, {"retry-after": "7"}), APIConnectionError())
    assert result == "done"
    assert pauses == [0.5 * 0.875, 7.0, 2.0 * 0.875]


async def test_the_last_error_is_raised_when_the_retries_are_spent() -> None:
    last = failure(503)
    result, pauses = await run(2, failure(500), failure(500), last)
    assert result is last
    assert len(pauses) == 2


async def test_zero_retries_make_one_attempt() -> None:
    first = failure(500)
    assert await run(0, first) == (first, [])


@given(st.text(max_size=30))
def test_any_text_is_a_delay_or_none(text: str) -> None:
    delay = parse_delay(text, NOW)
    assert delay is None or delay >= 0
