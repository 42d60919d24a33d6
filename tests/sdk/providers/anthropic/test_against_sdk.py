"""The requests of this client equal those of the anthropic package, and both read streams alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pydantic
import pytest
from anthropic_bodies import DIALECT, KEY, PAIRS, body, chunks, completion, settings
from anthropic_requests import REQUESTS, USER
from loopback_server import OpenAIServer, events, reply

from specclient import OpenAI

anthropic = pytest.importorskip("anthropic")

MODEL = "claude-opus-5"
_JSON = {"content-type": "application/json"}


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
