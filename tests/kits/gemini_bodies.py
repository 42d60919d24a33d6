"""Functions for the tests of Gemini's dialect: an endpoint, encoded chats and decoded responses."""

from __future__ import annotations

import json
from typing import Any

from paths import DATA
from pydantic import SecretStr

from specclient.providers.dialects import dialect_of
from specclient.providers.endpoint import Endpoint
from specclient.types.chat import ChatCompletion
from specclient.types.inference_methods import CHAT
from specclient.types.request import PerCallOptions, Request
from specclient.types.wire import WireRequest, WireResponse

BODIES = DATA / "gemini"
ENDPOINT = Endpoint(
    name="gemini",
    base_url="https://generativelanguage.googleapis.com/v1beta",
    dialect="gemini",
    key=SecretStr("AIza-key"),
    key_header="x-goog-api-key",
)
GEMINI = dialect_of(ENDPOINT)
ASK = [{"role": "user", "content": "hi"}]
SIGNATURE = "CiQB0e2Kb1+/aGVsbG8="
#: Responses under ``tests/data/gemini`` that are available both whole and streamed.
PAIRS = ("text", "thinking_tools", "signed_text", "blocked", "two", "structured")


def encode(
    messages: Any = ASK,
    model: str = "gemini-2.5-flash",
    *,
    stream: bool = False,
    extra: Any = None,
    drop: bool | None = None,
    **params: Any,
) -> WireRequest:
    """Encode a chat as the HTTP request that would be sent."""
    options = PerCallOptions(body=extra or {}, drop_params=drop)
    request = Request(CHAT, model, {"messages": messages, **params}, stream=stream, options=options)
    return GEMINI.encode(request, ENDPOINT, model)


def body(*args: Any, **params: Any) -> Any:
    """Return the JSON body of :func:`encode`."""
    return json.loads(encode(*args, **params).content)


def decoded(answer: Any) -> ChatCompletion:
    """Decode a response body to a chat completion."""
    found = GEMINI.decode(CHAT, WireResponse(200, {}, json.dumps(answer).encode()))
    assert isinstance(found, ChatCompletion)
    return found


def recorded(name: str) -> ChatCompletion:
    """Decode a response of ``tests/data/gemini`` to a chat completion."""
    return decoded(json.loads((BODIES / name).read_bytes()))
