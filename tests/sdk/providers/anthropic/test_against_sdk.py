"""The requests of this client equal those of the anthropic package, and both read streams alike."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pydantic
import pytest
from anthropic_bodies import DIALECT, KEY, PAIRS, body, chunks, completion, settings
from loopback_server import OpenAIServer, events, reply

from specclient import OpenAI

anthropic = pytest.importorskip("anthropic")

MODEL = "claude-opus-5"
PNG = base64.b64encode(b"\x89PNG").decode()
PDF = base64.b64encode(b"%PDF").decode()
CONTROL = {"type": "ephemeral", "ttl": "1h"}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
USER = [{"role": "user", "content": "u"}]
FUNCTION = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
TOOL = {"name": "f", "description": "d", "input_schema": SCHEMA}


def _call(id_: str, arguments: str) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": "f", "arguments": arguments}}


def _base64_block(kind: str, media: str, data: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "source": {"type": "base64", "media_type": media, "data": data}, **more}


_CALLS = [_call("t1", '{"a": 1}'), _call("t2", '{"a": 2}')]
ANSWER = {"role": "assistant", "content": "ok", "tool_calls": _CALLS}
SEARCH = {"type": "web_search_20260318", "name": "web_search", "max_uses": 2}
OWN = {
    "speed": "fast",
    "inference_geo": "eu",
    "thinking": {"type": "between_tools"},
    "cache_control": CONTROL,
}
_IMAGE = {"url": f"data:image/png;base64,{PNG}"}
_FILE = {"file_data": f"data:application/pdf;base64,{PDF}", "filename": "a"}
FORM = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}

_JSON = {"content-type": "application/json"}

#: Pairs of equal requests: parameters of OpenAI's API, and of Anthropic's.
REQUESTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({"messages": USER, "max_tokens": 9}, {"messages": USER, "max_tokens": 9}),
    "system": (
        {"messages": [{"role": "system", "content": "s"}, *USER], "max_completion_tokens": 9},
        {"system": "s", "messages": USER, "max_tokens": 9},
    ),
    "cached system": (
        {
            "messages": [
                {"role": "developer", "content": [{"type": "text", "text": "s", "cache_control": CONTROL}]},
                *USER,
            ]
        },
        {"system": [{"type": "text", "text": "s", "cache_control": CONTROL}], "messages": USER},
    ),
    "sampling": (
        {"messages": USER, "stop": ["a", "b"], "user": "id", "service_tier": "default"},
        {
            "messages": USER,
            "stop_sequences": ["a", "b"],
            "metadata": {"user_id": "id"},
            "service_tier": "standard_only",
        },
    ),
    "images and a document": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "look"},
                        {"type": "image_url", "image_url": _IMAGE, "cache_control": CONTROL},
                        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                        {"type": "file", "file": _FILE},
                    ],
                }
            ]
        },
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "look"},
                        _base64_block("image", "image/png", PNG, cache_control=CONTROL),
                        {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                        _base64_block("document", "application/pdf", PDF, title="a"),
                    ],
                }
            ]
        },
    ),
    "tools": (
        {
            "messages": USER,
            "tools": [{**FUNCTION, "cache_control": CONTROL}],
            "tool_choice": "required",
            "parallel_tool_calls": False,
        },
        {
            "messages": USER,
            "tools": [{**TOOL, "cache_control": CONTROL}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        },
    ),
    "a named tool": (
        {
            "messages": USER,
            "tools": [FUNCTION],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
        },
        {"messages": USER, "tools": [TOOL], "tool_choice": {"type": "tool", "name": "f"}},
    ),
    "a strict tool and a search": (
        {
            "messages": USER,
            "tools": [
                {"type": "function", "function": {**FUNCTION["function"], "strict": True}},
                SEARCH,
            ],
        },
        {"messages": USER, "tools": [{**TOOL, "strict": True}, SEARCH]},
    ),
    "results of tools": (
        {
            "messages": [
                *USER,
                ANSWER,
                {"role": "tool", "tool_call_id": "t1", "content": "1"},
                {"role": "tool", "tool_call_id": "t2", "content": [{"type": "text", "text": "2"}]},
                {"role": "user", "content": "so?"},
            ]
        },
        {
            "messages": [
                *USER,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "ok"},
                        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
                        {"type": "tool_use", "id": "t2", "name": "f", "input": {"a": 2}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t1", "content": "1"},
                        {
                            "type": "tool_result",
                            "tool_use_id": "t2",
                            "content": [{"type": "text", "text": "2"}],
                        },
                    ],
                },
                {"role": "user", "content": "so?"},
            ]
        },
    ),
    "a result with an image, and instructions amid the turns": (
        {
            "messages": [
                *USER,
                {"role": "assistant", "content": None, "tool_calls": [_CALLS[0]]},
                {
                    "role": "tool",
                    "tool_call_id": "t1",
                    "content": [{"type": "text", "text": "seen"}, {"type": "image_url", "image_url": _IMAGE}],
                },
                {"role": "system", "content": "Be brief."},
            ]
        },
        {
            "system": "Be brief.",
            "messages": [
                *USER,
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "t1",
                            "content": [
                                {"type": "text", "text": "seen"},
                                _base64_block("image", "image/png", PNG),
                            ],
                        }
                    ],
                },
            ],
        },
    ),
    "thinking": (
        {"messages": USER, "reasoning_effort": "xhigh"},
        {"messages": USER, "thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}},
    ),
    "no thinking": (
        {"messages": USER, "reasoning_effort": "none"},
        {"messages": USER, "thinking": {"type": "disabled"}},
    ),
    "a form and thinking": (
        {
            "messages": USER,
            "reasoning_effort": "low",
            "response_format": FORM,
        },
        {
            "messages": USER,
            "thinking": {"type": "adaptive"},
            "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
        },
    ),
    "its own fields": (
        {"messages": USER, "extra_body": OWN},
        {"messages": USER, **OWN},
    ),
    "prefill": (
        {"messages": [*USER, {"role": "assistant", "content": "It"}]},
        {"messages": [*USER, {"role": "assistant", "content": "It"}]},
    ),
}


@pytest.fixture
def theirs(openai_server: OpenAIServer) -> Iterator[Any]:
    with anthropic.Anthropic(api_key=KEY, base_url=openai_server.url, max_retries=0) as client:
        yield client


@pytest.fixture
def ours(openai_server: OpenAIServer) -> Iterator[OpenAI]:
    with OpenAI(config=settings(openai_server), max_retries=0) as client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", REQUESTS)
def test_requests_equal_those_of_the_anthropic_package(
    openai_server: OpenAIServer, ours: OpenAI, theirs: Any, name: str, stream: bool
) -> None:
    params, native = REQUESTS[name]
    native = {"max_tokens": 64_000, "timeout": 9, **native}  # without a timeout it refuses long requests
    answer = events(body("text.sse")) if stream else reply(200, body("text.json"), _JSON)
    openai_server.script(answer, answer)
    received = ours.chat.completions.create(model=f"anthropic/{MODEL}", stream=stream, **params)
    expected = theirs.messages.create(model=MODEL, stream=stream, **native)
    texts = ("".join(c.choices[0].delta.content or "" for c in received), _text(expected)) if stream else None
    first, second = openai_server.requests
    assert (first.method, first.path, first.query) == (second.method, second.path, second.query)
    assert _without_stream_false(first.json) == _without_stream_false(second.json)
    assert texts is None or texts[0] == texts[1]


def _without_stream_false(sent: dict[str, Any]) -> dict[str, Any]:
    """Return a body without ``stream: false``, which is the default."""
    return {name: value for name, value in sent.items() if (name, value) != ("stream", False)}


def _text(stream: Any) -> str:
    return "".join(
        e.delta.text for e in stream if e.type == "content_block_delta" and e.delta.type == "text_delta"
    )


@pytest.mark.parametrize("name", PAIRS)
def test_a_stream_is_read_as_by_the_anthropic_package(
    openai_server: OpenAIServer, theirs: Any, name: str
) -> None:
    openai_server.script(events(body(f"{name}.sse")))
    with theirs.messages.stream(model=MODEL, messages=USER, max_tokens=9) as stream:
        message = stream.get_final_message()
    found = chunks(body(f"{name}.sse"))
    stream_choices = [choice for chunk in found for choice in chunk.choices]
    assert "".join(c.delta.content or "" for c in stream_choices) == "".join(
        block.text for block in message.content if block.type == "text"
    )
    assert [c.stop_reason for c in stream_choices if c.finish_reason] == [message.stop_reason]
    calls: dict[int, list[str]] = {}
    for choice in stream_choices:
        for call in choice.delta.tool_calls or ():
            calls.setdefault(call.index, []).append(call.function.arguments)
    used = [block.input for block in message.content if block.type == "tool_use"]
    assert [json.loads("".join(pieces)) for pieces in calls.values()] == used
    expected = [b.to_dict() for b in message.content if b.type in ("thinking", "redacted_thinking")]
    thoughts = [
        block for choice in stream_choices for block in getattr(choice.delta, "thinking_blocks", None) or ()
    ]
    assert thoughts == expected
    counted = DIALECT.usage(found[-1])
    usage = message.usage
    assert counted is not None
    assert counted.completion == usage.output_tokens
    cached = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
    assert counted.prompt == usage.input_tokens + cached


@pytest.mark.parametrize("name", PAIRS)
def test_recorded_bodies_have_no_field_unknown_to_the_anthropic_package(name: str) -> None:
    message = anthropic.types.Message.model_validate(json.loads(body(f"{name}.json")))
    assert list(_unknown(message)) == []
    assert completion(body(f"{name}.json")).id == message.id


def _unknown(value: Any) -> Iterator[str]:
    """Yield the names of fields that the package's types do not have."""
    if isinstance(value, list):
        for each in value:
            yield from _unknown(each)
    elif isinstance(value, pydantic.BaseModel):
        yield from value.model_extra or ()
        for field in type(value).model_fields:
            yield from _unknown(getattr(value, field))
