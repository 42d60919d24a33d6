"""Calls of OpenAI's resources, each with the server's response."""

from __future__ import annotations

import base64
import struct
from typing import Any

from loopback_server import Behaviour, events, reply

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
#: A listed item with every field set: the list's item class is open, so its dump has only received fields.
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
