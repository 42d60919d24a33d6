"""Objects with the fields as sent: what ``construct`` of the OpenAI client gives for the same values."""

from __future__ import annotations

import json
from typing import Any

import openai.types.chat
import openai.types.responses
import pytest
from both_clients import differences, plain

from specclient.types import BatchRequestCounts
from specclient.types.as_sent import RECEIVED, as_sent
from specclient.types.chat import ChatCompletion
from specclient.types.responses import Response

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
CALL = {"id": "t", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
BODIES: list[dict[str, Any]] = [
    {},
    {"created": "123", "id": 7},
    {"created": 123.5, "usage": {"prompt_tokens": "3", "completion_tokens_details": {"audio_tokens": 1.5}}},
    {"choices": [{"index": "0", "message": {"content": ["a"], "tool_calls": [CALL]}}], "more": {"a": [1]}},
    {"choices": [{"message": {"tool_calls": [{"type": "custom", "custom": {}}, {"type": "function"}]}}]},
]


@pytest.mark.parametrize("body", BODIES, ids=str)
def test_construct_converts_and_fills_in_nothing(body: dict[str, Any]) -> None:
    theirs, ours = openai.types.chat.ChatCompletion.construct(**body), ChatCompletion.construct(**body)
    assert list(differences(plain(ours, ""), plain(theirs, ""))) == []
    assert ours.created == theirs.created


@pytest.mark.parametrize("body", BODIES, ids=str)
def test_an_answer_as_sent_equals_the_constructed_one(body: dict[str, Any]) -> None:
    received = ChatCompletion.received(json.dumps({"choices": [], **body}).encode())
    theirs = openai.types.chat.ChatCompletion.construct(**{"choices": [], **body})
    assert list(differences(plain(as_sent(received), ""), plain(theirs, ""))) == []


def test_an_answer_as_documented_stays_the_same_object() -> None:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "a"}}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    received = ChatCompletion.received(json.dumps(body).encode())
    assert RECEIVED not in received.__dict__
    assert as_sent(received) is received
    assert as_sent(3) == 3


def test_members_of_unions_are_chosen_by_their_tag() -> None:
    content = [{"type": "output_text", "text": 3, "annotations": [{"type": "file_path", "index": "1"}]}]
    body: dict[str, Any] = {
        "created_at": 5,
        "output": [
            {"type": "message", "id": "m", "content": content},
            {"type": "function_call", "arguments": {"a": 1}},
        ],
        "tool_choice": "auto",
    }
    theirs, ours = openai.types.responses.Response.construct(**body), Response.construct(**body)
    assert list(differences(plain(ours, ""), plain(theirs, ""))) == []
    for mine, other in zip(ours.output, theirs.output, strict=True):
        assert type(mine).__name__ == type(other).__name__


def test_open_classes_keep_every_value() -> None:
    counts: Any = BatchRequestCounts.construct(completed="1", failed=None)
    assert (counts.completed, counts.failed) == ("1", None)
