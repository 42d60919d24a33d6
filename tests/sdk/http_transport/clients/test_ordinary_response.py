"""Ordinary responses: read as aiohttp reads them, however they arrive; others are left to aiohttp."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.http_transport.clients.connector import Protocol
from specclient.http_transport.clients.ordinary_head import ordinary_head

pytestmark = pytest.mark.anyio

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\ncontent-length: 11\r\n\r\nhello world"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nset-cookie: a=b\r\nset-cookie: c=d\r\n\r\n"
    b"5\r\nhello\r\n006;name=value\r\n world\r\n0\r\n\r\n"
)
TRAILED = CHUNKED[:-2] + b"x-a: b\r\n\r\n"


class Transport(asyncio.Transport):
    """A transport that notes what is done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = self.paused = False

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def write(self, data: Any) -> None:
        pass


def _connected() -> tuple[Protocol, Transport]:
    protocol, transport = Protocol(loop=asyncio.get_running_loop()), Transport()
    protocol.connection_made(transport)
    return protocol, transport


def _expecting() -> tuple[Any, Transport]:
    protocol, transport = _connected()
    protocol.expect_response(5.0)
    return protocol, transport


async def _body_of(response: bytes, cuts: list[int]) -> bytes:
    protocol, _ = _expecting()
    places = sorted({min(cut, len(response)) for cut in cuts} | {0, len(response)})
    for begin, end in pairwise(places):
        protocol.data_received(response[begin:end])
    message, body = await protocol.read()
    assert message.code == 200
    found = await body.read()
    assert not protocol.should_close or response is TRAILED
    protocol.close()
    return bytes(found)


@pytest.mark.parametrize("response", [PLAIN, CHUNKED, TRAILED])
async def test_a_body_is_the_same_wherever_it_is_cut(response: bytes) -> None:
    for cut in range(1, len(response)):
        assert await _body_of(response, [cut]) == b"hello world", cut
    assert await _body_of(response, list(range(len(response)))) == b"hello world"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.lists(st.integers(0, 400), max_size=12))
def test_any_chunks_are_joined(chunks: list[bytes], cuts: list[int]) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    whole = head + framed
    assert asyncio.run(_body_of(whole, [len(head) + cut for cut in cuts])) == b"".join(chunks)


async def test_the_head_has_the_fields_in_lower_case_and_the_headers_as_received() -> None:
    head = ordinary_head(b"HTTP/1.1 429 Too Many\r\nX-Limit: \t5 \r\nContent-Length: 0\r\n\r\n")
    assert head is not None
    assert (head.code, head.reason, head.length) == (429, "Too Many", 0)
    assert head.fields == {"x-limit": "5", "content-length": "0"}
    assert head.raw_headers == ((b"X-Limit", b"5"), (b"Content-Length", b"0"))
    assert head.headers["X-LIMIT"] == "5"


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK\r\ncontent-length: 0",
        b"HTTP/1.1 100 Continue",
        b"HTTP/1.1 204 No Content\r\ncontent-length: 0",
        b"HTTP/1.1 2\xb20 OK\r\ncontent-length: 0",
        b"HTTP/1.1 2000\r\ncontent-length: 0",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK\r\ncontent-length: +1",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-encoding: gzip",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close",
        b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\nx: a\r\n folded",
        b"HTTP/1.1 200 OK\r\ncontent-length : 1",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\nx: y",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\nx: \0",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n: empty",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\nno colon",
        b"SSH-2.0",
    ],
)
def test_other_heads_are_left_to_aiohttp(head: bytes) -> None:
    assert ordinary_head(head + b"\r\n\r\n") is None


def test_a_head_that_is_not_whole_is_left_to_aiohttp() -> None:
    assert ordinary_head(PLAIN[:50]) is None


@pytest.mark.parametrize(
    "framed",
    [b"x\r\nhello", b"-5\r\nhello", b"0x5\r\nhello", b" 5\r\nhello", b"5\r\nhelloXX", b"\r\n", b"1" * 2000],
)
async def test_invalid_chunks_are_an_error_of_the_body(framed: bytes) -> None:
    protocol, transport = _expecting()
    protocol.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    _, body = await protocol.read()
    protocol.data_received(framed)
    with pytest.raises(aiohttp.ClientPayloadError, match="invalid HTTP"):
        await body.read()
    assert transport.closed
    assert protocol.should_close


@pytest.mark.parametrize(
    ("response", "why"), [(PLAIN, "received 10 of 11 bytes"), (CHUNKED, "data to satisfy transfer length")]
)
async def test_a_connection_that_ends_before_the_body_is_an_error(response: bytes, why: str) -> None:
    protocol, _ = _expecting()
    protocol.data_received(response[:-1])
    _, body = await protocol.read()
    protocol.connection_lost(None)
    with pytest.raises(aiohttp.ClientPayloadError, match=why):
        await body.read()


async def test_bytes_after_the_response_close_its_connection() -> None:
    protocol, _ = _expecting()
    protocol.data_received(PLAIN + b"HTTP/1.1 200 OK\r\n")
    _, body = await protocol.read()
    assert await body.read() == b"hello world"
    assert protocol.should_close


async def test_bytes_that_no_request_has_asked_for_close_an_idle_connection() -> None:
    protocol, transport = _expecting()
    protocol.data_received(PLAIN)
    await protocol.read()
    assert not protocol.should_close
    protocol.data_received(PLAIN)
    assert transport.closed


async def test_a_server_waits_while_its_client_reads_slowly() -> None:
    protocol, transport = _expecting()
    protocol.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 3000000\r\n\r\n")
    _, body = await protocol.read()
    protocol.data_received(bytes(1_000_000))
    assert transport.paused
    assert len(await body.readany()) == 1_000_000
    assert not transport.paused
    protocol.close()


async def test_one_timer_watches_for_silence_over_many_responses() -> None:
    protocol, _ = _connected()
    handles = set()
    for _ in range(3):
        protocol.expect_response(5.0)
        protocol.start_timeout()
        protocol.data_received(PLAIN)
        await (await protocol.read())[1].read()
        handles.add(protocol._read_timeout_handle)
    assert len(handles) == 1
    protocol.close()
    assert protocol._read_timeout_handle is None


async def test_a_shorter_limit_of_silence_replaces_the_timer() -> None:
    protocol, _ = _connected()
    protocol.expect_response(60.0)
    protocol.start_timeout()
    protocol.data_received(PLAIN)
    await protocol.read()
    protocol.expect_response(0.02)
    protocol.start_timeout()
    with pytest.raises(aiohttp.SocketTimeoutError):
        await protocol.read()


async def test_silence_within_a_body_is_an_error_of_the_body() -> None:
    protocol, _ = _connected()
    protocol.expect_response(0.02)
    protocol.start_timeout()
    protocol.data_received(PLAIN[:-1])
    _, body = await protocol.read()
    assert await body.readany() == b"hello worl"
    with pytest.raises(aiohttp.SocketTimeoutError):
        await body.readany()
