"""Failures are those of the official client, and are not retried twice."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import openai
import pytest
from gateway_server import upstream_settings, wait_until
from loopback_server import OpenAIServer, broken_stream, events, hang, reply, reset

import specclient
from specclient import Budget

pytestmark = pytest.mark.anyio

ASK: Any = [{"role": "user", "content": "Say something about foxes."}]
PRICES = {"mine/m-large": {"input": 1, "output": 2}}
Connect = Callable[..., openai.OpenAI]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 429, 500, 503])
def test_errors_are_those_of_the_upstream_and_not_retried_again(
    connect: Connect, direct: openai.OpenAI, openai_server: OpenAIServer, library: ModuleType, status: int
) -> None:
    body = {"error": {"message": "no such thing", "type": "t", "param": "p", "code": "c"}}
    failure = reply(status, body, {"x-request-id": "r-7", "retry-after-ms": "1"})
    openai_server.script(*[failure] * 3)
    with pytest.raises(openai.APIStatusError) as caught:
        connect(library).chat.completions.create(model="m-large", messages=ASK)
    count = len(openai_server.requests)
    openai_server.requests.clear()
    openai_server._script.clear()
    openai_server.script(*[failure] * 3)
    with pytest.raises(openai.APIStatusError) as plain:
        direct.chat.completions.create(model="m-large", messages=ASK)
    assert type(caught.value) is type(plain.value)
    assert str(caught.value) == str(plain.value)
    assert (caught.value.body, caught.value.request_id) == (plain.value.body, "r-7")
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert count == len(openai_server.requests)


def test_a_reset_connection_is_tried_as_often_as_by_one_client(
    connect: Connect, openai_server: OpenAIServer, library: ModuleType
) -> None:
    openai_server.script(*[reset] * 9)
    with pytest.raises(openai.APIConnectionError, match="No answer from") as caught:
        connect(library).chat.completions.create(model="m-large", messages=ASK)
    assert not isinstance(caught.value, openai.APITimeoutError)
    assert 3 <= len(openai_server.requests) < 6  # more if the official client repeated the attempts


@pytest.mark.parametrize("stream", [False, True])
async def test_a_timeout_is_the_official_clients(
    openai_server: OpenAIServer, library: ModuleType, stream: bool
) -> None:
    openai_server.script(*[hang] * 9)
    transport = specclient.async_transport(config=upstream_settings(openai_server), max_retries=1)
    async with openai.AsyncOpenAI(
        base_url=openai_server.base_url,
        api_key="k",
        timeout=openai.Timeout(30, read=0.3),
        http_client=library.AsyncClient(transport=transport),
    ) as client:
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(model="m-large", messages=ASK, stream=stream)
    assert wait_until(lambda: len(openai_server.requests) == 2)
    call = specclient.last_call()
    assert call is None or call.status != "ok"


def test_other_programs_get_their_librarys_exceptions(
    openai_server: OpenAIServer, library: ModuleType
) -> None:
    openai_server.script(*[hang] * 2, *[reset] * 2)
    transport = specclient.transport(config=upstream_settings(openai_server), max_retries=0)
    timeout = library.Timeout(30, read=0.3)
    with library.Client(transport=transport, base_url=openai_server.base_url, timeout=timeout) as client:
        with pytest.raises(library.ReadTimeout):
            client.post("/chat/completions", json={"model": "m-large", "messages": ASK})
        with pytest.raises(library.ReadTimeout):
            client.get("/models")
        with pytest.raises(library.ReadError):
            client.post("/chat/completions", json={"model": "m-large", "messages": ASK}, timeout=30)


@pytest.mark.parametrize("how", ["reset", "close", "hang"])
def test_a_stream_that_breaks_off_raises_as_without_the_transport(
    connect: Connect, openai_server: OpenAIServer, library: ModuleType, how: str
) -> None:
    first = b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    first += b'[{"index":0,"delta":{"content":"The"},"finish_reason":null}]}\n\n'
    openai_server.script(broken_stream(first, how=how))
    client = connect(library, official={"timeout": 2.0})
    stream = client.chat.completions.create(model="m-large", messages=ASK, stream=True)
    assert next(stream).choices[0].delta.content == "The"
    with pytest.raises(openai.APITimeoutError if how == "hang" else openai.APIConnectionError):
        next(stream)
    call = specclient.last_call()
    assert call is not None
    assert call.status == "error"


def test_an_error_event_of_the_upstream_is_raised(connect: Connect, openai_server: OpenAIServer) -> None:
    openai_server.script(events(b'data: {"error": {"message": "overloaded", "code": "c"}}\n\n'))
    with pytest.raises(openai.APIError, match="overloaded") as caught:
        list(connect().chat.completions.create(model="m-large", messages=ASK, stream=True))
    assert caught.value.code == "c"


def test_a_budget_refuses_with_the_official_clients_error(
    connect: Connect, openai_server: OpenAIServer
) -> None:
    client = connect(tables={"prices": PRICES, "ledger": "off"}, budgets=[Budget(name="b", usd="0.000001")])
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(model="m-large", messages=ASK, max_tokens=1000)
    assert caught.value.code == "insufficient_quota"
    assert openai_server.requests == []


def test_an_invalid_request_is_an_error_of_the_official_client(
    connect: Connect, openai_server: OpenAIServer
) -> None:
    with pytest.raises(openai.BadRequestError, match=r"specclient\.tags") as caught:
        connect().chat.completions.create(
            model="m-large", messages=ASK, extra_body={"specclient": {"tags": 1}}
        )
    assert caught.value.param == "specclient.tags"
    assert openai_server.requests == []
