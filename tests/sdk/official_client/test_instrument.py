"""Instrumentation gives clients that are made later the transport, and is taken back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from gateway_server import upstream_settings
from loopback_server import OpenAIServer, reset

import specclient
from specclient.official_client.transport import AsyncPipelineTransport, PipelineTransport

pytestmark = pytest.mark.anyio

ASK: Any = [{"role": "user", "content": "x"}]


@pytest.fixture
def calls(openai_server: OpenAIServer) -> Iterator[list[specclient.Call]]:
    """The records of calls while the package is instrumented."""
    found: list[specclient.Call] = []
    with specclient.OpenAI(config=upstream_settings(openai_server)) as client:
        specclient.instrument(client=client, on_call=found.append)
        yield found
        specclient.uninstrument()


async def test_clients_made_by_any_library_use_the_pipeline(
    openai_server: OpenAIServer, calls: list[specclient.Call]
) -> None:
    class Library(openai.OpenAI):
        """A library's own class."""

    with Library(base_url=openai_server.base_url, api_key="k") as client:
        client.chat.completions.create(model="m-large", messages=ASK)
    async with openai.AsyncOpenAI(base_url=openai_server.base_url, api_key="k") as other:
        await other.chat.completions.create(model="m-small", messages=ASK)
    assert [call.route.chosen for call in calls] == ["mine/m-large", "mine/m-small"]
    assert openai_server.requests[-1].headers["authorization"] == "Bearer k"


def test_each_clients_retries_apply(openai_server: OpenAIServer, calls: list[specclient.Call]) -> None:
    client = openai.OpenAI(base_url=openai_server.base_url, api_key="k", max_retries=1)
    for made, attempts in ((client, 2), (client.with_options(max_retries=0), 1)):
        openai_server.requests.clear()
        openai_server.script(*[reset] * attempts)
        with pytest.raises(openai.APIConnectionError):
            made.chat.completions.create(model="m-large", messages=ASK)
        assert len(openai_server.requests) == attempts
    client.close()


@pytest.mark.usefixtures("calls")
def test_other_clients_are_left_alone() -> None:
    with httpx.Client() as own:
        assert openai.OpenAI(api_key="k", http_client=own)._client is own
    azure = openai.AzureOpenAI(api_key="k", azure_endpoint="https://a.test", api_version="1")
    assert not isinstance(azure._client._transport, PipelineTransport)
    azure.close()


@pytest.mark.usefixtures("calls")
def test_it_is_idempotent_and_taken_back() -> None:
    def kinds() -> list[bool]:
        clients = [openai.OpenAI(api_key="k"), openai.AsyncOpenAI(api_key="k")]
        found = [
            isinstance(each._client._transport, PipelineTransport | AsyncPipelineTransport)
            for each in clients
        ]
        clients[0].close()
        return found

    patched = openai.OpenAI.__init__
    specclient.instrument(ledger="off")
    assert openai.OpenAI.__init__ is patched
    assert kinds() == [True, True]
    specclient.uninstrument()
    specclient.uninstrument()
    assert openai.OpenAI.__init__ is not patched
    assert kinds() == [False, False]
    specclient.instrument(ledger="off")
    assert kinds() == [True, True]


@pytest.mark.usefixtures("calls")
def test_a_later_replacement_by_another_package_stays() -> None:
    ours, seen = openai.OpenAI.__init__, []

    def traced(self: Any, *args: Any, **kwargs: Any) -> None:
        seen.append(self)
        ours(self, *args, **kwargs)

    openai.OpenAI.__init__ = traced  # type: ignore[method-assign]
    try:
        specclient.uninstrument()
        with openai.OpenAI(api_key="k") as client:
            assert seen == [client]
            assert not isinstance(client._client._transport, PipelineTransport)
    finally:
        openai.OpenAI.__init__ = ours  # type: ignore[method-assign]


def test_threads_may_instrument_at_once() -> None:
    original = openai.OpenAI.__init__
    threads = [threading.Thread(target=specclient.instrument, kwargs={"ledger": "off"}) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert openai.OpenAI.__init__ is not original
    specclient.uninstrument()
    assert openai.OpenAI.__init__ is original
