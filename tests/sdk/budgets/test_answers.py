"""The limit of an answer that is reserved for a request without one."""

from __future__ import annotations

import pytest

from specclient.budgets.answers import ANSWER_TOKENS, assumed_limit


@pytest.mark.parametrize(
    ("operation", "model", "longest", "room", "limit"),
    [
        ("chat", "m", None, None, ANSWER_TOKENS),
        ("chat", "m", 9, None, ANSWER_TOKENS),
        ("chat", "m", 9000, None, 9000),  # what the model can write is not known: no more than it has written
        ("chat", "gpt-5-mini", 4096, None, 8192),  # so that a cut answer is followed by longer ones
        ("chat", "gpt-4o", 16_000, None, 16_384),
        ("chat", "anthropic/claude-3-5-haiku", 8000, None, 8192),
        ("response", "gpt-5", 100_000, None, 128_000),
        ("chat", "m", None, 1000, 1000),
        ("chat", "m", None, -5, 1),
        ("completion", "m", 9000, None, 16),  # the default of OpenAI's API
    ],
)
def test_the_limit_of_an_answer_that_is_assumed(
    operation: str, model: str, longest: int | None, room: int | None, limit: int
) -> None:
    assert assumed_limit(operation, model, longest, room) == limit
