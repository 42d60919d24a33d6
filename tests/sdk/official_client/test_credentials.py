"""The caller's headers reach the provider that it addressed, and no other host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from loopback_server import OpenAIServer, reply

import specclient
from specclient.config import Settings

pytestmark = pytest.mark.anyio

ASK: Any = [{"role": "user", "content": "Say something about foxes."}]
Connect = Callable[..., openai.OpenAI]


async def test_no_key_reaches_another_host_by_redirects_fallbacks_or_names(
    connect: Connect, openai_server: OpenAIServer
) -> None:
    with OpenAIServer() as other:
        moved = reply(307, b"", {"location": f"{other.base_url}/chat/completions"})
        openai_server.script(moved, *[reply(500, {"error": {"message": "no"}})] * 3)
        providers = {
            "mine": {"base_url": openai_server.base_url, "api_key": "sk-upstream"},
            "other": {"base_url": other.base_url, "api_key": "sk-other"},
        }
        headers = {"x-api-key": "sk-secret", "api-key": "sk-secret", "x-mine": "sk-secret"}
        client = connect(
            tables={"providers": providers, "candidates": ["mine/m-large", "other/m-small"]},
            official={"default_headers": headers},
            max_retries=0,
        )
        client.chat.completions.create(model="m-large", messages=ASK, extra_headers={"x-mine": openai.Omit()})
        client.chat.completions.create(
            model="auto",
            messages=ASK,
            extra_body={"specclient": {"policy": {"fallbacks": ["other/m-small"]}}},
        )
        client.chat.completions.create(model="other/m-small", messages=ASK)
    assert len(openai_server.requests) == 2
    assert [sent.headers.get("authorization") for sent in other.requests] == [
        None, "Bearer sk-other", "Bearer sk-other",
    ]  # fmt: skip
    assert "secret" not in repr([sent.headers for sent in other.requests])
    assert "sk-caller" not in repr([sent.headers for sent in other.requests])


def test_no_header_meant_for_openai_reaches_another_address_of_it(openai_server: OpenAIServer) -> None:
    providers = {"openai": {"base_url": openai_server.base_url, "api_key": "sk-configured"}}
    settings = Settings.model_validate({"ledger": "off", "providers": providers})
    http_client = httpx.Client(transport=specclient.transport(config=settings))
    headers = {"x-api-key": "sk-secret", "x-mine": "sk-secret"}
    with openai.OpenAI(api_key="sk-secret", default_headers=headers, http_client=http_client) as client:
        client.chat.completions.create(model="gpt-4o", messages=ASK)
        client.models.list()
        openai_server.script(reply(200, {"text": "hello"}))
        client.audio.transcriptions.create(model="whisper-1", file=("a.wav", b"RIFF"))
    assert [sent.headers["authorization"] for sent in openai_server.requests] == ["Bearer sk-configured"] * 3
    assert openai_server.requests[-1].headers["content-type"].startswith("multipart/form-data; boundary=")
    assert "secret" not in repr([sent.headers for sent in openai_server.requests])


def test_a_missing_key_is_a_clear_error_before_anything_is_sent() -> None:
    with (
        openai.OpenAI(
            api_key="specclient-no-key", http_client=httpx.Client(transport=specclient.transport())
        ) as client,
        pytest.raises(openai.AuthenticationError, match="OPENAI_API_KEY"),
    ):
        client.chat.completions.create(model="gpt-4o", messages=ASK)


def test_the_transports_api_key_replaces_the_callers(connect: Connect, openai_server: OpenAIServer) -> None:
    connect(api_key="sk-option").chat.completions.create(model="m-large", messages=ASK)
    assert openai_server.requests[-1].headers["authorization"] == "Bearer sk-option"
