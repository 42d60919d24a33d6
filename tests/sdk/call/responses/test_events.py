"""Events of a response from chunks, and the same events once more from what is stored of it."""

from __future__ import annotations

import json
from typing import Any

from specclient.call.responses.events import ResponseEventBuilder, delta_of, replayed_events
from specclient.call.responses.translation import typed_event
from specclient.types.chat import ChatCompletionChunk
from specclient.types.inference_methods import RESPONSE
from specclient.types.request import Request


def chunk(delta: Any, finish: str | None = None) -> ChatCompletionChunk:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return ChatCompletionChunk.received(json.dumps(body).encode())


def call(index: int, arguments: str, name: str | None = None) -> Any:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {"tool_calls": [{"index": index, "id": f"call_{index}" if name else None, "function": function}]}


def test_text_and_interleaved_calls_are_replayed_as_they_came() -> None:
    builder = ResponseEventBuilder(Request(RESPONSE, "local/demo", {"input": "x"}))
    made = list(builder.begin())
    for each in (
        chunk({"content": "Let"}),
        chunk({"content": " me"}),
        chunk(call(0, "", "sky")),
        chunk(call(1, '{"a"', "sea")),
        chunk(call(0, "{}")),
        chunk(call(1, ": 1}")),
        chunk(call(2, "", "idle"), "tool_calls"),
    ):
        made += list(builder.of(each))
    # Events are made one after the other of the same growing items, so each is kept as it was.
    made = [*made, *builder.end()]
    response = made[-1]["response"]
    deltas = [delta for event in made if (delta := delta_of(typed_event(event))) is not None]
    again = list(replayed_events(json.loads(json.dumps(response)), deltas))
    kinds = [event["type"] for event in again]
    assert kinds == [event["type"] for event in made]
    assert [event["sequence_number"] for event in again] == list(range(len(made)))
    pieces = [(event["output_index"], event["delta"]) for event in again if "delta" in event]
    assert pieces == [(event["output_index"], event["delta"]) for event in made if "delta" in event]
    assert again[-1] == made[-1]
    assert [item["status"] for item in response["output"]] == ["completed"] * 4
    assert response["output"][2]["arguments"] == '{"a": 1}'


def test_only_the_last_item_of_an_answer_that_was_cut_off_is_incomplete() -> None:
    builder = ResponseEventBuilder(Request(RESPONSE, "local/demo", {"input": "x"}))
    list(builder.begin())
    for each in (chunk({"content": "Hm"}), chunk(call(0, "{", "sky"), "length")):
        list(builder.of(each))
    *_, last = builder.end()
    assert last["type"] == "response.incomplete"
    assert [item["status"] for item in last["response"]["output"]] == ["completed", "incomplete"]
