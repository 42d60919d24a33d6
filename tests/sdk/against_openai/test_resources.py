"""All other core resources: the same requests, responses, events and pages as with the OpenAI client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from both_clients import Both, Side
from loopback_server import events, reply
from openai_calls import CALLS, RESPONSE, STORED, _events


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # an embedding encoded as text
@pytest.mark.parametrize("name", CALLS)
def test_each_call_sends_the_same_request_and_returns_the_same_object(both: Both, name: str) -> None:
    call, answer = CALLS[name]
    both.same(lambda side: side.get(call(side.client)), *([answer] if answer else []))


def test_a_streamed_response(both: Both) -> None:
    frames = [
        {"type": "response.created", "sequence_number": 0, "response": {**RESPONSE, "status": "in_progress"}},
        {
            "type": "response.output_text.delta",
            "sequence_number": 1,
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": 0,
            "delta": "hel",
            "logprobs": [],
        },
        {"type": "response.completed", "sequence_number": 2, "response": RESPONSE},
    ]
    answer = _events(*((frame["type"], json.dumps(frame)) for frame in frames))
    happened = both.same(
        lambda side: side.get(side.client.responses.create(model="m", input="hi", stream=True)), answer
    )
    assert len(happened.result) == 3
    both.same(
        lambda side: side.get(side.client.responses.retrieve("resp_1", stream=True, starting_after=2)), answer
    )


def test_an_event_of_an_unknown_type_is_yielded(both: Both) -> None:
    data = '{"type":"response.from_the_future","sequence_number":2,"news":[1]}'

    def scenario(side: Side) -> Any:
        events = side.get(side.client.responses.create(model="m", input="hi", stream=True))
        return [(event.type, event.to_dict()) for event in events] + [events[0].news]

    ending = json.dumps({"type": "response.completed", "sequence_number": 3, "response": RESPONSE})
    both.same(scenario, _events(("response.from_the_future", data), ("response.completed", ending)))


def test_an_error_event_of_a_response_stream(both: Both) -> None:
    data = '{"type":"error","code":"server_error","message":"broken","param":null,"sequence_number":1}'
    both.same(
        lambda side: side.get(side.client.responses.create(model="m", input="hi", stream=True)),
        _events(("error", data)),
    )


def test_an_error_event_of_a_chat_stream_raises(both: Both) -> None:
    data = '{"error":{"type":"server_error","code":"x","message":"broken","param":null}}'
    ask: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    both.same(
        lambda side: side.get(side.client.chat.completions.create(**ask)),
        events(f"data: {data}\n\n".encode()),
    )


PAGES = [
    {"object": "list", "data": [STORED], "first_id": "a", "last_id": "b", "has_more": True},
    {"object": "list", "data": [{**STORED, "id": "2"}], "first_id": "a", "last_id": "b", "has_more": False},
]


def test_iterating_over_all_pages(both: Both) -> None:
    happened = both.same(
        lambda side: side.items(side.client.chat.completions.list(limit=1)),
        *(reply(200, page) for page in PAGES),
    )
    assert [item["dump"]["id"] for item in happened.result] == ["chatcmpl-1", "2"]


def test_getting_the_next_page_explicitly(both: Both) -> None:
    def scenario(side: Side) -> Any:
        first = side.get(side.client.chat.completions.list(limit=1))
        second = side.get(first.get_next_page())
        state = [first.has_next_page(), second.has_next_page(), len(first.data), second]
        state.append(first.next_page_info() is not None)
        side.get(second.get_next_page())
        return state

    both.same(scenario, *(reply(200, page) for page in PAGES), reply(200, {"object": "list", "data": []}))


def test_iterating_page_by_page(both: Both) -> None:
    both.same(
        lambda side: side.items(side.get(side.client.chat.completions.list()).iter_pages()),
        *(reply(200, page) for page in PAGES),
    )


def test_models_are_listed_in_a_single_page(both: Both) -> None:
    def scenario(side: Side) -> Any:
        page = side.get(side.client.models.list())
        ids = [model.id for model in side.items(page)]
        with pytest.raises(RuntimeError) as caught:
            side.get(page.get_next_page())
        return ids, page.has_next_page(), str(caught.value)

    both.same(scenario)


def test_ids_that_are_empty_or_path_segments_raise(both: Both) -> None:
    for call in (
        lambda c: c.responses.retrieve(""),
        lambda c: c.models.retrieve(""),
        lambda c: c.chat.completions.delete(".."),
    ):
        both.same(lambda side, call=call: side.get(call(side.client)))
