"""Tagged unions: items and events get the class of their type, even with irregular fields."""

from __future__ import annotations

import json
from typing import Any

import pydantic
import pytest

from specclient.types.base import read_as
from specclient.types.chat import ChatCompletion, ParsedChatCompletion
from specclient.types.open import OpenObject
from specclient.types.responses import (
    ParsedResponse,
    ParsedResponseFunctionToolCall,
    Response,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputRefusal,
    ResponseStreamEvent,
    ResponseTextDeltaEvent,
)

read_event = read_as(ResponseStreamEvent)


def output_of(*items: Any) -> list[Any]:
    answer = Response.received(json.dumps({"id": "r", "output": items}).encode())
    assert answer.to_dict()["output"] == list(items)
    return answer.output


def test_each_item_gets_the_class_of_its_type() -> None:
    refusal = {"type": "refusal", "refusal": "no"}
    message, call, alien, typeless = output_of(
        {"type": "message", "content": [refusal, {"type": "hologram", "x": {"y": [1]}}]},
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"type": "alien", "probe": {"depth": 1}},
        {"content": [refusal]},
    )
    assert type(message) is type(typeless) is ResponseOutputMessage
    assert type(call) is ResponseFunctionToolCall
    assert type(message.content[0]) is type(typeless.content[0]) is ResponseOutputRefusal
    assert (type(alien), alien.probe.depth) == (OpenObject, 1)
    assert message.content[1].x.y == [1]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_irregular_fields_do_not_change_an_items_class() -> None:
    # The item's type is also the name of one of its fields; so is the part's.
    item = {
        "type": "message",
        "message": [1],
        "id": {"a": 1},
        "content": [{"type": "refusal", "refusal": [7]}],
    }
    (message,) = output_of(item)
    assert type(message) is ResponseOutputMessage
    assert (message.id, message.content[0].refusal) == ({"a": 1}, [7])
    assert type(message.content[0]) is ResponseOutputRefusal


def test_an_item_whose_type_is_no_text_is_kept() -> None:
    answer = Response.received(b'{"output":[{"type":[1],"a":2}]}')
    assert answer.to_dict() == {"output": [{"type": [1], "a": 2}]}


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(
    "output",
    [
        None,
        "x",
        3,
        [3],
        [{"type": "message"}, None],
        {"type": "message"},
        [{"type": "message", "id": [1]}, 3],
    ],
)
def test_output_of_an_unexpected_shape_is_kept(output: Any) -> None:
    answer = Response.received(json.dumps({"id": "r", "output": output}).encode())
    assert answer.output == output
    assert answer.id == "r"
    assert answer.to_dict() == {"id": "r", "output": output}


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_events_get_the_class_of_their_type() -> None:
    body = {"type": "response.output_text.delta", "delta": "a", "output_index": "first", "logprobs": None}
    event = read_event(json.dumps(body).encode())
    assert type(event) is ResponseTextDeltaEvent
    assert (event.delta, event.output_index, event.sequence_number) == ("a", "first", None)
    assert event.to_dict() == body
    assert read_event(b'{"type": "response.teleported", "to": {"x": 1}}').to.x == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"null", b'"x"', b"\xff", b"[" * 10_000])
def test_content_that_is_not_an_object_is_an_error(content: bytes) -> None:
    for read in (read_event, Response.received, ChatCompletion.received):
        with pytest.raises(pydantic.ValidationError):
            read(content)


def test_existing_objects_are_not_converted() -> None:
    message = ResponseOutputMessage.model_validate({"type": "message", "id": "m", "content": []})
    answer = Response.construct(id="r", output=[message])
    assert answer.output == [message]
    assert answer.to_dict()["output"] == [{"id": "m", "content": [], "type": "message"}]


def test_parsed_values_are_typed_and_excluded_from_requests() -> None:
    text = {"type": "output_text", "text": "[1]", "parsed": [1]}
    call = {"type": "function_call", "name": "f", "arguments": "{}", "parsed_arguments": {"a": 1}}
    answer: Any = ParsedResponse[list[int]].model_validate(
        {"output": [{"type": "reasoning"}, {"type": "message", "content": [text]}, call]}
    )
    assert (answer.output_parsed, answer.output_text) == ([1], "[1]")
    assert type(answer.output[2]) is ParsedResponseFunctionToolCall
    for item, key in ((answer.output[1].content[0], "parsed"), (answer.output[2], "parsed_arguments")):
        sent = (
            item.to_dict().keys() - item.model_dump(exclude=item.__api_exclude__, exclude_unset=True).keys()
        )
        assert sent == {key}
    message = answer.output[1]
    (part,) = message.model_dump(exclude=message.__api_exclude__)["content"]
    assert "parsed" not in part
    assert part["text"] == "[1]"
    chat: Any = ParsedChatCompletion[list[int]].model_validate(
        {"choices": [{"message": {"content": "[1]", "parsed": ["1"]}}]}
    )
    assert chat.choices[0].message.parsed == [1]
