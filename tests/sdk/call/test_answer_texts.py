"""The text of an answer is the same, complete and streamed, for every place that generated text has."""

from __future__ import annotations

from typing import Any

import pytest

from specclient.call.answer_texts import AnswerTexts
from specclient.types.chat.chat_completion import ChatCompletion
from specclient.types.chat.chat_completion_chunk import ChatCompletionChunk
from specclient.types.completion import Completion

TOOL = {"index": 0, "id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def complete(*messages: dict[str, Any]) -> AnswerTexts:
    choices = [{"index": n, "message": {"role": "assistant", **each}} for n, each in enumerate(messages)]
    answer = ChatCompletion.model_validate({"id": "c", "model": "m", "created": 1, "choices": choices})
    texts = AnswerTexts()
    for choice in answer.choices:
        texts.add_choice(choice)
    return texts


def streamed(*deltas: tuple[int, dict[str, Any]]) -> tuple[AnswerTexts, list[bool]]:
    texts, found = AnswerTexts(), []
    for index, delta in deltas:
        body = {"id": "c", "model": "m", "created": 1, "choices": [{"index": index, "delta": delta}]}
        found += [texts.add_choice(choice) for choice in ChatCompletionChunk.model_validate(body).choices]
    return texts, found


@pytest.mark.parametrize(
    ("message", "text", "whole"),
    [
        ({"content": "a"}, "a", "a"),
        ({"content": "a", "reasoning": "r"}, "a", "ar"),
        ({"content": None, "reasoning_content": "r"}, "", "r"),
        ({"content": None, "refusal": "no"}, "", "no"),
        ({"content": None, "tool_calls": [TOOL]}, "", "f{}"),
        ({"content": None}, "", ""),
    ],
)
def test_text_beside_the_content_is_kept_apart(message: dict[str, Any], text: str, whole: str) -> None:
    for texts in (complete(message), streamed((0, message))[0]):
        assert (texts.text, texts.whole) == (text, whole)


def test_other_choices_are_in_the_whole_text_alone() -> None:
    pieces = streamed(
        (0, {"content": "a"}), (1, {"content": "x"}), (0, {"content": "b"}), (0, {"role": "tool"})
    )
    texts, found = pieces
    assert (texts.text, texts.whole) == ("ab", "abx")
    assert found == [True, True, True, False]
    both = complete({"content": "ab"}, {"content": "x"})
    assert (both.text, both.whole) == ("ab", "abx")


def test_text_completions_have_text_without_a_message() -> None:
    choices = [{"index": n, "text": text, "finish_reason": "stop"} for n, text in enumerate("ab")]
    body = {"id": "c", "object": "text_completion", "model": "m", "created": 1, "choices": choices}
    texts = AnswerTexts()
    assert all(texts.add_choice(choice) for choice in Completion.model_validate(body).choices)
    assert (texts.text, texts.whole) == ("a", "ab")
