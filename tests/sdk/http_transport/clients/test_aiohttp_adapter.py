"""The aiohttp client in rare cases: bodies, connection reuse, URLs, timeouts, TLS, redirects and cookies."""

from __future__ import annotations

import asyncio
import io
import select
import ssl
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest
from loopback_server import OpenAIServer, Received, Wire, hang, raw, reply
from paths import DATA

from specclient.errors import APIConnectionError, APITimeoutError, ConfigurationError, InternalServerError
from specclient.http_transport import Transport
from specclient.http_transport.clients import connector
from specclient.http_transport.clients.defaults import Timeout
from specclient.types.wire import WireRequest

pytestmark = pytest.mark.anyio

Make = Callable[..., Transport]
TEXT = b"0123456789" * 20_000


async def no_wait(_: float) -> None:
    """Return at once instead of sleeping."""


@pytest.fixture(params=["aiohttp", "httpx"])
async def make(request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    """Make transports of either kind, closed at the end."""
    made: list[Transport] = []

    def build(**options: Any) -> Transport:
        made.append(Transport(**{"kind": request.param, "sleep": no_wait, **options}))
        return made[-1]

    yield build
    for transport in made:
        await transport.aclose()


def put(server: OpenAIServer, content: Any, path: str = "/x", **options: Any) -> WireRequest:
    return WireRequest(options.pop("method", "POST"), server.base_url + path, {}, content, **options)


def ok(*_: Any) -> Any:
    return reply(200, {})


class Bodies:
    """Kinds of request body that users pass; each contains TEXT."""

    @staticmethod
    def opened(folder: Path) -> io.BufferedReader:
        path = folder / "body"
        path.write_bytes(b"head:" + TEXT)
        file = path.open("rb")
        file.seek(5)
        return file

    @staticmethod
    def halves() -> Iterator[bytes]:
        yield TEXT[:1000]
        yield TEXT[1000:]

    @staticmethod
    async def ahalves() -> AsyncIterator[bytes]:
        yield TEXT[:1000]
        yield TEXT[1000:]


REPEATABLE = {
    "text": lambda _: TEXT.decode(),
    "bytearray": lambda _: bytearray(TEXT),
    "list": lambda _: list(Bodies.halves()),
    "memory": lambda _: io.BytesIO(TEXT),
    "file": Bodies.opened,
}
READ_ONCE = {"generator": lambda _: Bodies.halves(), "async generator": lambda _: Bodies.ahalves()}


@pytest.mark.parametrize("kind", REPEATABLE)
async def test_every_attempt_sends_the_complete_body(
    openai_server: OpenAIServer, make: Make, tmp_path: Path, kind: str
) -> None:
    body = REPEATABLE[kind](tmp_path)
    location = {"location": f"{openai_server.base_url}/moved"}
    openai_server.script(reply(500), reply(503), reply(307, b"", location), ok())
    await make().fetch(put(openai_server, body))
    assert [received.body for received in openai_server.requests] == [TEXT] * 4
    chunked = [received.headers.get("transfer-encoding") for received in openai_server.requests]
    assert chunked == (["chunked"] * 4 if kind == "list" else [None] * 4)
    if kind in ("memory", "file"):
        assert not body.closed
        body.close()


@pytest.mark.parametrize("kind", READ_ONCE)
async def test_a_body_that_can_be_read_only_once_is_not_sent_again(
    openai_server: OpenAIServer, make: Make, tmp_path: Path, kind: str
) -> None:
    openai_server.script(reply(500), ok())
    with pytest.raises(InternalServerError):
        await make().fetch(put(openai_server, READ_ONCE[kind](tmp_path)))
    assert [received.body for received in openai_server.requests] == [TEXT]
    openai_server._script.clear()
    openai_server.script(reply(307, b"", {"location": f"{openai_server.base_url}/moved"}), ok())
    with pytest.raises(APIConnectionError, match="StreamConsumed"):
        await make().fetch(put(openai_server, READ_ONCE[kind](tmp_path)))


async def test_a_file_closed_during_the_first_attempt_is_not_sent_again(
    openai_server: OpenAIServer, make: Make
) -> None:
    file = io.BytesIO(TEXT)

    async def refuse(received: Received, wire: Wire) -> None:
        file.close()
        await reply(500)(received, wire)

    openai_server.script(refuse, ok())
    with pytest.raises(InternalServerError):
        await make().fetch(put(openai_server, file))


async def test_a_users_sync_client_sends_files_and_generators(openai_server: OpenAIServer) -> None:
    moved = reply(307, b"", {"location": f"{openai_server.base_url}/moved"})
    openai_server.script(reply(500), moved, *[ok()] * 2)
    with httpx.Client(follow_redirects=True) as client:
        transport = Transport(http_client=client, sleep=no_wait)
        await transport.fetch(put(openai_server, io.BytesIO(TEXT)))
        await transport.fetch(put(openai_server, Bodies.halves()))
    assert [received.body for received in openai_server.requests] == [TEXT] * 4


@pytest.mark.parametrize("body", [7, {"a": 1}, object()])
async def test_a_body_of_a_wrong_type_raises(openai_server: OpenAIServer, make: Make, body: Any) -> None:
    with pytest.raises(TypeError, match=f"content is a {type(body).__name__}; it must be bytes"):
        await make().fetch(put(openai_server, body))


async def test_a_large_body_causes_no_warning(openai_server: OpenAIServer, make: Make) -> None:
    openai_server.script(ok())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await make().fetch(put(openai_server, TEXT * 10))
    assert openai_server.requests[0].body == TEXT * 10


async def test_a_connection_closed_by_the_server_is_not_reused(
    openai_server: OpenAIServer, make: Make
) -> None:
    """The server closes while this loop is blocked, so it has not seen the close at the next request."""
    transport = make(max_retries=0)
    for _ in range(3):
        openai_server.script(raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"))
        await transport.fetch(put(openai_server, b"{}"))
        assert openai_server.wait_left(openai_server.connections)  # blocks the loop
    assert openai_server.connections == 3


@pytest.mark.parametrize("polls", [True, False])
async def test_an_open_connection_is_reused(
    openai_server: OpenAIServer, make: Make, monkeypatch: pytest.MonkeyPatch, polls: bool
) -> None:
    if not polls:  # as on Windows
        monkeypatch.delattr(select, "poll", raising=False)
    openai_server.script(*[ok()] * 3)
    transport = make()
    for _ in range(3):
        await transport.fetch(put(openai_server, b"{}"))
    assert openai_server.connections == 1


async def test_the_number_of_connections_is_limited(openai_server: OpenAIServer, make: Make) -> None:
    openai_server.script(*[ok()] * 9)
    transport = make(connections=2)
    await asyncio.gather(*[transport.fetch(put(openai_server, b"{}")) for _ in range(9)])
    assert openai_server.connections <= 2


async def test_a_hundred_calls_over_a_sync_client_run_concurrently_and_leave_worker_threads_free(
    openai_server: OpenAIServer,
) -> None:
    """Each response waits for the last request: with fewer threads than calls, none would ever be sent."""
    count = 100

    async def wait(received: Received, wire: Wire) -> None:
        while len(openai_server.requests) < count:
            await asyncio.sleep(0.005)
        await reply(200, {})(received, wire)

    openai_server.script(*[wait] * count)
    with httpx.Client(limits=httpx.Limits(max_connections=count)) as client:
        transport = Transport(http_client=client, timeout=30, max_retries=0)
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(transport.fetch, put(openai_server, b"{}"))
            while len(openai_server.requests) < count // 2:
                await asyncio.sleep(0.005)
            assert await anyio.to_thread.run_sync(lambda: "free") == "free"


@pytest.mark.parametrize(
    "tail",
    [
        "/a b",
        "/é",
        "/a?q=b c",
        "/a#part",
        "/a/../b",
        "/a/./b/..",
        '/a"<>b',
        "/a%2Fb",
        "/50%",
        "/a?q=%zz",
        "//a",
    ],
)
@pytest.mark.parametrize("base", ["", "/my proxy"])
async def test_urls_are_sent_as_httpx_sends_them(
    openai_server: OpenAIServer, make: Make, base: str, tail: str
) -> None:
    url = openai_server.url + base + tail
    openai_server.script(ok(), ok())
    await make().fetch(WireRequest("GET", url))
    async with httpx.AsyncClient() as client:
        await client.get(url)
    ours, theirs = openai_server.requests
    assert (ours.path, ours.query) == (theirs.path, theirs.query)


@pytest.mark.parametrize("tail", ["/x HTTP/1.1\r\nx-evil: 1\r\na: b", "/x\ny", "/x\x00"])
async def test_a_url_with_control_characters_is_rejected(
    openai_server: OpenAIServer, make: Make, tail: str
) -> None:
    with pytest.raises(httpx.InvalidURL):
        await make().fetch(put(openai_server, b"", tail))
    assert openai_server.requests == []


@pytest.mark.parametrize("url", ["/relative", "ftp://127.0.0.1/x", "http://"])
async def test_a_url_without_an_http_host_raises(make: Make, url: str) -> None:
    with pytest.raises(APIConnectionError):
        await make(max_retries=0).fetch(WireRequest("GET", url))


async def test_credentials_in_the_url_become_basic_auth_as_with_httpx(
    openai_server: OpenAIServer, make: Make
) -> None:
    openai_server.script(ok())
    url = openai_server.base_url.replace("//", "//us%20er:pass@")
    await make().fetch(WireRequest("POST", url, {"Authorization": "Bearer sk-key"}, b"{}"))
    assert openai_server.requests[0].headers["authorization"] == "Basic dXMgZXI6cGFzcw=="


@pytest.mark.parametrize("part", ["connect", "read"])
async def test_a_timeout_of_zero_is_not_unlimited(openai_server: OpenAIServer, make: Make, part: str) -> None:
    openai_server.script(hang)
    limits = Timeout(None, **{part: 0})
    with anyio.fail_after(20), pytest.raises(APIConnectionError):
        await make(max_retries=0).fetch(put(openai_server, b"{}", timeout=limits))


async def test_a_dns_lookup_that_never_ends_raises_a_connect_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(connector.Connector, "_resolve_host", never)
    transport = Transport(max_retries=0, timeout=Timeout(30, connect=0.05))
    with pytest.raises(APITimeoutError, match=r"made within the connect timeout of 0\.05 s"):
        await transport.fetch(WireRequest("GET", "http://slow.invalid/"))
    await transport.aclose()


async def test_waiting_too_long_for_a_connection_raises_a_pool_timeout(openai_server: OpenAIServer) -> None:
    openai_server.script(hang)
    transport = Transport(max_retries=0, connections=1)
    first = asyncio.create_task(transport.fetch(put(openai_server, b"{}")))
    while not openai_server.requests:
        await asyncio.sleep(0.005)
    with pytest.raises(APITimeoutError, match=r"became free within the pool timeout of 0\.05 s"):
        await transport.fetch(put(openai_server, b"{}", timeout=Timeout(30, pool=0.05)))
    first.cancel()
    await asyncio.wait([first])
    await transport.aclose()


async def test_ssl_cert_file_is_read_when_the_client_is_made(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for _ in range(2):  # one without the variable first: certificates are not shared between clients
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        with pytest.raises(APIConnectionError, match="No answer from https"):
            await make(max_retries=0).fetch(WireRequest("GET", "https://127.0.0.1:9/"))
        for path, reason in ((tmp_path / "none.pem", "No such file"), (tmp_path / "bad.pem", "PEM")):
            (tmp_path / "bad.pem").write_text("no certificate")
            monkeypatch.setenv("SSL_CERT_FILE", str(path))
            with pytest.raises(ConfigurationError, match=rf"SSL_CERT_FILE={path} cannot be read.*{reason}"):
                await make().fetch(WireRequest("GET", "https://127.0.0.1:9/"))


#: A self-signed certificate and its key for localhost, used by the next test only; valid until 2126.
LOCALHOST_PEM = DATA / "tls/localhost.pem"


async def test_a_self_signed_server_is_trusted_only_with_its_certificate(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(LOCALHOST_PEM)
    async with await asyncio.start_server(respond, "127.0.0.1", 0, ssl=context) as server:
        request = WireRequest("GET", f"https://localhost:{server.sockets[0].getsockname()[1]}/")
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        with pytest.raises(APIConnectionError, match="certificate verify failed"):
            await make(max_retries=0).fetch(request)
        monkeypatch.setenv("SSL_CERT_FILE", str(LOCALHOST_PEM))
        assert (await make(max_retries=0).fetch(request)).content == b"hi"


async def test_a_client_reads_certificates_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ssl.SSLContext] = []
    make_context = ssl.create_default_context
    monkeypatch.setattr(
        ssl, "create_default_context", lambda **options: made.append(make_context(**options)) or made[-1]
    )
    transport = Transport(max_retries=0)
    for _ in range(3):
        with pytest.raises(APIConnectionError):
            await transport.fetch(WireRequest("GET", "https://127.0.0.1:9/"))
    await transport.aclose()
    assert len(made) == 1


async def test_a_response_with_two_hundred_long_headers_is_read(
    openai_server: OpenAIServer, make: Make
) -> None:
    openai_server.script(reply(200, {}, {f"x-{number}": "v" * 400 for number in range(200)}))
    assert len((await make().fetch(put(openai_server, b"{}"))).headers) == 202


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "GET"])
async def test_a_redirect_keeps_or_changes_the_method_as_httpx_does(
    openai_server: OpenAIServer, make: Make, status: int, method: str
) -> None:
    moved = reply(status, b"", {"location": f"{openai_server.base_url}/moved"})
    openai_server.script(moved, ok(), moved, ok())
    await make().fetch(put(openai_server, b"{}", method=method))
    async with httpx.AsyncClient(follow_redirects=True) as client:
        await client.request(method, f"{openai_server.base_url}/x", content=b"{}")
    ours, theirs = openai_server.requests[1], openai_server.requests[3]
    assert (ours.method, ours.body, ours.path) == (theirs.method, theirs.body, theirs.path)


@pytest.mark.parametrize("hops", [1, 2])
async def test_credentials_in_a_redirect_do_not_replace_the_authorization_header(
    openai_server: OpenAIServer, make: Make, hops: int
) -> None:
    location = openai_server.base_url.replace("//", "//user:pw@") + "/moved"
    openai_server.script(*[reply(307, b"", {"location": location})] * hops, ok())
    request = WireRequest("POST", f"{openai_server.base_url}/x", {"authorization": "Bearer sk-key"}, b"{}")
    await make().fetch(request)
    assert openai_server.requests[-1].headers["authorization"] == "Bearer sk-key"


async def test_a_redirect_to_an_invalid_url_raises(openai_server: OpenAIServer, make: Make) -> None:
    openai_server.script(reply(307, b"", {"location": "http://host:port/"}))
    with pytest.raises(APIConnectionError, match="RemoteProtocolError"):
        await make(max_retries=0).fetch(put(openai_server, b"{}"))


async def test_cookies_are_not_stored(openai_server: OpenAIServer, make: Make) -> None:
    cookie = {"set-cookie": "session=1; Path=/"}
    moved = reply(307, b"", {**cookie, "location": "/moved"})
    openai_server.script(reply(200, {}, cookie), moved, reply(200, {}, cookie), ok())
    transport = make()
    url = openai_server.base_url.replace(
        "127.0.0.1", "localhost"
    )  # aiohttp stores no cookie of an IP address
    for _ in range(3):
        await transport.fetch(WireRequest("POST", url, {}, b"{}"))
    assert [received.headers.get("cookie") for received in openai_server.requests] == [None] * 4


async def test_at_most_a_hundred_idle_connections_are_kept(openai_server: OpenAIServer) -> None:
    transport = Transport()
    request = WireRequest("POST", f"{openai_server.base_url}/x", content=b"{}")

    async def fetch_150_at_once() -> int:
        openai_server.script(*[slow] * 150)
        await asyncio.gather(*[transport.fetch(request) for _ in range(150)])
        return max(request.connection for request in openai_server.requests)

    async def slow(received: Received, wire: Wire) -> None:
        await asyncio.sleep(0.3)  # until all requests have arrived
        await reply(200, {})(received, wire)

    assert [await fetch_150_at_once(), await fetch_150_at_once()] == [150, 200]
    await transport.aclose()
