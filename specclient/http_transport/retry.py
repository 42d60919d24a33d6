"""Retry delays and decisions: Retry-After headers, exponential backoff, and which errors are retried.

The rules are those of the OpenAI client. Every vendor's form of a delay is parsed here, and nowhere else.
"""

from __future__ import annotations

import functools
import math
import random as _random
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from specclient.errors import APIConnectionError, APIError, APIStatusError, SpecClientError
from specclient.runtime.forks import import_lock
from specclient.types.error_body import parse_error_body

if TYPE_CHECKING:
    import tenacity

DEFAULT_MAX_RETRIES = 2
LONGEST_DELAY_S = 120.0
"""Requests are not retried if a server asks for a longer delay; the error is raised instead."""

DELAY_HEADERS: Mapping[str, float] = {"retry-after-ms": 1000.0, "retry-after": 1.0}
"""The headers of a delay, in the order in which they are read, and the number of their units in a second."""
ADVICE_HEADER = "x-should-retry"
"""``true`` or ``false``: overrides the rules of :func:`should_retry`."""

_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 8.0
_JITTER = 0.25
_RETRIED_STATUSES = frozenset({408, 409, 429})
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_GO_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ms|us|µs|ns|h|m|s)")
_GO_DURATION = re.compile(rf"(?:{_GO_PART.pattern})+")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_LONGEST_TEXT = 100  # of a delay


def parse_delay(text: str, now: float) -> float | None:
    """Return the seconds that a header asks for, or None if the text is not a delay.

    Args:
        text: seconds (``7``, ``11726.28``), a Go duration (``6m0s``, ``825ms``), an RFC 3339 instant
            (``2025-08-21T12:41:00Z``) or an HTTP date (RFC 9110, section 5.6.7).
        now: seconds since the epoch; instants in the past give 0.
    """
    text = text.strip()
    if len(text) > _LONGEST_TEXT:
        return None
    if (seconds := _parse_duration(text)) is not None:
        return seconds
    instant = _parse_instant(text)
    return None if instant is None else max(0.0, instant.timestamp() - now)


@functools.lru_cache(maxsize=1024)  # the limits of most responses reset after the same few durations
def _parse_duration(text: str) -> float | None:
    if _NUMBER.fullmatch(text):
        return float(text)
    if _GO_DURATION.fullmatch(text):
        return sum(float(amount) * _UNIT_S[unit] for amount, unit in _GO_PART.findall(text))
    return None


def _parse_instant(text: str) -> datetime | None:
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            instant = parse(text)
        except (ValueError, OverflowError, TypeError, IndexError):  # raised by the parsers for invalid text
            continue
        return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return None


def requested_delay(headers: Mapping[str, str], body: object, now: float) -> float | None:
    """Return the seconds that a response asks the client to wait, or None if it does not.

    Args:
        headers: the response's headers, names in lower case.
        body: its decoded error object, where Gemini puts the delay (``google.rpc.RetryInfo``).
        now: seconds since the epoch.
    """
    stated = (
        _stated_delay(headers[name], per_second, now)
        for name, per_second in DELAY_HEADERS.items()
        if name in headers
    )
    delay = next((each for each in stated if each is not None), None)
    if delay is None:
        delay = _delay_in(body, now)
    return delay if delay is not None and delay > 0 else None  # False for NaN, too


def delay_headers(delay_s: float) -> dict[str, str]:
    """Return the headers that ask a client to wait; none for an infinite delay.

    Both are rounded up: a client that retries too early is refused again. ``retry-after`` has whole seconds
    (RFC 9110, section 10.2.3); OpenAI's clients read ``retry-after-ms`` first.
    """
    if not math.isfinite(delay_s):
        return {}
    return {name: str(math.ceil(delay_s * DELAY_HEADERS[name])) for name in ("retry-after-ms", "retry-after")}


def _stated_delay(text: str, per_second: float, now: float) -> float | None:
    """Return the seconds of a header, NaN for an infinite number, None if the text is not a delay."""
    if not text.isascii():  # float accepts other digits, which are no number (RFC 9110, section 10.2.3)
        return parse_delay(text, now)
    try:
        value = float(text)
    except ValueError:
        return parse_delay(text, now)
    # "1e999" is a very long delay; "inf" is not a number of seconds.
    return math.nan if math.isinf(value) and "inf" in text.lower() else value / per_second


def _delay_in(body: object, now: float) -> float | None:
    for detail in _details(body):
        if isinstance(text := detail.get("retryDelay"), str):
            return parse_delay(text, now)
    return None


def _details(body: object) -> list[Mapping[str, object]]:
    """Return the details of a Google error object (``google.rpc``, error_details)."""
    error = parse_error_body(body).body  # Gemini may send it in a list
    details = error.get("details") if isinstance(error, Mapping) else None
    return [each for each in details if isinstance(each, Mapping)] if isinstance(details, list) else []


def _violations(body: object) -> list[object]:
    """Return the exceeded quotas (``google.rpc.QuotaFailure``)."""
    lists = [detail.get("violations") for detail in _details(body)]
    return [violation for each in lists if isinstance(each, list) for violation in each]


def _is_daily(violation: object) -> bool:
    return isinstance(violation, Mapping) and "PerDay" in str(violation.get("quotaId"))


def delay_of(error: BaseException | None, now: float) -> float | None:
    """Return the seconds that the response of ``error`` asks the client to wait, or None."""
    if not isinstance(error, APIStatusError) or error.response is None:
        return None
    return requested_delay(error.response.headers, error.body, now)


def backoff(retry: int, u: float) -> float:
    """Return the seconds before retry number ``retry`` (from 0), ``u`` being uniform in [0, 1)."""
    longest = min(_FIRST_BACKOFF_S * math.pow(2, min(retry, 16)), _LONGEST_BACKOFF_S)
    return longest * (1 - _JITTER * u)


def should_retry(error: BaseException, now: float) -> bool:
    """Return whether an error is retried.

    The header :data:`ADVICE_HEADER` overrides the rules in both directions. A used-up quota and a delay of
    more than :data:`LONGEST_DELAY_S` end the retries.
    """
    if not isinstance(error, APIStatusError) or error.response is None:
        return isinstance(error, APIConnectionError) and not isinstance(error, SpecClientError)
    delay = delay_of(error, now)
    if delay is not None and delay > LONGEST_DELAY_S:
        return False
    advice = error.response.headers.get(ADVICE_HEADER)
    if advice in ("true", "false"):
        return bool(advice == "true")
    if is_quota_spent(error):
        return False
    return error.status_code in _RETRIED_STATUSES or error.status_code >= 500


def is_quota_spent(error: APIError) -> bool:
    """Return whether the account has no money or quota left, so that waiting a short time does not help.

    Gemini reports a delay of seconds even for a daily quota.
    """
    return "insufficient_quota" in (error.code, error.type) or any(map(_is_daily, _violations(error.body)))


def retrying(
    max_retries: int,
    *,
    sleep: Callable[[float], Awaitable[None]],
    random: Callable[[], float] = _random.random,
    now: Callable[[], float],
    before_wait: Callable[[float, BaseException | None], bool] = lambda _, __: True,
) -> tenacity.AsyncRetrying:
    """Return a retry loop: one attempt, then up to ``max_retries`` more. It raises the last error.

    Args:
        max_retries: 0 for a single attempt.
        sleep: waits for seconds.
        random: returns a number from [0, 1).
        now: returns seconds since the epoch, for delays given as instants.
        before_wait: called before each wait with the seconds to wait and the error. False ends the retries;
            an exception replaces the error.
    """

    with import_lock:
        import tenacity  # noqa: PLC0415 - only needed after a failure

    def wait(state: tenacity.RetryCallState) -> float:
        delay = delay_of(_error_of(state), now())
        return backoff(state.attempt_number - 1, random()) if delay is None else delay

    def stop(state: tenacity.RetryCallState) -> bool:
        return state.attempt_number > max_retries or not before_wait(state.upcoming_sleep, _error_of(state))

    return tenacity.AsyncRetrying(
        sleep=sleep,
        stop=stop,
        wait=wait,
        retry=tenacity.retry_if_exception(lambda error: should_retry(error, now())),
        reraise=True,
    )


def _error_of(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None
