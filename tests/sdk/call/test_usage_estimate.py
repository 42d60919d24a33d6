"""Estimated usage: what is counted, once, and which prompts are too long for an event loop."""

from __future__ import annotations

from typing import Any

import pytest

from specclient import tokens
from specclient.call.usage_estimate import UsageEstimate
from specclient.types.inference_methods import CHAT
from specclient.types.request import Request
from specclient.types.usage import Usage


def _estimate(content: Any) -> UsageEstimate:
    return UsageEstimate(Request(CHAT, "mine/m", {"messages": [{"role": "user", "content": content}]}), "m")


@pytest.mark.parametrize(
    ("content", "is_long"),
    [
        ("a few words", False),
        ("word " * 20_000, True),
        ([1] * 10_000, True),
        ([{"type": "text", "text": "x"}] * 100, False),
        ([{"type": "text", "text": "x"}] * 10_000, True),
    ],
    ids=["short", "text", "numbers", "parts", "many parts"],
)
def test_long_texts_and_many_values_are_long(content: Any, is_long: bool) -> None:
    assert _estimate(content).is_long is is_long


def test_the_prompt_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    estimate = _estimate("a few words")
    counted = estimate.count_prompt()
    assert counted > 3
    monkeypatch.setattr(tokens, "count_prompt", None)
    expected = Usage(prompt=counted, completion=2, estimated=True, traffic="flex")
    assert estimate.usage("two words", "flex") == expected
