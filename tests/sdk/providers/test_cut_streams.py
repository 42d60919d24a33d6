"""Truncated recorded streams: each raises with its text so far, or is complete."""

from __future__ import annotations

from typing import Any

import pytest
from loopback_server import OpenAIServer, events
from paths import DATA
from pydantic import SecretStr

from specclient import APIConnectionError, OpenAI, Settings
from specclient.config import ProviderSettings

STREAMS = [
    *(f"anthropic/{name}.sse" for name in ("text", "tools", "thinking", "web_search", "refusal")),
    *(f"gemini/{name}.sse" for name in ("text", "thinking_tools", "signed_text", "two")),
]
ASK: Any = [{"role": "user", "content": "u"}]


def _read(client: OpenAI, model: str, into: list[Any]) -> str:
    into += client.chat.completions.create(model=model, messages=ASK, stream=True)
    return _text(into)


def _text(chunks: list[Any]) -> str:
    choices = (choice for chunk in chunks for choice in chunk.choices if choice.index == 0)
    return "".join(choice.delta.content or "" for choice in choices)


@pytest.mark.parametrize("name", STREAMS)
def test_a_truncated_stream_raises_with_its_text_or_is_complete(
    openai_server: OpenAIServer, name: str
) -> None:
    provider = name.partition("/")[0]
    table = ProviderSettings(base_url=openai_server.base_url, api_key=SecretStr("sk"))
    settings = Settings.model_validate({"providers": {provider: table}})
    data, broken = (DATA / name).read_bytes(), 0
    with OpenAI(config=settings, max_retries=0) as client:
        openai_server.script(events(data))
        whole = _read(client, f"{provider}/m", [])
        for at in range(1, len(data), 89):
            openai_server.script(events(data[:at]))
            try:
                received: str | None = _read(client, f"{provider}/m", [])
            except APIConnectionError as error:
                received, broken = error.partial, broken + 1
            else:
                assert received == whole
            assert whole.startswith(received or "")
    assert broken > 1
