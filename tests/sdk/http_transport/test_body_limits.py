"""Limits on responses: size, events, compression and time, with every kind of HTTP client."""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import math
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from loopback_server import Behaviour, OpenAIServer, Received, Wire, events, raw, reply

from specclient import AsyncOpenAI, OpenAI, ResponseLimits
from specclient.config import load
from specclient.errors import (
    APIConnectionError,
    APIError,
    APITimeoutError,
    ConfigurationError,
    InternalServerError,
    RateLimitError,
    ResponseTooLargeError,
)
from specclient.http_transport import Transport
from specclient.http_transport.body_limits import MAX_ERROR_BODY_BYTES
from specclient.http_transport.clients import timeouts
from specclient.http_transport.clients.defaults import DefaultAioHttpClient
from specclient.types.wire import WireRequest

pytestmark = pytest.mark.anyio

Make = Callable[..., Transport]
MIB = 2**20
_CLIENTS: Mapping[str, Callable[[], Any] | None] = {
    "aiohttp": None,
    "httpx": None,
    "DefaultAioHttpClient": DefaultAioHttpClient,
    "users httpx.AsyncClient": lambda: httpx.AsyncClient(follow_redirects=True),
    "users httpx.Client": lambda: httpx.Client(follow_redirects=True),
    "users httpx2.AsyncClient": lambda: httpx2.AsyncClient(follow_redirects=True),
    "users httpx2.Client": lambda: httpx2.Client(follow_redirects=True),
}


@pytest.fixture(params=_CLIENTS)
async def make(request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    """Make transports over each kind of client."""
    new_client, closed = _CLIENTS[request.param], []

    def build(**options: Any) -> Transport:
        if new_client is None:
            made = Transport(**{"kind": request.param, "max_retries": 0, **options})
            closed.append(made.aclose)
            return made
        client = new_client()
        closed.append(client.aclose if hasattr(client, "aclose") else client.close)
        return Transport(**{"http_client": client, "max_retries": 0, **options})

    yield build
    for close in closed:
        if (waiting := close()) is not None:
            await waiting


def post(server: OpenAIServer, **options: Any) -> WireRequest:
    return WireRequest("POST", f"{server.base_url}/x", {}, b"{}", **{"deployment": "p/m", **options})


async def fetch(transport: Transport, request: WireRequest) -> bytes:
    return (await transport.fetch(request)).content


async def read(transport: Transport, request: WireRequest) -> bytes:
    async with transport.open(request) as body:
        return await body.read()


async def chunks(transport: Transport, request: WireRequest) -> bytes:
    async with transport.open(request) as body:
        return b"".join([chunk async for chunk in body.chunks()])


async def collect(transport: Transport, request: WireRequest) -> list[bytes]:
    async with transport.stream(request) as stream:
        return [event.data async for event in stream]


def endless(piece: bytes, gap: float = 0.0, **headers: str) -> Behaviour:
    """Send a chunked body of the same piece until the client leaves."""

    async def run(_: Received, wire: Wire) -> None:
        await wire.head(
            200, {"transfer-encoding": "chunked", **{k.replace("_", "-"): v for k, v in headers.items()}}
        )
        while True:
            await wire.chunk(piece)
            await asyncio.sleep(gap)

    return run


@functools.cache
def bomb(coding: str) -> bytes:
    """Return compressed data of a JSON text of 48 MiB, about a thousandth in size."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31 if coding == "gzip" else 15)
    block = b" " * MIB
    packed = [packer.compress(b'{"choices": ['), *(packer.compress(block) for _ in range(48))]
    return b"".join([*packed, packer.compress(b"]}"), packer.flush()])


@functools.cache
def compressible() -> tuple[tuple[bytes, bytes], ...]:
    """Return bodies, each as it is and compressed: a long run of one letter, and many alike objects."""
    repeated = json.dumps({"text": "a" * 8 * MIB}).encode()  # a ratio of a thousand, but short
    varied = json.dumps([{"index": i, "logprob": -i / 7, "token": str(i)} for i in range(400_000)]).encode()
    assert len(varied) > 17 * MIB
    return tuple((body, gzip.compress(body, 1)) for body in (repeated, varied))


SMALL = ResponseLimits(max_body_bytes=MIB, max_event_bytes=MIB / 4)


@pytest.mark.parametrize("call", [fetch, read])
async def test_an_endless_body_ends_at_the_limit_and_is_not_retried(
    openai_server: OpenAIServer, make: Make, call: Any
) -> None:
    openai_server.script(endless(b"x" * 65536))
    with pytest.raises(ResponseTooLargeError, match=r"max_body_bytes is 1048576.*ResponseLimits") as caught:
        await call(make(response_limits=SMALL, max_retries=2), post(openai_server))
    error = caught.value
    assert isinstance(error, APIError)
    assert not isinstance(error, APIConnectionError)
    assert (error.setting, error.limit, error.attempts) == ("max_body_bytes", MIB, 1)
    assert MIB < error.read <= 2 * MIB
    assert len(openai_server.requests) == 1
    assert await asyncio.to_thread(openai_server.wait_left, 1)


async def test_a_body_of_exactly_the_limit_is_read(openai_server: OpenAIServer, make: Make) -> None:
    transport = make(response_limits=SMALL)
    openai_server.script(reply(200, b"x" * MIB), reply(200, b"x" * (MIB + 1)))
    assert len(await fetch(transport, post(openai_server))) == MIB
    with pytest.raises(ResponseTooLargeError):
        await fetch(transport, post(openai_server))


async def test_pieces_that_the_caller_takes_are_not_limited_in_size(
    openai_server: OpenAIServer, make: Make
) -> None:
    openai_server.script(reply(200, b"x" * (3 * MIB)))
    assert len(await chunks(make(response_limits=SMALL), post(openai_server))) == 3 * MIB


@pytest.mark.parametrize(
    ("piece", "setting"),
    [
        (b"data: " + b"x" * 65536, "max_event_bytes"),  # a line without an end
        (b"data: " + b"x" * 65536 + b"\n", "max_event_bytes"),  # an event without an end
        (b": " + b"x" * 65536, "max_event_bytes"),
        (b"data: " + b"x" * 65536 + b"\n\n", "max_body_bytes"),
        (b": " + b"x" * 65536 + b"\n\n", "max_body_bytes"),
    ],
)
async def test_an_endless_stream_ends_at_the_limit(
    openai_server: OpenAIServer, make: Make, piece: bytes, setting: str
) -> None:
    openai_server.script(endless(piece, content_type="text/event-stream"))
    with pytest.raises(ResponseTooLargeError) as caught:
        await collect(make(response_limits=SMALL), post(openai_server))
    assert caught.value.setting == setting
    assert await asyncio.to_thread(openai_server.wait_left, 1)


@pytest.mark.parametrize("size", [1000, 1001])
async def test_the_limit_of_an_event_holds_however_it_is_split(
    openai_server: OpenAIServer, make: Make, size: int
) -> None:
    event = b"data: " + b"x" * size + b"\n\n"
    openai_server.script(events(event), events(event[:500], event[500:]))
    transport = make(response_limits=ResponseLimits(max_event_bytes=1006))  # with the name of its field
    if size == 1000:
        for _ in range(2):
            assert await collect(transport, post(openai_server)) == [b"x" * size]
        return
    tight = make(response_limits=ResponseLimits(max_event_bytes=1000))
    for _ in range(2):
        with pytest.raises(ResponseTooLargeError):
            await collect(tight, post(openai_server))


@pytest.mark.parametrize("call", [fetch, read, chunks, collect])
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_decompression_bomb_ends_at_the_ratio(
    openai_server: OpenAIServer, make: Make, call: Any, coding: str
) -> None:
    kind = "text/event-stream" if call is collect else "application/json"
    openai_server.script(reply(200, bomb(coding), {"content-encoding": coding, "content-type": kind}))
    with pytest.raises(ResponseTooLargeError, match=r"max_compression_ratio is 200") as caught:
        await call(make(), post(openai_server))
    assert 16 * MIB < caught.value.read < 32 * MIB


@pytest.mark.parametrize("call", [fetch, chunks])
async def test_compressible_bodies_are_read(openai_server: OpenAIServer, make: Make, call: Any) -> None:
    transport = make()
    for body, packed in compressible():
        openai_server.script(reply(200, packed, {"content-encoding": "gzip"}))
        assert await call(transport, post(openai_server)) == body


async def test_a_body_compressed_many_times_is_not_decompressed(
    openai_server: OpenAIServer, make: Make
) -> None:
    packed = gzip.compress(gzip.compress(b" " * 64 * MIB))
    openai_server.script(reply(200, packed, {"content-encoding": "gzip, gzip"}))
    try:
        assert await fetch(make(), post(openai_server)) == packed  # aiohttp leaves it as it is
    except APIConnectionError as error:
        assert "compressed 2 times" in str(error)  # noqa: PT017


@pytest.mark.parametrize("status", [429, 500])
async def test_an_endless_error_response_keeps_its_status(
    openai_server: OpenAIServer, make: Make, status: int
) -> None:
    async def run(_: Received, wire: Wire) -> None:
        await wire.head(status, {"transfer-encoding": "chunked"})
        while True:
            await wire.chunk(b"x" * 65536)

    openai_server.script(run)
    with pytest.raises(RateLimitError if status == 429 else InternalServerError) as caught:
        await fetch(make(), post(openai_server))
    assert len(caught.value.response.content) <= MAX_ERROR_BODY_BYTES
    assert await asyncio.to_thread(openai_server.wait_left, 1)


async def test_the_body_of_a_redirect_is_not_read_to_its_end(openai_server: OpenAIServer, make: Make) -> None:
    async def run(_: Received, wire: Wire) -> None:
        await wire.head(307, {"transfer-encoding": "chunked", "location": "/v1/again"})
        while True:
            await wire.chunk(b"x" * 65536)

    openai_server.script(run, run, reply(200, b"arrived"))
    transport = make(timeout=10)
    assert await asyncio.wait_for(fetch(transport, post(openai_server)), 30) == b"arrived"


# Time


def drip(head: bytes, gap: float = 0.05, count: int = 10**9, then: bytes = b"") -> Behaviour:
    """Send a head, then ``count`` times one byte, then the rest."""

    async def run(_: Received, wire: Wire) -> None:
        wire.keep = False
        await wire.send(head)
        for _ in range(count):
            await wire.send(b"x")
            await asyncio.sleep(gap)
        await wire.send(then)

    return run


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


@pytest.mark.parametrize("call", [fetch, read])
async def test_a_body_that_comes_byte_by_byte_is_ended_by_a_timeout_in_seconds(
    openai_server: OpenAIServer, make: Make, call: Any
) -> None:
    openai_server.script(drip(HEAD))
    with pytest.raises(APITimeoutError, match=r"did not complete its answer within 0.3 s; pass a larger"):
        await asyncio.wait_for(call(make(timeout=0.3), post(openai_server)), 30)
    assert await asyncio.to_thread(openai_server.wait_left, 1)


async def test_an_event_that_comes_byte_by_byte_is_ended_by_a_timeout_in_seconds(
    openai_server: OpenAIServer, make: Make
) -> None:
    openai_server.script(drip(EVENTS + b"data: "))
    with pytest.raises(APITimeoutError, match=r"did not complete an event"):
        await asyncio.wait_for(collect(make(timeout=0.3), post(openai_server)), 30)


async def test_headers_that_come_byte_by_byte_are_ended(openai_server: OpenAIServer, make: Make) -> None:
    openai_server.script(drip(b"HTTP/1.1 200 OK\r\nx-header: "))
    with pytest.raises(APITimeoutError, match=r"did not complete the headers"):
        await asyncio.wait_for(fetch(make(timeout=0.2), post(openai_server)), 30)


async def test_read_of_an_httpx_timeout_limits_silence_alone(openai_server: OpenAIServer, make: Make) -> None:
    openai_server.script(drip(b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n", count=20))
    body = await fetch(make(timeout=httpx.Timeout(5, read=0.8)), post(openai_server))
    assert body == b"x" * 20


async def test_a_stream_may_last_longer_than_the_timeout(openai_server: OpenAIServer, make: Make) -> None:
    pieces = [b": keep-alive\n\n"] * 8 + [b"data: 1\n\n"] * 8 + [b"event: ping\n"] * 4
    openai_server.script(events(*pieces, gap=0.1))
    assert await collect(make(timeout=1), post(openai_server)) == [b"1"] * 8


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # aiohttp, over httpx
async def test_a_server_that_does_not_read_the_request_is_ended(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "_SLOWEST_UPLOAD", 64 * MIB)
    left = asyncio.Event()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await left.wait()
        writer.transport.abort()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        request = WireRequest("POST", url, {}, b"x" * 32 * MIB, deployment="p/m")
        with pytest.raises(APITimeoutError):
            await asyncio.wait_for(make(timeout=0.2).fetch(request), 30)
    finally:
        left.set()
        server.close()


# Headers


@pytest.mark.parametrize(
    "header",
    [
        "retry-after: １",
        "x-request-id: é",
        "retry-after: ١٢",
        "content-type: text/plain; charset=base64",
        "content-type: text/plain; charset=idna",
        "retry-after: Mon, 32 Foo 99999 99:99:99 GMT",
        "retry-after: " + "9" * 5000,
        "x-should-retry: é",
        "x-ratelimit-remaining-requests: ١",
    ],
)
@pytest.mark.parametrize("status", [400, 429])
async def test_odd_headers_of_an_error_response_raise_its_status_error(
    openai_server: OpenAIServer, make: Make, header: str, status: int
) -> None:
    body = json.dumps({"error": {"message": "no é"}}).encode()
    head = f"HTTP/1.1 {status} É\r\n{header}\r\ncontent-length: {len(body)}\r\n\r\n"
    openai_server.script(raw(head.encode() + body))
    with pytest.raises(APIError) as caught:
        await fetch(make(), post(openai_server))
    assert getattr(caught.value, "status_code", None) == status
    name, _, value = header.partition(": ")
    if value.isprintable() and "charset" not in value:
        assert caught.value.response.headers[name] == value


# Framing and redirects


@pytest.mark.parametrize("call", [fetch, chunks])
async def test_invalid_framing_within_a_body_ends_it(
    openai_server: OpenAIServer, make: Make, call: Any
) -> None:
    async def run(_: Received, wire: Wire) -> None:
        await wire.head(200, {"transfer-encoding": "chunked"})
        await wire.send(b"5\r\nab")
        await asyncio.sleep(0.05)
        await wire.send(b"cdefgh" * 100)
        await wire.client_left()

    openai_server.script(run)
    with pytest.raises(APIConnectionError):  # aiohttp's own reader waits for ever
        await asyncio.wait_for(call(make(timeout=5), post(openai_server)), 30)


@pytest.mark.parametrize(
    "location",
    ["javascript:1", "http://127.0.0.1:99999/", "http://[::1", "/é?\udcff", "http://127.0.0.1:１/"],
)
async def test_a_redirect_to_an_odd_place_raises_a_connection_error(
    openai_server: OpenAIServer, make: Make, location: str
) -> None:
    head = f"HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"
    openai_server.script(raw(head.encode("utf-8", "surrogateescape")))
    with pytest.raises(APIError):
        await fetch(make(timeout=5), post(openai_server))


async def test_a_cookie_that_cannot_be_sent_does_not_end_later_calls(
    openai_server: OpenAIServer, make: Make
) -> None:
    transport = make()
    openai_server.script(
        raw(b"HTTP/1.1 200 OK\r\nset-cookie: a=\xe9\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"),
        reply(200, b"ok"),
    )
    for _ in range(2):
        assert await fetch(transport, post(openai_server)) == b"ok"


# The client's settings


def test_the_limits_are_an_option_of_the_client(openai_server: OpenAIServer) -> None:
    with OpenAI(base_url=openai_server.base_url, api_key="k", response_limits=SMALL, max_retries=2) as client:
        ask: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        openai_server.script(endless(b" " * 65536, content_type="application/json"))
        with pytest.raises(ResponseTooLargeError):
            client.chat.completions.create(**ask)
        openai_server.script(endless(b"data: " + b"x" * 65536, content_type="text/event-stream"))
        with pytest.raises(ResponseTooLargeError):
            list(client.chat.completions.create(**ask, stream=True))
        larger = client.with_options(response_limits=ResponseLimits(max_body_bytes=math.inf))
        openai_server.script(reply(200, b" " * 2 * MIB + b'{"object": "list", "data": []}'))
        assert larger.models.list().data == []
        openai_server.script(reply(200, b" " * 2 * MIB + b'{"object": "list", "data": []}'))
        with pytest.raises(ResponseTooLargeError):
            client.models.list()
        rows = client.ledger.rows()
    assert [(row.status, row.error, row.attempts, row.cost_nano) for row in rows] == [
        ("error", "ResponseTooLargeError", 1, None)
    ] * 2


async def test_the_limits_are_settings_of_the_configuration(
    openai_server: OpenAIServer, tmp_path: Path
) -> None:
    config = tmp_path / "specclient.toml"
    config.write_text("[response_limits]\nmax_body_bytes = 1000\nmax_compression_ratio = inf\n")
    limits = load(config).response_limits.limits()
    assert limits == ResponseLimits(max_body_bytes=1000, max_compression_ratio=math.inf)
    async with AsyncOpenAI(base_url=openai_server.base_url, api_key="k", config=config) as client:
        openai_server.script(reply(200, b"x" * 1001))
        with pytest.raises(ResponseTooLargeError):
            await client.models.list()


def test_invalid_limits_raise(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"max_event_bytes is 0"):
        ResponseLimits(max_event_bytes=0)
    with pytest.raises(ConfigurationError, match=r"must be a specclient\.ResponseLimits"):
        OpenAI(response_limits=10)  # type: ignore[arg-type]
    config = tmp_path / "specclient.toml"
    config.write_text("[response_limits]\nmax_body_bytes = 0\n")
    with pytest.raises(ConfigurationError, match="max_body_bytes"):
        load(config)
