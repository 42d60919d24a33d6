"""The requests of this client equal those of botocore's client, and both read answers and streams alike."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest
from bedrock_bodies import (
    ENVIRONMENT,
    KEYS,
    MODEL,
    REGION,
    SAMPLES,
    chunks,
    completion,
    frame,
    frames,
    is_signed,
    sample,
    settings,
    streamed,
    whole,
)
from botocore.config import Config
from loopback_server import OpenAIServer

from specclient import OpenAI

PNG, PDF = b"\x89PNG", b"%PDF"
ARN = "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.amazon.nova-pro-v1:0"
USER = [{"role": "user", "content": "u"}]
THEIR_USER = [{"role": "user", "content": [{"text": "u"}]}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FUNCTION = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
SPEC = {"toolSpec": {"name": "f", "description": "d", "inputSchema": {"json": SCHEMA}}}
POINT = {"cachePoint": {"type": "default"}}
GUARD = {"guardrailIdentifier": "g1", "guardrailVersion": "1", "trace": "enabled"}


def _data_url(media: str, content: bytes) -> str:
    return f"data:{media};base64,{base64.b64encode(content).decode()}"


def _call(id_: str, arguments: str) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": "f", "arguments": arguments}}


#: Pairs of equal requests: parameters of OpenAI's API, and of botocore's ``converse``.
REQUESTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({"messages": USER}, {"messages": THEIR_USER}),
    "system and sampling": (
        {
            "messages": [{"role": "system", "content": "s"}, {"role": "developer", "content": "t"}, *USER],
            "max_completion_tokens": 9,
            "temperature": 0.5,
            "top_p": 0.9,
            "stop": "END",
        },
        {
            "system": [{"text": "s"}, {"text": "t"}],
            "messages": THEIR_USER,
            "inferenceConfig": {"maxTokens": 9, "temperature": 0.5, "topP": 0.9, "stopSequences": ["END"]},
        },
    ),
    "images, documents, cache points": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "look", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                        {"type": "image_url", "image_url": {"url": _data_url("image/jpg", PNG)}},
                        {"type": "image_url", "image_url": {"url": "s3://bucket/fox.webp"}},
                        {
                            "type": "file",
                            "file": {
                                "file_data": _data_url("application/pdf", PDF),
                                "filename": "a_b  c.pdf",
                            },
                            "prompt_cache_breakpoint": {},
                        },
                        {
                            "type": "file",
                            "file": {"file_data": _data_url("text/plain", b"x"), "filename": "a_b c.txt"},
                        },
                        {"type": "video_url", "video_url": {"url": _data_url("video/mp4", b"v")}},
                        {
                            "type": "input_audio",
                            "input_audio": {"data": base64.b64encode(b"w").decode(), "format": "wav"},
                        },
                        {"guardContent": {"text": {"text": "guarded"}}},
                    ],
                }
            ]
        },
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"text": "look"},
                        {"cachePoint": {"type": "default", "ttl": "1h"}},
                        {"image": {"format": "jpeg", "source": {"bytes": PNG}}},
                        {
                            "image": {
                                "format": "webp",
                                "source": {"s3Location": {"uri": "s3://bucket/fox.webp"}},
                            }
                        },
                        {"document": {"format": "pdf", "name": "a-b c", "source": {"bytes": PDF}}},
                        POINT,
                        {"document": {"format": "txt", "name": "a-b c 2", "source": {"bytes": b"x"}}},
                        {"video": {"format": "mp4", "source": {"bytes": b"v"}}},
                        {"audio": {"format": "wav", "source": {"bytes": b"w"}}},
                        {"guardContent": {"text": {"text": "guarded"}}},
                    ],
                }
            ]
        },
    ),
    "tools and results": (
        {
            "messages": [
                *USER,
                {
                    "role": "assistant",
                    "content": "ok",
                    "tool_calls": [_call("t1", '{"a": 1}'), _call("t2", "")],
                },
                {"role": "tool", "tool_call_id": "t1", "content": "1"},
                {
                    "role": "tool",
                    "tool_call_id": "t2",
                    "is_error": True,
                    "content": [
                        {"type": "text", "text": "bad"},
                        {"type": "image_url", "image_url": _data_url("image/png", PNG)},
                    ],
                },
                {"role": "user", "content": "so?"},
            ],
            "tools": [{**FUNCTION, "cache_control": {"type": "ephemeral"}}],
            "tool_choice": "required",
        },
        {
            "messages": [
                *THEIR_USER,
                {
                    "role": "assistant",
                    "content": [
                        {"text": "ok"},
                        {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"a": 1}}},
                        {"toolUse": {"toolUseId": "t2", "name": "f", "input": {}}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"toolResult": {"toolUseId": "t1", "content": [{"text": "1"}]}},
                        {
                            "toolResult": {
                                "toolUseId": "t2",
                                "content": [
                                    {"text": "bad"},
                                    {"image": {"format": "png", "source": {"bytes": PNG}}},
                                ],
                                "status": "error",
                            }
                        },
                        {"text": "so?"},
                    ],
                },
            ],
            "toolConfig": {"tools": [SPEC, POINT], "toolChoice": {"any": {}}},
        },
    ),
    "a named strict tool": (
        {
            "messages": USER,
            "tools": [{"type": "function", "function": {**FUNCTION["function"], "strict": True}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
        },
        {
            "messages": THEIR_USER,
            "toolConfig": {
                "tools": [{"toolSpec": {**SPEC["toolSpec"], "strict": True}}],
                "toolChoice": {"tool": {"name": "f"}},
            },
        },
    ),
    "no tool may be called": (
        {"messages": USER, "tools": [FUNCTION], "tool_choice": "none"},
        {"messages": THEIR_USER},
    ),
    "reasoning, sent back": (
        {
            "messages": [
                *USER,
                {
                    "role": "assistant",
                    "content": "x",
                    "thinking_blocks": [
                        {"type": "thinking", "thinking": "hm", "signature": "s"},
                        {"type": "redacted_thinking", "data": base64.b64encode(b"z").decode()},
                    ],
                },
                *USER,
            ],
            "reasoning_effort": "low",
            "max_tokens": 8_000,
        },
        {
            "messages": [
                *THEIR_USER,
                {
                    "role": "assistant",
                    "content": [
                        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
                        {"reasoningContent": {"redactedContent": b"z"}},
                        {"text": "x"},
                    ],
                },
                *THEIR_USER,
            ],
            "inferenceConfig": {"maxTokens": 8_000},
            "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 4_000}},
        },
    ),
    "a form, a tier, metadata": (
        {
            "messages": USER,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "description": "d", "schema": SCHEMA, "strict": True},
            },
            "service_tier": "flex",
            "metadata": {"team": "a"},
        },
        {
            "messages": THEIR_USER,
            "outputConfig": {
                "textFormat": {
                    "type": "json_schema",
                    "structure": {
                        "jsonSchema": {
                            "name": "n",
                            "description": "d",
                            "schema": json.dumps(SCHEMA, separators=(",", ":")),
                        }
                    },
                }
            },
            "serviceTier": {"type": "flex"},
            "requestMetadata": {"team": "a"},
        },
    ),
    "its own fields": (
        {
            "messages": USER,
            "max_tokens": 9,
            "extra_body": {
                "guardrailConfig": GUARD,
                "additionalModelRequestFields": {"top_k": 3},
                "additionalModelResponseFieldPaths": ["/stop_sequence"],
                "performanceConfig": {"latency": "optimized"},
                "inferenceConfig": {"topP": 0.5},
            },
        },
        {
            "messages": THEIR_USER,
            "guardrailConfig": GUARD,
            "additionalModelRequestFields": {"top_k": 3},
            "additionalModelResponseFieldPaths": ["/stop_sequence"],
            "performanceConfig": {"latency": "optimized"},
            "inferenceConfig": {"maxTokens": 9, "topP": 0.5},
        },
    ),
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def their_session() -> Any:
    return botocore.session.Session()


@pytest.fixture
def theirs(openai_server: OpenAIServer, their_session: Any) -> Iterator[Any]:
    client = their_session.create_client(
        "bedrock-runtime",
        region_name=REGION,
        endpoint_url=openai_server.url,
        config=Config(retries={"total_max_attempts": 1}),
        **{f"aws_{name.removeprefix('AWS_').lower()}": value for name, value in KEYS.items()},
    )
    yield client
    client.close()


@pytest.fixture
def ours(openai_server: OpenAIServer) -> Iterator[OpenAI]:
    with OpenAI(config=settings(openai_server), max_retries=0) as client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", REQUESTS)
def test_requests_equal_those_of_botocores_client(
    openai_server: OpenAIServer, ours: OpenAI, theirs: Any, name: str, stream: bool
) -> None:
    params, native = REQUESTS[name]
    answer = streamed(frames("text")) if stream else whole("text")
    openai_server.script(answer, answer)
    received: Any = ours.chat.completions.create(model=f"bedrock/{MODEL}", stream=stream, **params)
    if stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in received)
        expected = _streamed_text(theirs.converse_stream(modelId=MODEL, **native))
    else:
        text = received.choices[0].message.content
        expected = theirs.converse(modelId=MODEL, **native)["output"]["message"]["content"][0]["text"]
    assert text == expected == "The quick brown fox jumps."
    first, second = openai_server.requests
    assert (first.method, first.path, first.query) == (second.method, second.path, second.query)
    assert first.json == second.json
    assert first.headers["content-type"] == second.headers["content-type"]
    assert is_signed(first, openai_server)
    assert is_signed(second, openai_server), "the check of the tests accepts botocore's own signature"


def _streamed_text(answer: Any) -> str:
    deltas = (
        event["contentBlockDelta"]["delta"] for event in answer["stream"] if "contentBlockDelta" in event
    )
    return "".join(delta.get("text", "") for delta in deltas)


def test_names_with_slashes_are_one_segment_of_the_path(
    openai_server: OpenAIServer, ours: OpenAI, theirs: Any
) -> None:
    openai_server.script(whole("text"), whole("text"))
    ours.chat.completions.create(model=f"bedrock/{ARN}", messages=USER)
    theirs.converse(modelId=ARN, messages=THEIR_USER)
    first, second = openai_server.requests
    assert first.path == second.path
    assert first.path.endswith("%3Ainference-profile%2Feu.amazon.nova-pro-v1%3A0/converse")
    assert is_signed(first, openai_server)


@pytest.mark.parametrize("name", SAMPLES)
def test_answers_and_streams_are_read_as_by_botocores_client(
    openai_server: OpenAIServer, theirs: Any, name: str
) -> None:
    openai_server.script(whole(name), streamed(frames(name)))
    answer = theirs.converse(modelId=MODEL, messages=THEIR_USER)
    events = list(theirs.converse_stream(modelId=MODEL, messages=THEIR_USER)["stream"])
    made = completion(sample(name)["answer"])
    found = chunks(frames(name))
    message = made.choices[0].message
    blocks = answer["output"]["message"]["content"]
    calls = [block["toolUse"] for block in blocks if "toolUse" in block]
    assert [(c.id, c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls or ()] == [
        (call["toolUseId"], call["name"], call["input"]) for call in calls
    ]
    assert made.choices[0].stop_reason == answer["stopReason"]
    assert made.metrics == answer["metrics"]
    usage = events[-1]["metadata"]["usage"]
    assert usage == answer["usage"]
    assert made.usage.total_tokens == found[-1].usage.total_tokens == usage["totalTokens"]
    assert found[-1].usage == made.usage
    deltas = [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]
    assert "".join(c.choices[0].delta.content or "" for c in found if c.choices) == "".join(
        delta.get("text", "") for delta in deltas
    )


def test_an_exception_in_a_stream_is_one_for_botocore_too(openai_server: OpenAIServer, theirs: Any) -> None:
    data = frame("throttlingException", {"message": "Too many tokens."}, "exception")
    openai_server.script(streamed(data))
    stream = theirs.converse_stream(modelId=MODEL, messages=THEIR_USER)["stream"]
    with (
        contextlib.closing(stream),
        pytest.raises(Exception, match=r"throttlingException.*Too many tokens") as caught,
    ):
        list(stream)
    assert type(caught.value).__name__ == "EventStreamError"
