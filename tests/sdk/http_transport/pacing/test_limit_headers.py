"""Rate limits read from response headers, in the spelling of each vendor."""

from __future__ import annotations

import pytest

from specclient.http_transport.pacing.limit_headers import read_rate_limits

NOW = 1_755_780_000.0  # 2025-08-21T12:40:00Z


def parsed_limits(headers: dict[str, str]) -> set[tuple[str, float, float, float | None, float, bool]]:
    return {
        (limit.row.unit, limit.capacity, limit.left, limit.full_in, limit.row.period_s, limit.row.steady)
        for limit in read_rate_limits(headers, lambda: NOW)
    }


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param(
            {
                "x-ratelimit-limit-requests": "10000",
                "x-ratelimit-remaining-requests": "9999",
                "x-ratelimit-reset-requests": "8.64s",
                "x-ratelimit-limit-tokens": "200000",
                "x-ratelimit-remaining-tokens": "199000",
                "x-ratelimit-reset-tokens": "6m0s",
                "x-ratelimit-limit-project-tokens": "50000",
                "x-ratelimit-remaining-project-tokens": "49999",
                "x-ratelimit-reset-project-tokens": "12ms",
            },
            {
                ("requests", 10000, 9999, 8.64, 60, True),
                ("tokens", 200000, 199000, 360.0, 60, True),
                ("tokens", 50000, 49999, 0.012, 60, True),
            },
            id="OpenAI",
        ),
        pytest.param(
            {
                "x-ratelimit-limit-requests": "14400",
                "x-ratelimit-remaining-requests": "14370",
                "x-ratelimit-reset-requests": "2m59.56s",
            },
            {("requests", 14400, 14370, 179.56, 60, True)},
            id="Groq",
        ),
        pytest.param(
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2025-08-21T12:41:00Z",
                "anthropic-ratelimit-input-tokens-limit": "30000",
                "anthropic-ratelimit-input-tokens-remaining": "29000",
                "anthropic-ratelimit-input-tokens-reset": "2025-08-21T12:40:02Z",
                "anthropic-ratelimit-output-tokens-limit": "8000",
                "anthropic-ratelimit-output-tokens-remaining": "8000",
                "anthropic-ratelimit-output-tokens-reset": "2025-08-21T12:39:00Z",
            },
            {
                ("requests", 50, 0, 60.0, 60, True),
                ("partial_tokens", 30000, 29000, 2.0, 60, True),
                ("partial_tokens", 8000, 8000, 0.0, 60, True),
            },
            id="Anthropic",
        ),
        pytest.param(
            {
                "x-ratelimit-limit-requests-day": "14400",
                "x-ratelimit-remaining-requests-day": "14399",
                "x-ratelimit-reset-requests-day": "11726.28",
                "x-ratelimit-limit-tokens-minute": "60000",
                "x-ratelimit-remaining-tokens-minute": "0",
                "x-ratelimit-reset-tokens-minute": "26.5",
            },
            {
                ("requests", 14400, 14399, 11726.28, 86400, False),
                ("tokens", 60000, 0, 26.5, 60, False),
            },
            id="Cerebras",
        ),
        pytest.param(
            {
                "x-ratelimitbysize-limit-minute": "500000",
                "x-ratelimitbysize-remaining-minute": "499000",
                "x-ratelimitbysize-limit-month": "1000000000",
                "x-ratelimitbysize-remaining-month": "0",
                "ratelimitbysize-limit": "500000",
                "ratelimitbysize-remaining": "499000",
                "ratelimitbysize-reset": "31",
                "ratelimitbysize-query-cost": "10",
            },
            {("tokens", 500000, 499000, 31.0, 60, False)},
            id="Mistral",
        ),
        pytest.param(
            {
                "x-ratelimit-limit-requests": "600",
                "x-ratelimit-remaining-requests": "599",
                "x-ratelimit-limit-tokens-prompt": "60000",
                "x-ratelimit-remaining-tokens-prompt": "100",
                "x-ratelimit-limit-tokens-generated": "36000",
                "x-ratelimit-remaining-tokens-generated": "0",
            },
            {
                ("requests", 600, 599, None, 60, True),
                ("partial_tokens", 60000, 100, None, 60, True),
                ("partial_tokens", 36000, 0, None, 60, True),
            },
            id="Fireworks",
        ),
        pytest.param(
            {
                "x-ratelimit-limit": "10",
                "x-ratelimit-remaining": "9",
                "x-ratelimit-reset": "1",
                "x-tokenlimit-limit": "3000",
                "x-tokenlimit-remaining": "2900",
            },
            {("requests", 10, 9, 1.0, 1, False), ("tokens", 3000, 2900, None, 1, False)},
            id="Together",
        ),
        pytest.param(
            {
                "x-ratelimit-limit": "20",
                "x-ratelimit-remaining": "0",
                "x-ratelimit-reset": "1755780024000",
            },
            {("requests", 20, 0, 24.0, 1, False)},
            id="OpenRouter",
        ),
        pytest.param(
            {"x-ratelimit-limit": "5", "x-ratelimit-remaining": "4", "x-ratelimit-reset": "1755780024"},
            {("requests", 5, 4, 24.0, 1, False)},
            id="an instant in seconds",
        ),
        pytest.param(
            {"x-ratelimit-remaining-requests": "0", "x-ratelimit-remaining-tokens": "7"}, set(), id="Azure"
        ),
        pytest.param({"content-type": "application/json"}, set(), id="none"),
    ],
)
def test_limits_by_vendor(headers: dict[str, str], expected: set[object]) -> None:
    assert parsed_limits(headers) == expected


@pytest.mark.parametrize(
    ("limit", "remaining", "reset"),
    [
        ("-1", "5", "1s"),
        ("0", "0", "1s"),
        ("10", "-1", "1s"),
        ("many", "1", "1s"),
        ("inf", "1", "1s"),
        ("5", "nan", ""),
    ],
)
def test_invalid_limits_are_ignored(limit: str, remaining: str, reset: str) -> None:
    names = ("x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens")
    assert parsed_limits(dict(zip(names, (limit, remaining, reset), strict=True))) == set()


def test_an_invalid_reset_is_none_and_the_limit_is_still_read() -> None:
    headers = {
        "x-ratelimit-limit-tokens": "10",
        "x-ratelimit-remaining-tokens": "5",
        "x-ratelimit-reset-tokens": "soon",
    }
    assert parsed_limits(headers) == {("tokens", 10, 5, None, 60, True)}
