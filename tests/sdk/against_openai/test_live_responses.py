"""The HTTP response of an open stream: read, closed and asked for its state as with the OpenAI client."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import httpx2
import pytest
from both_clients import Both, Side
from loopback_server import Received, Wire, broken_stream, events, reply

MakeClient = Callable[[Side], Any]
ASK: dict[str, Any] = {"model": "m-large", "messages": [{"role": "user", "content": "hi"}]}
FRAME = (
    b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
)
LAST = FRAME.replace(b"null", b'"stop"')


@pytest.fixture(params=["aiohttp", "httpx", "the user's client"])
def client_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Side], Any]:
    """A function that creates a side's client, with each library that does the I/O."""
    if request.param == "httpx":
        monkeypatch.setenv("SPECCLIENT_TRANSPORT", "httpx")

    def make(side: Side) -> Any:
        if request.param != "the user's client":
            return side.client
        own = (httpx.AsyncClient if side.is_async else httpx.Client)()
        side.made.append(SimpleNamespace(close=own.aclose if side.is_async else own.close))
        return side.make(api_key="k", base_url=f"{side.url}/v1", max_retries=0, http_client=own)

    return make


async def _large(_: Received, wire: Wire) -> None:
    kind = {"content-type": "application/octet-stream", "transfer-encoding": "chunked"}
    await wire.head(200, kind)
    for _ in range(20):
        await wire.chunk(b"x" * 100_000)
    await wire.chunk(b"")


def _read(side: Side, response: Any, name: str) -> Any:
    """Call a method of an httpx response in its synchronous or asynchronous form."""
    value = getattr(response, f"a{name}" if side.is_async else name)()
    return side.items(value) if name.startswith("iter") else side.get(value)


READS: dict[str, Callable[[Side, Any], Any]] = {
    "read": lambda side, response: _read(side, response.http_response, "read"),
    "bytes": lambda side, response: b"".join(_read(side, response.http_response, "iter_bytes")),
    "raw bytes": lambda side, response: b"".join(_read(side, response.http_response, "iter_raw")),
    "read twice": lambda side, response: [
        _read(side, response.http_response, "read"),
        side.get(response.read()),
        response.http_response.content,
    ],
    "read by us": lambda side, response: [side.get(response.read()), response.http_response.content],
    "close": lambda side, response: _read(side, response.http_response, "close"),
    "nothing": lambda side, response: None,
}


@pytest.mark.parametrize("name", READS)
def test_the_http_response_of_a_streaming_response(both: Both, client_of: MakeClient, name: str) -> None:
    def scenario(side: Side) -> Any:
        with side.within(client_of(side).files.with_streaming_response.content("f")) as response:
            seen = [response.is_closed, response.http_response.is_closed, response.http_response.status_code]
            seen.append(READS[name](side, response))
            seen += [response.is_closed, response.http_response.is_closed]
        return [*seen, response.is_closed, response.http_response.is_closed]

    assert both.same(scenario, _large).error is None


def test_a_body_that_was_iterated_over_is_not_read_again(both: Both, client_of: MakeClient) -> None:
    def scenario(side: Side) -> Any:
        with side.within(client_of(side).files.with_streaming_response.content("f")) as response:
            side.items(response.iter_bytes())
            with contextlib.suppress(httpx.StreamConsumed, httpx2.StreamConsumed):
                return _read(side, response.http_response, "read")
        return "consumed"

    assert both.same(scenario, reply(200, b"abc")).result == "consumed"


@pytest.mark.parametrize("begun", [False, True], ids=["unread", "begun"])
def test_closing_the_response_of_a_stream_disconnects(both: Both, begun: bool) -> None:
    left: list[bool] = []

    async def hangs(received: Received, wire: Wire) -> None:
        try:
            await broken_stream(FRAME, FRAME, how="hang")(received, wire)
        finally:  # the client may leave while the server still writes
            left.append(True)

    def scenario(side: Side) -> Any:
        left.clear()
        stream = side.get_unread(side.client.chat.completions.create(**ASK, stream=True))
        if begun:
            side.get_unread(anext(stream) if side.is_async else next(stream))
        seen = [stream.response.is_closed]
        _read(side, stream.response, "close")
        end = time.monotonic() + 30
        while not left and time.monotonic() < end:
            side.runner.run(_pause())
        return [*seen, stream.response.is_closed, list(left)]

    assert both.same(scenario, hangs).result == [False, True, [True]]


@pytest.mark.parametrize("name", ["iter_lines", "iter_bytes", "read"])
def test_the_response_of_a_stream_is_read_in_place_of_the_chunks(
    both: Both, client_of: MakeClient, name: str
) -> None:
    def scenario(side: Side) -> Any:
        stream = side.get_unread(client_of(side).chat.completions.create(**ASK, stream=True))
        read = _read(side, stream.response, name)
        return [b"".join(read) if name == "iter_bytes" else read, stream.response.is_closed]

    pieces = (FRAME, b": alive\n\n", FRAME, LAST, b"data: [DONE]\n\n")
    assert both.same(scenario, events(*pieces)).error is None


def test_a_response_is_closed_when_its_chunks_have_been_read(both: Both, client_of: MakeClient) -> None:
    def scenario(side: Side) -> Any:
        response = side.get(client_of(side).chat.completions.with_raw_response.create(**ASK, stream=True))
        stream = side.get_unread(response.parse())
        first = side.get_unread(anext(stream) if side.is_async else next(stream))
        seen = [response.is_closed, stream.response.is_closed, first]
        side.items(stream)
        return [*seen, stream.response.is_closed]

    assert both.same(scenario, events(FRAME, LAST, b"data: [DONE]\n\n", gap=0.02)).error is None


async def _pause() -> None:
    await asyncio.sleep(0.01)
