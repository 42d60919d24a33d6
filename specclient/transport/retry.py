"""Turn a failed try into the decision whether to try again, and after how many seconds.

The rules are those of the OpenAI client; the delay is read in every form the vendors write it.
"""

from __future__ import annotations

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
"""A server that asks for a longer pause gets no retry: the caller hears of it instead of hanging."""

_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 8.0
_JITTER = 0.25
_RETRIED_STATUSES = frozenset({408, 409, 429})
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_GO_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|us|µs|ns|h|m|s)")
_GO_DURATION = re.compile(rf"(?:{_GO_PART.pattern})+")
_NUMBER = re.compile(r"\d+(?:\.\d*)?|\.\d+")


def parse_delay(text: str, now: float) -> float | None:
    """Return the seconds a header asks for, or None where the text is no delay.

    Args:
        text: seconds (``7``, ``11726.28``), a Go duration (``6m0s``, ``825ms``), an RFC 3339 instant
            (``2025-08-21T12:41:00Z``) or an HTTP date (RFC 9110, section 5.6.7).
        now: seconds since the epoch; instants in the past give 0.
    """
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    if _GO_DURATION.fullmatch(text):
        return sum(float(amount) * _UNIT_S[unit] for amount, unit in _GO_PART.findall(text))
    instant = _parse_instant(text)
    return None if instant is None else max(0.0, instant.timestamp() - now)


def _parse_instant(text: str) -> datetime | None:
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            instant = parse(text)
        except ValueError:
            continue
        return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return None


def requested_delay(headers: Mapping[str, str], body: object, now: float) -> float | None:
    """Return the seconds an answer asks its client to wait, or None where it asks for none, or for none left.

    Args:
        headers: of the answer.
        body: its decoded error object; Gemini keeps the delay there, as ``google.rpc.RetryInfo``.
        now: seconds since the epoch.
    """
    delay = _number(headers.get("retry-after-ms"), 1000.0)
    if delay is None:
        seconds = headers.get("retry-after")
        delay = _number(seconds, 1.0)
        if delay is None and seconds is not None:
            delay = parse_delay(seconds, now)
    if delay is None:
        delay = _delay_in(body, now)
    return delay if delay is not None and delay > 0 else None  # not a number, too, is not above 0


def _number(text: str | None, divisor: float) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    # "1e999" is a pause too long to write down; "inf" is not a number of seconds.
    return math.nan if math.isinf(value) and "inf" in (text or "").lower() else value / divisor


def _delay_in(body: object, now: float) -> float | None:
    for detail in _details(body):
        if isinstance(text := detail.get("retryDelay"), str):
            return parse_delay(text, now)
    return None


def _details(body: object) -> list[Mapping[str, object]]:
    """Return what an error object of Google's tells beside its message (``google.rpc``, error_details)."""
    error = parse_error_body(body).body  # Gemini may send it in a list
    details = error.get("details") if isinstance(error, Mapping) else None
    return [each for each in details if isinstance(each, Mapping)] if isinstance(details, list) else []


def _violations(body: object) -> list[object]:
    """Return the quotas that were exceeded: ``google.rpc.QuotaFailure``."""
    told = [detail.get("violations") for detail in _details(body)]
    return [violation for each in told if isinstance(each, list) for violation in each]


def _is_daily(violation: object) -> bool:
    return isinstance(violation, Mapping) and "PerDay" in str(violation.get("quotaId"))


def delay_of(error: BaseException | None, now: float) -> float | None:
    """Return the seconds that the answer behind ``error`` asks for, or None."""
    if not isinstance(error, APIStatusError) or error.response is None:
        return None
    return requested_delay(error.response.headers, error.body, now)


def backoff(retry: int, u: float) -> float:
    """Return the seconds before retry number ``retry`` (from 0), ``u`` being uniform in [0, 1)."""
    longest = min(_FIRST_BACKOFF_S * math.pow(2, min(retry, 16)), _LONGEST_BACKOFF_S)
    return longest * (1 - _JITTER * u)


def should_retry(error: BaseException, now: float) -> bool:
    """Tell whether another try may help.

    ``x-should-retry`` overrides the rules both ways; a spent quota and a pause of more than
    :data:`LONGEST_DELAY_S` end the retries.
    """
    if not isinstance(error, APIStatusError) or error.response is None:
        return isinstance(error, APIConnectionError) and not isinstance(error, SpecClientError)
    delay = delay_of(error, now)
    if delay is not None and delay > LONGEST_DELAY_S:
        return False
    advice = error.response.headers.get("x-should-retry")
    if advice in ("true", "false"):
        return bool(advice == "true")
    if is_quota_spent(error):
        return False
    return error.status_code in _RETRIED_STATUSES or error.status_code >= 500


def is_quota_spent(error: APIError) -> bool:
    """Tell whether the account has no money or quota left, which no short waiting mends.

    Of a quota by the day, Gemini names a delay of seconds all the same.
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
    """Return a loop that tries once and then up to ``max_retries`` times more, and raises the last error.

    Args:
        max_retries: 0 for a single try.
        sleep: waits for seconds.
        random: draws from [0, 1).
        now: seconds since the epoch, for delays given as instants.
        before_wait: asked, with the seconds to wait and the error that was raised, before each wait; False
            ends the retries, and what it raises is raised in place of the error.
    """

    with import_lock:
        import tenacity  # noqa: PLC0415 - a program without a failure does without it

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
