"""The gateway passes on an upstream's retry delay to its clients, whatever form it has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from specclient.errors import status_error
from specclient.http_transport.retry import requested_delay
from specclient.openai_http.errors import serving_error_of

NOW = 1_755_780_000.0  # 2025-08-21T12:40:00Z
GEMINI = {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "22.5s"}]}


def headers_for_clients(headers: dict[str, str], body: object = None) -> dict[str, str]:
    response = SimpleNamespace(status_code=429, headers=headers)
    error = status_error(429, "slow down", response=response, body=body)
    return dict(serving_error_of(error, lambda: NOW).headers)


@pytest.mark.parametrize(
    ("headers", "body", "milliseconds", "seconds"),
    [
        ({"retry-after": "7"}, None, "7000", "7"),
        ({"retry-after": "0.25"}, None, "250", "1"),
        ({"retry-after-ms": "250", "retry-after": "9"}, None, "250", "1"),
        ({"retry-after": "2m59.56s"}, None, "179560", "180"),
        ({"retry-after": "Thu, 21 Aug 2025 12:40:30 GMT"}, None, "30000", "30"),
        ({}, GEMINI, "22500", "23"),
    ],
)
def test_every_form_of_a_delay_reaches_clients(
    headers: dict[str, str], body: object, milliseconds: str, seconds: str
) -> None:
    sent = headers_for_clients(headers, body)
    assert sent == {"retry-after-ms": milliseconds, "retry-after": seconds}
    assert requested_delay(sent, None, NOW) == requested_delay(headers, body, NOW)


def test_other_limit_headers_are_passed_on() -> None:
    passed = {"x-ratelimit-limit-requests": "60", "x-should-retry": "false", "retry-after": "whenever"}
    assert headers_for_clients({**passed, "set-cookie": "a=b"}) == passed
    assert headers_for_clients({"retry-after": "1e999"}) == {"retry-after": "1e999"}
    assert headers_for_clients({}) == {}
