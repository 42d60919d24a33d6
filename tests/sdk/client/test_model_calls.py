"""Calls by path that run a model: they are routed, recorded and answered like those of the path's method."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from loopback_server import TEXT, OpenAIServer, reply
from openai._legacy_response import LegacyAPIResponse

from specclient import OpenAI
from specclient.call.stream import Stream
from specclient.types import CreateEmbeddingResponse
from specclient.types.chat import ChatCompletion, ChatCompletionChunk

ASK: Any = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "vendor_field": 1}


@pytest.fixture
def client(openai_server: OpenAIServer, tmp_path: Any) -> Iterator[OpenAI]:
    path = str(tmp_path / "ledger.db")
    with OpenAI(base_url=openai_server.base_url, api_key="k", ledger=path) as made:
        yield made


@pytest.mark.parametrize("cast_to", [ChatCompletion, openai.types.chat.ChatCompletion])
def test_a_chat_by_path_is_recorded(client: OpenAI, openai_server: OpenAIServer, cast_to: Any) -> None:
    answer = client.post("/chat/completions", cast_to=cast_to, body=ASK, options={"extra_json": {"seed": 2}})
    assert isinstance(answer, cast_to)
    assert answer.choices[0].message.content == TEXT
    assert answer.meta.operation == "chat"
    sent = openai_server.requests[-1].json
    assert (sent["model"], sent["vendor_field"], sent["seed"]) == ("m", 1, 2)
    assert "stream" not in sent


def test_a_streamed_chat_by_path_is_recorded(client: OpenAI) -> None:
    stream = client.post(
        "chat/completions",
        cast_to=ChatCompletion,
        body={**ASK, "stream": True},
        stream=True,
        stream_cls=Stream[ChatCompletionChunk],
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == TEXT
    assert stream.meta.operation == "chat"


def test_a_local_model_answers_a_chat_by_path() -> None:
    with OpenAI(ledger="off", api_key="k") as client:
        answer = client.post(
            "/chat/completions",
            cast_to=ChatCompletion,
            body={**ASK, "model": "local/demo", "max_tokens": 4, "vendor_field": None},
        )
    assert answer.choices[0].message.content


@pytest.mark.parametrize(
    ("body", "cast_to"),
    [(ASK, object), ({"messages": []}, ChatCompletion), (json.dumps(ASK).encode(), ChatCompletion)],
)
def test_other_calls_by_path_are_sent_as_they_are(
    client: OpenAI, openai_server: OpenAIServer, body: Any, cast_to: Any
) -> None:
    openai_server.script(reply(200, {"id": "1", "choices": []}))
    given: Any = {"content": body} if isinstance(body, bytes) else {"body": body}
    answer = client.post("/chat/completions", cast_to=cast_to, **given)
    assert not hasattr(answer, "meta")
    assert json.loads(openai_server.requests[-1].body) == (json.loads(body) if "content" in given else body)


def test_a_header_asks_for_a_raw_response(client: OpenAI, openai_server: OpenAIServer) -> None:
    raw = {"headers": {"X-Stainless-Raw-Response": "true"}}
    answer = client.post("/chat/completions", cast_to=ChatCompletion, body=ASK, options=raw)
    assert isinstance(answer, LegacyAPIResponse)
    assert answer.parse().choices[0].message.content == TEXT
    listed = client.get("/models", cast_to=object, options=raw)
    assert listed.status_code == 200
    assert "x-stainless-raw-response" not in openai_server.requests[-1].headers
    unread = client.post(
        "/chat/completions",
        cast_to=ChatCompletion,
        body=ASK,
        options={"headers": {"X-Stainless-Raw-Response": "stream"}},
    )
    assert json.loads(unread.read())["choices"]
    unread.close()


def test_the_types_of_other_methods_have_names(client: OpenAI, openai_server: OpenAIServer) -> None:
    body = {"model": "m", "input": "a"}
    openai_server.script(reply(200, {"object": "list", "data": [], "model": "m"}))
    answer = client.post("/embeddings", cast_to=CreateEmbeddingResponse, body=body)
    assert isinstance(answer, openai.types.CreateEmbeddingResponse)
    assert openai_server.requests[-1].json == body
