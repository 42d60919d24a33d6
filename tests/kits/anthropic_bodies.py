"""Anthropic's response bodies under ``tests/data/anthropic``, decoded, and a configuration to serve them."""

from __future__ import annotations

import json
from typing import Any

from loopback_server import OpenAIServer
from paths import DATA
from pydantic import SecretStr

from specclient import Settings
from specclient.config import ProviderSettings
from specclient.http_transport.sse import SSEDecoder
from specclient.providers.anthropic.dialect import AnthropicDialect
from specclient.providers.endpoint import Endpoint
from specclient.types.inference_methods import CHAT
from specclient.types.request import PerCallOptions, Request
from specclient.types.wire import WireResponse

BODIES = DATA / "anthropic"
#: Responses that are available both whole and as a stream with the same content.
PAIRS = ("text", "tools", "thinking", "web_search", "refusal", "structured")
KEY = "sk-ant-key"
ENDPOINT = Endpoint(
    name="anthropic",
    base_url="https://api.anthropic.com/v1/",
    dialect="anthropic",
    key=SecretStr(KEY),
    key_header="x-api-key",
)
DIALECT = AnthropicDialect(clock=lambda: 1_000.0)


def body(name: str) -> bytes:
    return (BODIES / name).read_bytes()


def completion(content: bytes) -> Any:
    """Decode a whole response to a chat completion."""
    return DIALECT.decode(CHAT, WireResponse(200, {}, content))


def chunks(stream: bytes) -> list[Any]:
    """Decode the events of a stream to chunks."""
    read, found = DIALECT.events(CHAT), []
    for event in SSEDecoder().feed(stream):
        got = read(event.data, event.event)
        found += got if isinstance(got, list) else [] if got is None else [got]
    return found


def sse(*events: dict[str, Any]) -> bytes:
    """Encode events as the bytes of an Anthropic stream."""
    return b"".join(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events)


def sent(
    params: dict[str, Any], *, stream: bool = False, model: str = "claude-opus-5", **options: Any
) -> Any:
    """Return the request body that is sent for a chat with these parameters."""
    request = Request(CHAT, f"anthropic/{model}", params, stream=stream, options=PerCallOptions(**options))
    return json.loads(DIALECT.encode(request, ENDPOINT, model).content)


def settings(server: OpenAIServer, **more: Any) -> Settings:
    """Return settings in which the preset provider ``anthropic`` is a server on loopback."""
    provider = ProviderSettings(base_url=server.base_url, api_key=SecretStr(KEY))
    return Settings.model_validate({"providers": {"anthropic": provider}, **more})
