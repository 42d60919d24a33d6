"""Thinking of models that sign none goes back to its provider alone, while the model calls tools."""

from __future__ import annotations

from typing import Any

import pytest

from specclient.anthropic_http.content import chat_messages
from specclient.anthropic_http.thinking import cleaned_messages, thinking_signature

OWN: Any = {"type": "thinking", "thinking": "hm", "signature": thinking_signature("deep", "reasoning")}
CALL: Any = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
RESULT: Any = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]}
QUESTION: Any = {"role": "user", "content": "x"}
CALLING: Any = {"role": "assistant", "content": [OWN, CALL]}


def _reasoning(messages: list[Any], provider: str | None) -> list[Any]:
    found = chat_messages({"messages": messages}, provider)
    return [message.get("reasoning") for message in found if message["role"] == "assistant"]


@pytest.mark.parametrize(("provider", "expected"), [("deep", "hm"), ("other", None), (None, None)])
def test_the_provider_gets_its_own_thinking_back(provider: str | None, expected: str | None) -> None:
    assert _reasoning([QUESTION, CALLING, RESULT], provider) == [expected]


def test_thinking_before_the_users_last_words_is_left_out() -> None:
    turns = [QUESTION, CALLING, RESULT, {"role": "assistant", "content": "so"}]
    assert _reasoning([*turns, QUESTION], "deep") == [None, None]
    assert _reasoning([*turns, QUESTION, CALLING, RESULT, CALLING, RESULT], "deep") == [
        None,
        None,
        "hm",
        "hm",
    ]


@pytest.mark.parametrize("signature", ["", None, 3, "EqQB", "specclient:deep"])
def test_signatures_of_others_are_nobodys(signature: Any) -> None:
    turn = {"role": "assistant", "content": [{**OWN, "signature": signature}, CALL]}
    assert _reasoning([QUESTION, turn, RESULT], "deep") == [None]


def test_anthropic_gets_no_thinking_and_no_fields_of_other_models() -> None:
    signed = {"type": "thinking", "thinking": "h", "signature": "EqQB"}
    extra = {**CALL, "extra_content": {"google": {"thought_signature": "s"}}}
    turn = {"role": "assistant", "content": [OWN, {**OWN, "signature": ""}, signed, extra, 3]}
    cleaned = cleaned_messages([QUESTION, turn, RESULT])
    assert cleaned == [QUESTION, {"role": "assistant", "content": [signed, CALL, 3]}, RESULT]
