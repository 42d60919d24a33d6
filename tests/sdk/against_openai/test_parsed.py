"""Answers in a given form, and streams of events: the same objects as the OpenAI client's."""

from __future__ import annotations

import json
from typing import Any

import pydantic
import pytest
from both_clients import Both, Side
from loopback_server import events, reply
from openai_calls import RESPONSE

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of a dump of what is parsed


class Point(pydantic.BaseModel):
    x: int
    y: int


ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
FRAME = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}


def answered(content: str, **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "refusal": None, **fields}
    return {**FRAME, "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}]}


def streamed(*texts: str) -> Any:
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


def test_a_parsed_chat(both: Both) -> None:
    def scenario(side: Side) -> Any:
        found = side.get(side.client.chat.completions.parse(**ASK, response_format=Point))
        return [found, found.choices[0].message.parsed == Point(x=1, y=2)]

    assert both.same(scenario, reply(200, answered('{"x":1,"y":2}'))).error is None


def test_a_chat_that_does_not_parse(both: Both) -> None:
    cut = answered('{"x":1')
    cut["choices"][0]["finish_reason"] = "length"
    refused = answered("")
    refused["choices"][0]["finish_reason"] = "content_filter"
    for body in (cut, refused, answered('{"x":"no"}')):
        happened = both.same(
            lambda side: side.get(side.client.chat.completions.parse(**ASK, response_format=Point)),
            reply(200, body),
        )
        assert happened.error is not None


def test_a_chat_with_a_parsed_tool_call(both: Both) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "Point", "arguments": '{"x":1,"y":2}'}}

    def scenario(side: Side) -> Any:
        tool = side.lib.pydantic_function_tool(Point, description="a point")
        found = side.get(side.client.chat.completions.parse(**ASK, tools=[tool]))
        return [found, found.choices[0].message.tool_calls[0].function.parsed_arguments == Point(x=1, y=2)]

    assert both.same(scenario, reply(200, answered("", tool_calls=[call]))).error is None


def test_a_stream_of_chat_events(both: Both) -> None:
    def scenario(side: Side) -> Any:
        manager = side.client.chat.completions.stream(**ASK, response_format=Point)
        with side.within(manager) as stream:
            seen = [(event.type, getattr(event, "parsed", None)) for event in side.items(stream)]
            final = side.get(stream.get_final_completion())
        return [seen, final]

    assert both.same(scenario, streamed('{"x":', '1,"y"', ":2}")).error is None


def test_a_parsed_response(both: Both) -> None:
    def scenario(side: Side) -> Any:
        found = side.get(side.client.responses.parse(model="m", input="hi", text_format=Point))
        return [found, found.output_parsed == Point(x=1, y=2), found.output_text]

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
