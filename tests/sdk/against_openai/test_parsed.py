"""Structured outputs and event streams: the same objects as with the OpenAI client."""

from __future__ import annotations

import json
from typing import Any

import pydantic
import pytest
from both_clients import Both, Side
from loopback_server import events, reply
from openai_calls import RESPONSE

# Dumps of parsed models emit these warnings.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")


class Point(pydantic.BaseModel):
    x: int
    y: int


ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
FRAME = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}


def chat_completion(content: str, **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "refusal": None, **fields}
    return {**FRAME, "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}]}


def chat_stream(*texts: str) -> Any:
    chunks = [
        {"delta": {"role": "assistant", "content": ""}},
        *({"delta": {"content": text}} for text in texts),
    ]
    frames = [
        {
            **FRAME,
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "finish_reason": None, **chunk}],
        }
        for chunk in [*chunks, {"delta": {}, "finish_reason": "stop"}]
    ]
    return events(*(f"data: {json.dumps(frame)}\n\n".encode() for frame in frames), b"data: [DONE]\n\n")


def test_a_parsed_chat_completion(both: Both) -> None:
    def scenario(side: Side) -> Any:
        answer = side.get(side.client.chat.completions.parse(**ASK, response_format=Point))
        return [answer, answer.choices[0].message.parsed == Point(x=1, y=2)]

    assert both.same(scenario, reply(200, chat_completion('{"x":1,"y":2}'))).error is None


def test_truncated_filtered_and_invalid_completions_raise_the_same_errors(both: Both) -> None:
    cut = chat_completion('{"x":1')
    cut["choices"][0]["finish_reason"] = "length"
    refused = chat_completion("")
    refused["choices"][0]["finish_reason"] = "content_filter"
    for body in (cut, refused, chat_completion('{"x":"no"}')):
        happened = both.same(
            lambda side: side.get(side.client.chat.completions.parse(**ASK, response_format=Point)),
            reply(200, body),
        )
        assert happened.error is not None


def test_a_chat_completion_with_parsed_tool_arguments(both: Both) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "Point", "arguments": '{"x":1,"y":2}'}}

    def scenario(side: Side) -> Any:
        tool = side.lib.pydantic_function_tool(Point, description="a point")
        answer = side.get(side.client.chat.completions.parse(**ASK, tools=[tool]))
        return [answer, answer.choices[0].message.tool_calls[0].function.parsed_arguments == Point(x=1, y=2)]

    assert both.same(scenario, reply(200, chat_completion("", tool_calls=[call]))).error is None


def test_a_stream_of_chat_events(both: Both) -> None:
    def scenario(side: Side) -> Any:
        manager = side.client.chat.completions.stream(**ASK, response_format=Point)
        with side.within(manager) as stream:
            seen = [(event.type, getattr(event, "parsed", None)) for event in side.items(stream)]
            final = side.get(stream.get_final_completion())
        return [seen, final]

    assert both.same(scenario, chat_stream('{"x":', '1,"y"', ":2}")).error is None


def test_a_parsed_response(both: Both) -> None:
    def scenario(side: Side) -> Any:
        answer = side.get(side.client.responses.parse(model="m", input="hi", text_format=Point))
        return [answer, answer.output_parsed == Point(x=1, y=2), answer.output_text]

    content = [{"type": "output_text", "text": '{"x":1,"y":2}', "annotations": []}]
    body = {**RESPONSE, "output": [{**RESPONSE["output"][0], "content": content}]}
    assert both.same(scenario, reply(200, body)).error is None


def test_a_stream_of_response_events(both: Both) -> None:
    item = {**RESPONSE["output"][0], "content": [], "status": "in_progress"}
    part = {"type": "output_text", "text": "", "annotations": []}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    bodies: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **place, "part": part},
        {"type": "response.output_text.delta", **place, "delta": "hel", "logprobs": []},
        {"type": "response.output_text.delta", **place, "delta": "lo", "logprobs": []},
        {"type": "response.output_text.done", **place, "text": "hello", "logprobs": []},
        {"type": "response.completed", "response": RESPONSE},
    ]
    frames = [{**body, "sequence_number": number} for number, body in enumerate(bodies)]
    answer = events(*(f"event: {frame['type']}\ndata: {json.dumps(frame)}\n\n".encode() for frame in frames))

    def scenario(side: Side) -> Any:
        with side.within(side.client.responses.stream(model="m", input="hi")) as stream:
            seen = [(event.type, getattr(event, "snapshot", None)) for event in side.items(stream)]
            final = side.get(stream.get_final_response())
        return [seen, final.to_dict(mode="json"), final.output_text]

    assert both.same(scenario, answer).error is None
