"""The requests of this client equal those of the google-genai package, and both read responses alike."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gemini_bodies import BODIES, ENDPOINT, GEMINI, encode, recorded
from gemini_requests import CASES, camel_case
from google import genai
from google.genai import types
from loopback_server import Behaviour, OpenAIServer, Received, events, reply

from specclient.types.chat import ChatCompletion
from specclient.types.inference_methods import EMBEDDING
from specclient.types.request import Request
from specclient.types.wire import WireRequest

MODEL = "gemini-2.5-flash"


def _package(server: OpenAIServer) -> genai.Client:
    options = types.HttpOptions(base_url=server.url, api_version="v1beta")
    return genai.Client(api_key="AIza-key", http_options=options)


def _same(ours: WireRequest, theirs: Received) -> None:
    """Compare two requests: the URL, the header of the key, and every field of the body."""
    assert isinstance(ours.content, bytes)
    target = theirs.path + (f"?{theirs.query}" if theirs.query else "")
    assert ours.url == "https://generativelanguage.googleapis.com" + target
    assert (ours.method, ours.headers["x-goog-api-key"]) == (theirs.method, theirs.headers["x-goog-api-key"])
    expected, sent = camel_case(theirs.json), json.loads(ours.content)
    if not expected.get("generationConfig", True):
        del expected["generationConfig"]  # the package sends an empty one
    for body in (expected, sent):
        body.get("tools", []).sort(key=str)  # the order of tools is irrelevant
    assert sent == expected


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("stream", [False, True])
def test_chat_requests_are_equal(openai_server: OpenAIServer, name: str, stream: bool) -> None:
    ours, contents, config = CASES[name]
    answer: Behaviour = reply(200, json.loads((BODIES / "text.json").read_bytes()))
    if stream:
        answer = events((BODIES / "text.sse").read_bytes())
    openai_server.script(answer)
    with _package(openai_server) as client:
        if stream:
            list(client.models.generate_content_stream(model=MODEL, contents=contents, config=config))
        else:
            client.models.generate_content(model=MODEL, contents=contents, config=config)
    _same(encode(**ours, stream=stream), openai_server.requests[0])


def test_a_thinking_level_is_sent_equally(openai_server: OpenAIServer) -> None:
    openai_server.script(reply(200, json.loads((BODIES / "text.json").read_bytes())))
    thinking = types.ThinkingConfig(thinking_level=types.ThinkingLevel.LOW)
    with _package(openai_server) as client:
        client.models.generate_content(
            model="gemini-3-pro-preview",
            contents="hi",
            config=types.GenerateContentConfig(thinking_config=thinking),
        )
    _same(encode(model="gemini-3-pro-preview", reasoning_effort="low"), openai_server.requests[0])


def test_embedding_requests_are_equal(openai_server: OpenAIServer) -> None:
    openai_server.script(reply(200, json.loads((BODIES / "embeddings.json").read_bytes())))
    with _package(openai_server) as client:
        client.models.embed_content(
            model="gemini-embedding-001",
            contents=["a", "b"],
            config=types.EmbedContentConfig(output_dimensionality=3),
        )
    request = Request(EMBEDDING, "gemini-embedding-001", {"input": ["a", "b"], "dimensions": 3})
    _same(GEMINI.encode(request, ENDPOINT, "gemini-embedding-001"), openai_server.requests[0])


@pytest.mark.parametrize("name", ["text", "thinking_tools", "logprobs", "grounded", "structured", "two"])
def test_responses_are_read_equally(openai_server: OpenAIServer, name: str) -> None:
    openai_server.script(reply(200, json.loads((BODIES / f"{name}.json").read_bytes())))
    with _package(openai_server) as client:
        theirs = client.models.generate_content(model=MODEL, contents="hi")
    ours: ChatCompletion = recorded(f"{name}.json")
    assert (ours.id, ours.model) == (theirs.response_id, theirs.model_version)
    for choice, candidate in zip(ours.choices, theirs.candidates or (), strict=True):
        parts = (candidate.content.parts or []) if candidate.content else []
        assert choice.message.content == "".join(
            part.text for part in parts if part.text and not part.thought
        )
        thoughts = "".join(part.text for part in parts if part.text and part.thought)
        assert (choice.message.model_extra or {}).get("reasoning_content", "") == thoughts
        expected_calls = [part.function_call for part in parts if part.function_call]
        calls: Any = choice.message.tool_calls or ()
        assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [
            (call.name, call.args) for call in expected_calls
        ]
        assert choice.index == (candidate.index or 0)
        assert candidate.finish_reason is not None
        assert (choice.model_extra or {})["native_finish_reason"] == candidate.finish_reason.value
    usage, metadata = GEMINI.usage(ours), theirs.usage_metadata
    assert usage is not None
    assert metadata is not None
    assert usage.prompt == (metadata.prompt_token_count or 0) + (metadata.tool_use_prompt_token_count or 0)
    assert usage.completion == (metadata.candidates_token_count or 0) + (metadata.thoughts_token_count or 0)
    assert (usage.cached, usage.reasoning) == (
        metadata.cached_content_token_count,
        metadata.thoughts_token_count,
    )
