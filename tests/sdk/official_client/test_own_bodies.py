"""Bodies and headers of the caller: sent as they were written where nothing alters them, and only there."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import httpx
import openai
import pytest
from loopback_server import OpenAIServer, reply

import specclient
from specclient import Budget

Connect = Callable[..., openai.OpenAI]
ASK: Any = [{"role": "user", "content": "Say something about foxes."}]
#: JSON as no encoder of this package writes it.
WRITTEN = (
    b'{ "temperature": 0.5, "model": "m-large", "top_k": 3,'
    b' "messages": [{"role": "user", "content": "H\\u00e9"}] }'
)
PRICES = {"mine/m-large": {"input": 1, "output": 2}}


def _post(server: OpenAIServer, client: openai.OpenAI, content: bytes, **headers: str) -> bytes:
    """Send a body through the client's transport; return what the server received."""
    given = {"content-type": "application/json", "authorization": "Bearer sk-caller", **headers}
    answer = client._client.post(f"{server.base_url}/chat/completions", content=content, headers=given)
    assert answer.status_code == 200, answer.text
    return server.requests[-1].body


def test_a_body_that_nothing_alters_is_sent_as_it_was_written(
    connect: Connect, openai_server: OpenAIServer
) -> None:
    assert _post(openai_server, connect(), WRITTEN) == WRITTEN
    call = specclient.last_call()
    assert call is not None
    assert (call.model, call.status) == ("m-large", "ok")
    assert call.usage.prompt is not None


ALTERED: dict[str, dict[str, Any]] = {
    "another name of the model": {"model": "mine/m-large"},
    "a stream": {"stream": True},
    "the extension": {"specclient": {"tags": {"a": "b"}}},
}


@pytest.mark.parametrize("name", ALTERED)
def test_a_body_that_something_alters_is_encoded_anew(
    connect: Connect, openai_server: OpenAIServer, name: str
) -> None:
    given = {**json.loads(WRITTEN), **ALTERED[name]}
    body = json.dumps(given, indent=1).encode()
    sent = json.loads(_post(openai_server, connect(), body))
    assert b"\n" not in openai_server.requests[-1].body
    assert sent["model"] == "m-large"
    assert "specclient" not in sent
    assert (sent.get("stream_options") is not None) == bool(given.get("stream"))


def test_with_a_budget_the_provider_gets_what_was_counted(
    connect: Connect, openai_server: OpenAIServer
) -> None:
    """A name that occurs twice could be read differently by the provider."""
    body = b'{"max_tokens": 9, "model": "m-large", "messages": [], "max_tokens": 5}'
    client = connect(tables={"prices": PRICES, "ledger": "off"}, budgets=[Budget(name="b", usd=Decimal(1))])
    assert json.loads(_post(openai_server, client, body)) == json.loads(body)
    assert openai_server.requests[-1].body.count(b"max_tokens") == 1


def test_a_provider_with_quirks_gets_its_own_form(connect: Connect, openai_server: OpenAIServer) -> None:
    providers = {"mistral": {"base_url": openai_server.base_url, "api_key": "sk-upstream"}}
    client = connect(tables={"providers": providers, "default_provider": "mistral"})
    body = b'{ "model": "m-large", "messages": [], "seed": 3 }'
    assert json.loads(_post(openai_server, client, body))["random_seed"] == 3


def test_a_retry_sends_the_same_body(connect: Connect, openai_server: OpenAIServer) -> None:
    openai_server.script(reply(500, {"error": {"message": "no"}}, {"retry-after-ms": "1"}))
    assert _post(openai_server, connect(), WRITTEN) == WRITTEN
    assert [sent.body for sent in openai_server.requests] == [WRITTEN, WRITTEN]


def test_headers_of_every_request_are_its_own(connect: Connect, openai_server: OpenAIServer) -> None:
    client = connect()
    for number in ("1", "2", "1"):
        _post(openai_server, client, WRITTEN, **{"x-number": number, "openai-organization": f"org-{number}"})
        sent = openai_server.requests[-1].headers
        assert (sent["x-number"], sent["openai-organization"]) == (number, f"org-{number}")
    _post(openai_server, client, WRITTEN, authorization="Bearer sk-other")
    assert openai_server.requests[-1].headers["authorization"] == "Bearer sk-other"
    _post(openai_server, client, WRITTEN + b" " * 9)
    assert openai_server.requests[-1].headers["content-length"] == str(len(WRITTEN) + 9)


def test_a_changed_key_of_the_transport_is_used_at_once(openai_server: OpenAIServer) -> None:
    own = specclient.OpenAI(api_key="sk-one", base_url=openai_server.base_url, ledger="off")
    http_client = httpx.Client(transport=specclient.transport(client=own))
    official = openai.OpenAI(base_url=openai_server.base_url, api_key="sk-x", http_client=http_client)
    with own, official as client:
        for key in ("sk-one", "sk-two"):
            own.api_key = key
            client.chat.completions.create(model="m-large", messages=ASK)
            assert openai_server.requests[-1].headers["authorization"] == f"Bearer {key}"


def test_many_different_headers_are_not_all_remembered(connect: Connect, openai_server: OpenAIServer) -> None:
    client = connect()
    transport: Any = client._client._transport  # type: ignore[attr-defined]
    for number in range(70):
        _post(openai_server, client, WRITTEN, **{"x-number": str(number)})
    assert len(transport._heads._known) <= 64
