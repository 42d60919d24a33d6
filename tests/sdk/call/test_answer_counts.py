"""Counts of an answer are the same for a complete and a streamed one, and missing where they are unknown."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from specclient.call.answer_counts import AnswerCounter
from specclient.ledger.figures import COUNTED
from specclient.types.call import Call
from specclient.types.chat.chat_completion import ChatCompletion
from specclient.types.chat.chat_completion_chunk import ChatCompletionChunk
from specclient.types.completion import Completion
from specclient.types.responses import Response
from specclient.types.route import Decision


def chat(*messages: dict[str, Any]) -> Any:
    choices = [{"index": n, "message": {"role": "assistant", **each}} for n, each in enumerate(messages)]
    return ChatCompletion.model_validate({"id": "c", "model": "m", "created": 1, "choices": choices})


def chunk(index: int, delta: dict[str, Any]) -> Any:
    choices = [{"index": index, "delta": delta}]
    return ChatCompletionChunk.model_validate({"id": "c", "model": "m", "created": 1, "choices": choices})


def tool_call(index: int = 0) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    return {"index": index, "id": f"t{index}", "type": "function", "function": function}


def response(*kinds: str) -> Any:
    return Response.model_validate({"id": "r", "model": "m", "output": [{"type": kind} for kind in kinds]})


class Event:
    def __init__(self, **fields: Any) -> None:
        self.__dict__ |= fields


def test_tool_calls_of_a_chat_answer() -> None:
    counter = AnswerCounter()
    counter.note_answer(chat({"content": "a"}, {"tool_calls": [tool_call(), tool_call(1)]}))
    assert counter.counts() == {"tool_calls": 2}
    plain = AnswerCounter()
    plain.note_answer(chat({"content": "a"}))
    assert plain.counts() == {"tool_calls": 0}


def test_tool_calls_of_a_chat_stream_come_in_pieces() -> None:
    counter, seen = AnswerCounter(), []
    for index, delta in (
        (0, {"role": "assistant", "content": ""}),
        (0, {"tool_calls": [tool_call()]}),
        (0, {"tool_calls": [{"index": 0, "function": {"arguments": " "}}]}),
        (0, {"tool_calls": [tool_call(1)]}),
        (1, {"tool_calls": [tool_call()]}),
        (0, {}),
    ):
        counter.note_chunk(chunk(index, delta))
        seen.append(counter.counts()["tool_calls"])
    assert seen == [0, 1, 1, 2, 3, 3]


def test_tool_calls_of_a_response_are_the_callers() -> None:
    counter = AnswerCounter()
    counter.note_response(response("message", "function_call", "web_search_call", "custom_tool_call"))
    assert counter.counts() == {"tool_calls": 2}


def test_tool_calls_of_a_response_stream_are_known_before_its_end() -> None:
    counter = AnswerCounter()
    counter.note_event("response.created", Event(response=response()))
    assert counter.counts() == {}
    for kind in ("message", "function_call", "function_call"):
        counter.note_event("response.output_item.added", Event(item=Event(type=kind)))
    assert counter.counts() == {"tool_calls": 2}
    counter.note_event("error", Event())
    assert counter.counts() == {"tool_calls": 2}
    counter.note_event("response.completed", Event(response=response("function_call")))
    assert counter.counts() == {"tool_calls": 1}


def test_other_answers_have_no_counts() -> None:
    counter = AnswerCounter()
    text = {"id": "c", "model": "m", "created": 1, "choices": [{"index": 0, "text": "a"}]}
    completion: Any = Completion.model_validate(text)
    counter.note_answer(completion)
    counter.note_chunk(completion)
    counter.note_event("image_generation.completed", Event())
    assert counter.counts() == {}


def test_every_count_has_a_figure() -> None:
    counter = AnswerCounter()
    counter.note_answer(chat({"content": "a"}))
    assert set(counter.counts()) == {each.name for each in COUNTED}


def test_counts_of_a_call_cannot_be_changed() -> None:
    counter = AnswerCounter()
    counter.note_answer(chat({"tool_calls": [tool_call()]}))
    call = Call(
        id="c",
        started_at=datetime(2026, 1, 31, tzinfo=UTC),
        operation="chat",
        model="m",
        route=Decision("p/m", "p", "m"),
        counts=counter.counts(),
    )
    with pytest.raises(TypeError, match="cannot be changed"):
        call.counts["tool_calls"] = 0  # type: ignore[index]
    assert pickle.loads(pickle.dumps(call)) == call
