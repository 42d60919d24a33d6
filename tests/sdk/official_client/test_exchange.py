"""Answers over the transport are those without it, with the figures of the pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import openai
import pydantic
import pytest
from loopback_server import TEXT, OpenAIServer, reply

import specclient

ASK: Any = [{"role": "user", "content": "Say something about foxes."}]
PRICES = {"mine/m-large": {"input": 1, "output": 2}}
Connect = Callable[..., openai.OpenAI]


@pytest.mark.parametrize("include_usage", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["chat", "completions"])
def test_answers_equal_those_without_the_transport(
    connect: Connect,
    direct: openai.OpenAI,
    library: ModuleType,
    kind: str,
    stream: bool,
    include_usage: bool,
) -> None:
    options: dict[str, Any] = {"stream_options": {"include_usage": True}} if stream and include_usage else {}

    def ask(client: openai.OpenAI) -> Any:
        if kind == "chat":
            answer: Any = client.chat.completions.create(
                model="m-large", messages=ASK, stream=stream, **options
            )
        else:
            answer = client.completions.create(model="m-large", prompt="a b", stream=stream, **options)
        return [chunk.model_dump() for chunk in answer] if stream else answer.model_dump()

    assert ask(connect(library)) == ask(direct)


def test_status_body_and_headers_are_the_upstreams(
    connect: Connect, openai_server: OpenAIServer, library: ModuleType
) -> None:
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "odd": 1.0, "choices": []}
    body["choices"] = [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ä"}}
    ]
    raw = json.dumps(body, indent=3, ensure_ascii=False).encode()
    headers = {"content-type": "application/json", "x-request-id": "r-1", "openai-processing-ms": "7"}
    openai_server.script(reply(200, raw, {**headers, "x-ratelimit-limit-requests": "9"}))
    answer = connect(library).chat.completions.with_raw_response.create(model="m-large", messages=ASK)
    assert answer.content == raw
    assert {name: answer.headers[name] for name in headers} == headers
    assert answer.headers["x-ratelimit-limit-requests"] == "9"
    assert answer.headers["x-specclient-route"] == "mine/m-large"
    assert answer.parse()._request_id == "r-1"
    assert answer.elapsed.total_seconds() > 0


def test_cost_and_acceptance_are_in_the_headers(connect: Connect, openai_server: OpenAIServer) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 1000, "total_tokens": 2000}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    openai_server.script(
        reply(200, {**body, "usage": usage, "timings": {"draft_n": 4, "draft_n_accepted": 3}})
    )
    client = connect(tables={"prices": PRICES})
    answer = client.chat.completions.with_raw_response.create(model="m-large", messages=ASK)
    call = specclient.last_call()
    assert call is not None
    assert answer.headers["x-specclient-cost"] == f"{call.cost.total:f}" == "0.003000"
    assert answer.headers["x-specclient-acceptance"] == "0.7500"


def test_request_reaches_the_upstream_with_the_callers_headers(
    connect: Connect, openai_server: OpenAIServer, library: ModuleType
) -> None:
    client = connect(library, official={"default_headers": {"x-team": "a"}, "organization": "org-1"})
    client.chat.completions.create(
        model="m-large", messages=ASK, seed=7, extra_query={"k": "v"}, extra_body={"vendor": {"a": [1.0]}}
    )
    sent = openai_server.requests[-1]
    assert sent.json == {"model": "m-large", "messages": ASK, "seed": 7, "vendor": {"a": [1.0]}}
    assert sent.query == "k=v"
    assert sent.headers["authorization"] == "Bearer sk-caller"
    assert (sent.headers["x-team"], sent.headers["openai-organization"]) == ("a", "org-1")
    assert sent.headers["user-agent"].startswith("OpenAI/Python")


def test_tools_and_structured_output(connect: Connect, openai_server: OpenAIServer) -> None:
    class Town(pydantic.BaseModel):
        name: str

    def answer(message: dict[str, Any]) -> Any:
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
        return reply(
            200, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        )

    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    openai_server.script(
        answer({"content": '{"name": "Ulm"}'}), answer({"content": None, "tool_calls": [call]})
    )
    client = connect()
    parsed = client.chat.completions.parse(model="m-large", messages=ASK, response_format=Town)
    assert parsed.choices[0].message.parsed == Town(name="Ulm")
    tools: Any = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    called = client.chat.completions.create(model="m-large", messages=ASK, tools=tools)
    calls: Any = called.choices[0].message.tool_calls
    assert calls[0].function.name == "f"
    assert openai_server.requests[-1].json["tools"] == tools


def test_embeddings_responses_moderations_and_files(connect: Connect, openai_server: OpenAIServer) -> None:
    vector = {"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}
    usage = {"prompt_tokens": 2, "total_tokens": 2}
    file = {"id": "f-1", "object": "file", "bytes": 3, "created_at": 1, "filename": "a", "purpose": "batch"}
    answered = {
        "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m",
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "output": [
            {
                "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
            }
        ],
    }  # fmt: skip
    openai_server.script(
        reply(200, {"object": "list", "model": "m", "data": [vector], "usage": usage}),
        reply(200, answered),
        reply(200, {"id": "modr", "model": "m", "results": []}),
        reply(200, file),
        reply(200, b"\x00\x01\xff" * 9, {"content-type": "application/octet-stream"}),
    )
    client = connect()
    found = client.embeddings.create(model="m-large", input=["a b"], encoding_format="float")
    assert found.data[0].embedding == [0.5, -0.25]
    assert client.responses.create(model="m-large", input="foxes?").output_text == TEXT
    assert client.moderations.create(model="m-large", input="x").id == "modr"
    assert client.files.create(file=("a.jsonl", b"{}\n"), purpose="batch").id == "f-1"
    assert client.files.content("f-1").read() == b"\x00\x01\xff" * 9
    sent = openai_server.requests
    assert [each.path for each in sent] == [
        "/v1/embeddings", "/v1/responses", "/v1/moderations", "/v1/files", "/v1/files/f-1/content",
    ]  # fmt: skip
    assert b'name="purpose"' in sent[3].body
    assert {each.headers["authorization"] for each in sent} == {"Bearer sk-caller"}


def test_a_billed_form_is_recorded_with_its_model(connect: Connect, openai_server: OpenAIServer) -> None:
    openai_server.script(reply(200, {"text": "hello"}))
    calls: list[specclient.Call] = []
    client = connect(on_call=calls.append)
    assert client.audio.transcriptions.create(model="whisper-1", file=("a.wav", b"RIFF")).text == "hello"
    assert [call.route.chosen for call in calls] == ["mine/whisper-1"]
    assert b'name="file"; filename="a.wav"' in openai_server.requests[-1].body
