"""Models are routed by their names and by the provider that a request was addressed to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import openai
from loopback_server import OpenAIServer
from tiny_models import write_checkpoint

import specclient
from specclient.config import Settings

ASK: Any = [{"role": "user", "content": "Say something about foxes."}]
Connect = Callable[..., openai.OpenAI]


def test_a_name_without_provider_is_of_the_origins_provider(
    connect: Connect, openai_server: OpenAIServer
) -> None:
    with OpenAIServer() as other:
        providers = {
            "mine": {"base_url": openai_server.base_url, "api_key": "sk-upstream"},
            "other": {"base_url": other.base_url, "api_key": "sk-other"},
        }
        tables = {"providers": providers}
        client = connect(tables=tables)
        client.chat.completions.create(model="other/m-small", messages=ASK)
        assert other.requests[-1].json["model"] == "m-small"
        assert other.requests[-1].headers["authorization"] == "Bearer sk-other"
        at_other = connect(tables=tables, official={"base_url": other.base_url, "api_key": "sk-caller-2"})
        for name in ("m-small", "vendor/m-small", "mine/m-small"):  # all are names of that server
            at_other.chat.completions.create(model=name, messages=ASK)
            assert other.requests[-1].json["model"] == name
        assert other.requests[-1].headers["authorization"] == "Bearer sk-caller-2"
    assert openai_server.requests == []


def test_auto_is_routed(connect: Connect, openai_server: OpenAIServer) -> None:
    answer = connect().chat.completions.with_raw_response.create(model="auto", messages=ASK)
    call = specclient.last_call()
    assert call is not None
    assert len(call.route.candidates) == 2
    assert answer.headers["x-specclient-route"] == call.route.chosen
    assert openai_server.requests[-1].json["model"] == call.route.model


def test_a_local_model_answers_chat_stream_and_responses(tmp_path: Path, library: ModuleType) -> None:
    target = write_checkpoint(tmp_path / "target", max_position_embeddings=512, eos_token_id=None)
    local = {"threads": 1, "models": {"tiny": {"path": str(target)}}}
    settings = Settings.model_validate({"ledger": "off", "local": local})
    asked: Any = {"model": "local/tiny", "messages": ASK, "max_tokens": 8, "temperature": 0}
    with openai.OpenAI(
        api_key="unused", http_client=library.Client(transport=specclient.transport(config=settings))
    ) as client:
        answer = client.chat.completions.create(**asked)
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 8
        chunks = list(client.chat.completions.create(**asked, stream=True))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == answer.choices[0].message.content
        response = client.responses.create(
            model="local/tiny", input=ASK[0]["content"], max_output_tokens=8, temperature=0
        )
        assert response.output_text == text
        with client.responses.stream(
            model="local/tiny", input=ASK[0]["content"], max_output_tokens=8, temperature=0
        ) as stream:
            deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        assert "".join(deltas) == text
    call = specclient.last_call()
    assert call is not None
    assert call.provider == "local"
