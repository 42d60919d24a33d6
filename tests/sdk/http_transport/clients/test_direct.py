"""Requests that are sent over aiohttp's connections without its session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest
import yarl

from specclient.http_transport.clients.connector import Connector
from specclient.http_transport.clients.direct import DirectResponse, DirectSender

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
WAITS = aiohttp.ClientTimeout(total=None, connect=5, sock_connect=5, sock_read=5)


class Peer:
    """A server that keeps the requests as received, and answers each with the next of ``answers``.

    Attributes:
        received: the requests by connection, in the order of the connections.
        ended: set when a connection has been closed by the client.
    """

    def __init__(self) -> None:
        self.received: list[list[bytes]] = []
        self.answers: list[bytes] = []
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine: list[bytes] = []
        self.received.append(mine)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
                mine.append(head + await reader.readexactly(length))
                writer.write(self.answers.pop(0) if self.answers else OK)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended.set()
        finally:
            writer.close()


class Client:
    """A session, and a sender over its connections."""

    def __init__(self, port: int) -> None:
        self.connector = Connector(idle=10, limit=10, keepalive_timeout=5.0)
        self.session = aiohttp.ClientSession(connector=self.connector)
        self.sender = DirectSender(self.connector, {})
        self.url = yarl.URL(f"http://127.0.0.1:{port}/v1/chat?a=%20b", encoded=True)

    async def post(
        self,
        headers: Mapping[str, str] = JSON,
        content: bytes = b"{}",
        waits: aiohttp.ClientTimeout = WAITS,
    ) -> DirectResponse:
        response = await self.sender.post(self.url, headers, content, timeout=waits, ssl=True)
        assert response is not None
        return response

    async def over_session(self, headers: Mapping[str, str], content: bytes = b"{}") -> None:
        async with self.session.post(self.url, headers=headers, data=content) as response:
            await response.read()


@pytest.fixture
async def peer() -> AsyncIterator[tuple[Peer, Client]]:
    found = Peer()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    client = Client(server.sockets[0].getsockname()[1])
    yield found, client
    await client.session.close()
    server.close()


@pytest.mark.parametrize(
    "headers",
    [
        JSON,
        {"Accept": "text/plain", "Content-Type": "application/json", "User-Agent": "me", "X-A": "b; c=d"},
        {"accept-encoding": "identity", "authorization": "Bearer ä", **JSON, "cookie": "a=b"},
        {**JSON, "content-encoding": "gzip", "x-empty": ""},
    ],
)
async def test_a_request_has_the_bytes_that_the_session_sends(
    peer: tuple[Peer, Client], headers: dict[str, str]
) -> None:
    server, client = peer
    response = await client.post(headers, b'{"a": 1}')
    assert await response.content.read() == b"ok"
    await client.over_session(headers, b'{"a": 1}')
    ((direct, session),) = server.received  # over one connection
    assert direct == session


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {**JSON, "Host": "other"},
        {**JSON, "Content-Length": "7"},
        {**JSON, "transfer-encoding": "chunked"},
        {**JSON, "expect": "100-continue"},
        {**JSON, "x-a": "b\r\nx-c: d"},
        {**JSON, "x-a\n": "b"},
        {**JSON, "x-a": "b\0"},
    ],
)
async def test_a_request_that_is_not_ordinary_is_left_to_the_session(
    peer: tuple[Peer, Client], headers: dict[str, str]
) -> None:
    server, client = peer
    assert await client.sender.post(client.url, headers, b"{}", timeout=WAITS, ssl=True) is None
    assert server.received == []


async def test_a_version_of_aiohttp_without_the_methods_sends_over_the_session(
    peer: tuple[Peer, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = peer
    monkeypatch.delattr(aiohttp.client_proto.ResponseHandler, "set_response_params")
    sender = DirectSender(client.connector, {})
    assert await sender.post(client.url, JSON, b"{}", timeout=WAITS, ssl=True) is None
    assert server.received == []


async def test_informational_responses_before_the_last_one_are_skipped(peer: tuple[Peer, Client]) -> None:
    server, client = peer
    server.answers = [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK]
    response = await client.post()
    assert (response.status, response.reason, await response.content.read()) == (200, "OK", b"ok")
    assert response.raw_headers == ((b"content-length", b"2"),)
    assert response.headers["Content-Length"] == "2"


@pytest.mark.parametrize("end", ["close", "release"])
async def test_a_response_that_is_left_unread_closes_its_connection(
    peer: tuple[Peer, Client], end: str
) -> None:
    server, client = peer
    server.answers = [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbegun"]
    response = await client.post()
    getattr(response, end)()
    await asyncio.wait_for(server.ended.wait(), 5)
    with pytest.raises(aiohttp.ClientConnectionError, match="Connection closed"):
        await response.content.read()
    await (await client.post()).content.read()
    assert list(map(len, server.received)) == [1, 1]


async def test_closing_a_response_that_was_read_keeps_its_connection(peer: tuple[Peer, Client]) -> None:
    server, client = peer
    for _ in range(3):
        response = await client.post()
        await response.content.read()
        response.close()
    assert list(map(len, server.received)) == [3]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"SSH-2.0\r\n\r\n", aiohttp.ClientResponseError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", aiohttp.ClientResponseError),
    ],
)
async def test_an_invalid_response_raises_and_closes_its_connection(
    peer: tuple[Peer, Client], answer: bytes, error: type[Exception]
) -> None:
    server, client = peer
    server.answers = [answer]
    with pytest.raises(error) as raised:
        await client.post()
    assert isinstance(raised.value.__cause__, aiohttp.http_exceptions.HttpProcessingError)
    await asyncio.wait_for(server.ended.wait(), 5)


async def test_a_request_cancelled_while_it_waits_closes_its_connection(peer: tuple[Peer, Client]) -> None:
    server, client = peer
    server.answers = [b"HTTP/1.1 100 Continue\r\n\r\n"]
    task = asyncio.create_task(client.post())
    while not (server.received and server.received[0]):
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(server.ended.wait(), 5)


async def test_silence_after_the_request_raises_a_read_timeout(peer: tuple[Peer, Client]) -> None:
    server, client = peer
    server.answers = [b""]
    with pytest.raises(aiohttp.SocketTimeoutError):
        await client.post(waits=aiohttp.ClientTimeout(total=None, sock_read=0.05))


async def test_waiting_for_a_free_connection_has_the_sessions_time_limit(peer: tuple[Peer, Client]) -> None:
    server, client = peer
    server.answers = [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbegun"]
    connector: Any = client.session.connector
    connector._limit = 1
    held = await client.post()
    with pytest.raises(aiohttp.ConnectionTimeoutError, match="Connection timeout to host"):
        await client.post(waits=aiohttp.ClientTimeout(total=None, connect=0.05))
    held.close()


async def test_the_templates_of_urls_are_bounded(
    peer: tuple[Peer, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specclient.http_transport.clients.direct._MOST_TEMPLATES", 2)
    _, client = peer
    for number in range(5):
        client.url = client.url.with_query({"n": number})
        await (await client.post()).content.read()
    assert len(client.sender._templates) <= 2
