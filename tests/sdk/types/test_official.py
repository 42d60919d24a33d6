"""API objects as instances of the `openai` package's classes, in `isinstance` and in pydantic's fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import openai.types.chat.chat_completion as their_chat
import openai.types.responses.response_usage as their_usage
import pydantic
from openai.types import chat as their_chats
from openai.types import responses as theirs

from specclient import types as ours
from specclient.types.base import WireModel
from specclient.types.chat import ChatCompletion
from specclient.types.official import namesakes
from specclient.types.open import open_class
from specclient.types.responses import Response

ANSWER = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "Hi", "refusal": None},
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


def test_a_chat_completion_and_its_parts_are_instances_of_the_official_classes() -> None:
    answer = ChatCompletion.received(json.dumps(ANSWER).encode())
    assert isinstance(answer, their_chat.ChatCompletion)
    assert isinstance(answer, openai.BaseModel)
    assert isinstance(answer.choices[0], their_chat.Choice)
    assert isinstance(answer.choices[0].message, their_chats.ChatCompletionMessage)
    assert isinstance(answer.usage, openai.types.CompletionUsage)
    assert not isinstance(answer, openai.types.Completion)
    assert not isinstance(answer.choices[0], their_chats.chat_completion_chunk.Choice)


def test_official_classes_of_fields_accept_our_objects() -> None:
    class Usage(pydantic.BaseModel):
        details: their_usage.InputTokensDetails
        answer: their_chat.ChatCompletion

    response = Response.construct(
        usage={"input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0}}
    )
    answer = ChatCompletion.received(json.dumps(ANSWER).encode())
    made = Usage(details=response.usage.input_tokens_details, answer=answer)
    assert made.answer is answer
    assert made.model_dump()["details"]["cached_tokens"] == 1


def test_a_class_without_a_namesake_is_that_of_its_base_class() -> None:
    class Mine(ChatCompletion):
        pass

    class Bare(WireModel):
        pass

    assert namesakes(Mine) == []
    assert isinstance(Mine.construct(), their_chat.ChatCompletion)
    assert isinstance(Bare(), openai.BaseModel)
    assert not isinstance(Bare(), their_chat.ChatCompletion)


def test_open_classes_have_the_official_class_of_their_path() -> None:
    made = open_class("VectorStore").model_validate({"id": "vs_1"})
    assert isinstance(made, openai.types.VectorStore)
    assert isinstance(ours.responses.ResponseOutputText.construct(), theirs.ResponseOutputText)


def test_every_declared_class_of_an_official_module_is_an_instance_of_it() -> None:
    missed = [
        f"{official.__module__}.{official.__name__}"
        for name in ("chat", "responses")
        for official in _models(getattr(openai.types, name))
        if official not in namesakes(getattr(getattr(ours, name), official.__name__))
    ]
    assert missed == []


def _models(package: Any) -> Iterator[type]:
    for value in vars(package).values():
        if isinstance(value, type) and issubclass(value, openai.BaseModel):
            yield value


def test_what_pydantic_does_by_the_class_of_an_object_still_works() -> None:
    answer = ChatCompletion.received(json.dumps(ANSWER).encode())
    answer.model = "other"
    answer.extra_field = 1  # type: ignore[attr-defined]
    assert answer.model_dump()["extra_field"] == 1
    assert answer == answer.model_copy(deep=True)
    assert answer != ChatCompletion.received(json.dumps(ANSWER).encode())
    assert "ChatCompletion(id='1'" in repr(answer)
