"""Every other core resource: the same requests, answers, events and pages as the OpenAI client's."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from differential.both import Both, Side
from servers import Behaviour, events, reply

MODEL = {"id": "m-large", "object": "model", "created": 1, "owned_by": "tests"}
LISTED = {"object": "list", "data": [MODEL, {**MODEL, "id": "m-small"}]}
STORED: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m-large",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "logprobs": None,
            "message": {"role": "assistant", "content": "hi"},
        }
    ],
}
RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m-large",
    "status": "completed",
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "hello", "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 1},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 5,
    },
}
#: What is listed here is of an open class, so that its dump holds what came: every field is there.
ITEM: dict[str, Any] = {
    **RESPONSE["output"][0],
    "phase": None,
    "content": [{"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}],
}
MODERATED: dict[str, Any] = {
    "id": "modr-1",
    "model": "omni-moderation-latest",
    "results": [
        {
            "flagged": True,
            "categories": {"hate": False, "self-harm/intent": True},
            "category_scores": {"hate": 0.1, "self-harm/intent": 0.9},
            "category_applied_input_types": {"hate": ["text"]},
        }
    ],
}
VECTOR = base64.b64encode(struct.pack("<3f", 0.5, -0.25, 2.0)).decode()


def _embedded(vector: Any) -> dict[str, Any]:
    return {
        "object": "list",
        "model": "m",
        "data": [{"object": "embedding", "index": 0, "embedding": vector}],
        "usage": {"prompt_tokens": 2, "total_tokens": 2},
    }


def _events(*bodies: tuple[str, str]) -> Behaviour:
    return events(*(f"event: {name}\ndata: {data}\n\n".encode() for name, data in bodies))


CALLS: dict[str, tuple[Any, Behaviour]] = {
    "chat.completions.retrieve": (lambda c: c.chat.completions.retrieve("chatcmpl-1"), reply(200, STORED)),
    "chat.completions.update": (
        lambda c: c.chat.completions.update("chatcmpl-1", metadata={"a": "b"}),
        reply(200, STORED),
    ),
    "chat.completions.list": (
        lambda c: c.chat.completions.list(limit=2, metadata={"a": "b"}, order="asc", model="m"),
        reply(200, {"object": "list", "data": [STORED], "first_id": "a", "last_id": "b", "has_more": False}),
    ),
    "chat.completions.delete": (
        lambda c: c.chat.completions.delete("chatcmpl-1"),
        reply(200, {"id": "chatcmpl-1", "object": "chat.completion.deleted", "deleted": True}),
    ),
    "chat.completions.messages.list": (
        lambda c: c.chat.completions.messages.list("chatcmpl-1", after="x"),
        reply(
            200,
            {"object": "list", "data": [{"id": "m1", "role": "user", "content": "hi"}], "has_more": False},
        ),
    ),
    "completions.create": (
        lambda c: c.completions.create(model="m-large", prompt="Once", max_tokens=3),
        None,
    ),
    "completions.create tokens": (
        lambda c: c.completions.create(model="m-large", prompt=[[1, 2], [3]]),
        None,
    ),
    "completions.create streamed": (
        lambda c: c.completions.create(model="m-large", prompt=["a", "b"], stream=True),
        None,
    ),
    "responses.create": (lambda c: c.responses.create(model="m", input="hi"), reply(200, RESPONSE)),
    "responses.create none": (lambda c: c.responses.create(), reply(200, RESPONSE)),
    "responses.retrieve": (
        lambda c: c.responses.retrieve("resp_1", include=["reasoning.encrypted_content"]),
        reply(200, RESPONSE),
    ),
    "responses.cancel": (lambda c: c.responses.cancel("resp_1"), reply(200, RESPONSE)),
    "responses.delete": (lambda c: c.responses.delete("resp_1"), reply(200, b"")),
    "responses.delete json": (lambda c: c.responses.delete("resp_1"), reply(200, {"deleted": True})),
    "responses.input_items.list": (
        lambda c: c.responses.input_items.list(
            "resp_1", order="asc", include=["message.input_image.image_url"]
        ),
        reply(
            200,
            {
                "object": "list",
                "data": [ITEM],
                "first_id": "a",
                "last_id": "b",
                "has_more": False,
            },
        ),
    ),
    "embeddings.create": (
        lambda c: c.embeddings.create(model="m", input="hi"),
        reply(200, _embedded(VECTOR)),
    ),
    "embeddings.create numbers": (
        lambda c: c.embeddings.create(model="m", input=["hi", "ho"], dimensions=3),
        reply(200, _embedded([0.5, 1])),
    ),
    "embeddings.create base64": (
        lambda c: c.embeddings.create(model="m", input=[1, 2], encoding_format="base64"),
        reply(200, _embedded(VECTOR)),
    ),
    "embeddings.create float": (
        lambda c: c.embeddings.create(model="m", input=[[1], [2]], encoding_format="float"),
        reply(200, _embedded([1.0])),
    ),
    "models.list": (lambda c: c.models.list(), reply(200, LISTED)),
    "models.retrieve": (lambda c: c.models.retrieve("ft:m/large"), reply(200, MODEL)),
    "models.delete": (
        lambda c: c.models.delete("ft:m"),
        reply(200, {"id": "ft:m", "object": "model", "deleted": True}),
    ),
    "moderations.create": (lambda c: c.moderations.create(input="hi"), reply(200, MODERATED)),
    "moderations.create parts": (
        lambda c: c.moderations.create(input=[{"type": "text", "text": "t"}], model="omni-moderation-latest"),
        reply(200, MODERATED),
    ),
}


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # a vector that is text
@pytest.mark.parametrize("name", CALLS)
def test_calls(both: Both, name: str) -> None:
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


def test_an_event_from_the_future(both: Both) -> None:
    data = '{"type":"response.from_the_future","sequence_number":2,"news":[1]}'

    def scenario(side: Side) -> Any:
        events = side.get(side.client.responses.create(model="m", input="hi", stream=True))
        return [(event.type, event.to_dict()) for event in events] + [events[0].news]

    ending = json.dumps({"type": "response.completed", "sequence_number": 3, "response": RESPONSE})
    both.same(scenario, _events(("response.from_the_future", data), ("response.completed", ending)))


def test_an_error_event_of_a_response(both: Both) -> None:
    data = '{"type":"error","code":"server_error","message":"broken","param":null,"sequence_number":1}'
    both.same(
        lambda side: side.get(side.client.responses.create(model="m", input="hi", stream=True)),
        _events(("error", data)),
    )


def test_an_error_event_of_a_chat(both: Both) -> None:
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


def test_walking_pages_by_hand(both: Both) -> None:
    def scenario(side: Side) -> Any:
        first = side.get(side.client.chat.completions.list(limit=1))
        second = side.get(first.get_next_page())
        found = [first.has_next_page(), second.has_next_page(), len(first.data), second]
        found.append(first.next_page_info() is not None)
        side.get(second.get_next_page())
        return found

    both.same(scenario, *(reply(200, page) for page in PAGES), reply(200, {"object": "list", "data": []}))


def test_iterating_page_by_page(both: Both) -> None:
    both.same(
        lambda side: side.items(side.get(side.client.chat.completions.list()).iter_pages()),
        *(reply(200, page) for page in PAGES),
    )


def test_models_are_one_page(both: Both) -> None:
    def scenario(side: Side) -> Any:
        page = side.get(side.client.models.list())
        ids = [model.id for model in side.items(page)]
        with pytest.raises(RuntimeError) as caught:
            side.get(page.get_next_page())
        return ids, page.has_next_page(), str(caught.value)

    both.same(scenario)


def test_resources_without_a_place_refuse_it(both: Both) -> None:
    for call in (
        lambda c: c.responses.retrieve(""),
        lambda c: c.models.retrieve(""),
        lambda c: c.chat.completions.delete(".."),
    ):
        both.same(lambda side, call=call: side.get(call(side.client)))
