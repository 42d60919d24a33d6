"""Connections: oversized heads, protocol upgrades, clients that do not read, and clients that disconnect."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import uvloop
from gateway_server import Served, upstream_settings, wait_until
from loopback_server import TEXT, OpenAIServer, Received, Wire, behave, broken_stream, hang, reply

from specclient.config import Settings
from specclient.serving import Limits

BODY = json.dumps({"model": "mine/m-large", "messages": [{"role": "user", "content": "x"}]}).encode()
STREAM = BODY[:-1] + b', "stream": true}'
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
FILE = b"GET /v1/files/f/content HTTP/1.1\r\nhost: localhost\r\n"


def _post(body: bytes = BODY, lines: bytes = b"") -> bytes:
    return HEAD + lines + b"content-length: %d\r\n\r\n" % len(body) + body


@contextmanager
def _connected(served: Served) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as sock:
        yield sock


def _until(sock: socket.socket, mark: bytes) -> bytes:
    seen = b""
    while mark not in seen:
        piece = sock.recv(65536)
        assert piece, f"closed before {mark!r}: {seen!r}"
        seen += piece
    return seen


def _rest(sock: socket.socket) -> bytes:
    """Return the bytes received until the server closes or resets the connection."""
    seen = b""
    with suppress(ConnectionError):
        while piece := sock.recv(65536):
            seen += piece
    return seen


def _empty(served: Served) -> bool:
    return wait_until(lambda: not served.server.server_state.connections)


@pytest.fixture(scope="module")
def plain() -> Iterator[Served]:
    """A server without models that accepts request heads of up to 5,000 bytes."""
    with Served(Settings.model_validate({"ledger": "off"}), limits=Limits(head_bytes=5000)) as served:
        yield served


@pytest.mark.parametrize("line", [b"x-a: " + b"a" * 5000, b"x-a: b\r\n" * 700])
def test_an_endless_request_head_is_refused(plain: Served, line: bytes) -> None:
    with _connected(plain) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + line)
        answer = _rest(sock)
    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert (error["code"], error["message"]) == (
        "invalid_http",
        "the request's head is longer than this server's limit of 5000 bytes; shorten path and headers",
    )


@pytest.mark.parametrize(
    "line",
    [b"x-a: " + b"a" * 5000, b"x-a: b\r\n" * 700 + b"x-a: b"],
    ids=["one header", "many headers"],
)
def test_a_long_head_that_arrives_as_a_whole_is_refused(plain: Served, line: bytes) -> None:
    with _connected(plain) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + line + b"\r\n\r\n")
        assert _rest(sock).startswith(b"HTTP/1.1 431 ")


def test_a_long_path_is_refused(plain: Served) -> None:
    with _connected(plain) as sock:
        sock.sendall(b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert _rest(sock).startswith(b"HTTP/1.1 431 ")


def test_a_long_head_after_another_request_is_refused(plain: Served) -> None:
    with _connected(plain) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert _until(sock, b"}").startswith(b"HTTP/1.1 200 ")
        sock.sendall(b"GET /health HTTP/1.1\r\nx-a: " + b"a" * 5000 + b"\r\nhost: localhost\r\n\r\n")
        assert _rest(sock).startswith(b"HTTP/1.1 431 ")


@pytest.fixture(scope="module")
def usual() -> Iterator[Served]:
    """A server without models, with the default limits."""
    with Served(Settings.model_validate({"ledger": "off"})) as served:
        yield served


@pytest.mark.parametrize(("size", "status"), [(60_000, b"200"), (66_000, b"431"), (900_000, b"431")])
def test_a_head_above_64_kib_is_431_by_default(usual: Served, size: int, status: bytes) -> None:
    """The client gets the answer, also if it has sent more than the server has read."""
    head = b"GET /health HTTP/1.1\r\nhost: localhost\r\nx-a: " + b"a" * size + b"\r\n\r\n"
    for _ in range(3):
        with _connected(usual) as sock:
            sock.sendall(head)
            assert _until(sock, b"}").startswith(b"HTTP/1.1 " + status)
    assert wait_until(lambda: not usual.server.server_state.connections)


def test_endless_trailers_close_the_connection(plain: Served) -> None:
    with _connected(plain) as sock, suppress(ConnectionError):
        sock.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n")
        for _ in range(2000):
            sock.sendall(b"x-a: b\r\n" * 500)
        assert not _rest(sock)
    assert _empty(plain)


def test_a_long_body_does_not_count_towards_the_head_limit(plain: Served) -> None:
    with _connected(plain) as sock:
        for _ in range(2):  # the count restarts with each request
            sock.sendall(HEAD + b"content-length: 20000\r\n\r\n")
            for _ in range(20):
                sock.sendall(b"x" * 1000)
            assert _until(sock, b"}}").startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("parts", [1, 2])
def test_a_protocol_upgrade_is_ignored_and_answered_in_http_1_1(
    gateway: Served, openai_server: OpenAIServer, parts: int
) -> None:
    lines = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
    head, _, body = _post(lines=lines).partition(b"\r\n\r\n")
    with _connected(gateway) as sock:
        for _ in range(2):
            for piece in [head + b"\r\n\r\n" + body] if parts == 1 else [head + b"\r\n\r\n", body]:
                sock.sendall(piece)
            assert _until(sock, b"}}").startswith(b"HTTP/1.1 200 OK\r\n")
    assert [r.json["messages"] for r in openai_server.requests] == [json.loads(BODY)["messages"]] * 2


@pytest.mark.parametrize("lines", [b"connection: close\r\n", b""])
def test_an_unread_response_is_dropped(openai_server: OpenAIServer, lines: bytes) -> None:
    openai_server.script(reply(200, b"z" * 30_000_000, {"content-type": "application/octet-stream"}))
    limits = Limits(send_s=0.2, idle_s=1, grace_s=1)
    with Served(upstream_settings(openai_server), limits=limits) as served, _connected(served) as sock:
        sock.sendall(FILE + lines + b"\r\n")
        _until(sock, b"zzz")
        assert _empty(served)
        assert wait_until(lambda: served.service.admission.running == 0)


def test_a_slowly_read_response_is_not_dropped(openai_server: OpenAIServer) -> None:
    message = {"role": "assistant", "content": "z" * 12_000_000}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    answer = {"id": "f", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    body = json.dumps(answer).encode()
    openai_server.script(reply(200, body, {"content-type": "application/json"}))
    limits = Limits(send_s=0.2, idle_s=1, grace_s=1)
    with Served(upstream_settings(openai_server), limits=limits) as served, _connected(served) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        sock.sendall(_post(lines=b"connection: close\r\n"))
        size = 0
        while piece := sock.recv(1_000_000):
            size += len(piece)
            if size < 500_000:
                time.sleep(0.1)
        assert size > len(body)
        assert _empty(served)


@pytest.mark.parametrize("body", [BODY, STREAM])
def test_disconnecting_with_a_pipelined_request_cancels_the_running_one(
    gateway: Served, openai_server: OpenAIServer, body: bytes
) -> None:
    async def endless(received: Received, wire: Wire) -> None:
        if not received.json.get("stream"):
            await hang(received, wire)
        await wire.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        await wire.client_left()

    openai_server.script(endless)
    with _connected(gateway) as sock:
        sock.sendall(_post(body) + _post(body))
        assert wait_until(lambda: len(openai_server.requests) == 1)
    assert openai_server.wait_left(1)
    assert _empty(gateway)
    assert len(openai_server.requests) == 1


def test_head_and_body_are_sent_in_one_write(gateway: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """One write means one system call and one wake-up of the client."""
    written: list[Any] = []
    (connection,) = [gateway.server.config.http]
    made: Any = connection.connection_made  # type: ignore[union-attr]

    class Spy:
        def __init__(self, transport: Any) -> None:
            self._transport = transport

        def __getattr__(self, name: str) -> Any:
            return getattr(self._transport, name)

        def write(self, data: bytes) -> None:
            written.append(data)
            self._transport.write(data)

        def writelines(self, pieces: Any) -> None:
            written.append(b"".join(pieces))
            self._transport.writelines(pieces)

    monkeypatch.setattr(connection, "connection_made", lambda self, transport: made(self, Spy(transport)))
    with _connected(gateway) as sock:
        sock.sendall(_post())
        seen = _until(sock, b"}}")
        assert written == [seen]
        written.clear()
        sock.sendall(_post(STREAM))
        seen = _until(sock, b"0\r\n\r\n")
    assert b"".join(written) == seen
    assert written[-1].endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def on_either_loop(request: pytest.FixtureRequest, openai_server: OpenAIServer) -> Iterator[Served]:
    """A gateway on asyncio's event loop, and on the one of ``specclient serve``."""
    with Served(upstream_settings(openai_server), new_loop=request.param) as served:
        yield served


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("body", [BODY, STREAM])
def test_a_client_that_ends_its_direction_gets_its_answer(
    on_either_loop: Served, openai_server: OpenAIServer, body: bytes, version: bytes
) -> None:
    async def late(received: Received, wire: Wire) -> None:
        await asyncio.sleep(0.3)
        await behave(received, wire)

    openai_server.script(late)
    with _connected(on_either_loop) as sock:
        sock.sendall(_post(body).replace(b"HTTP/1.1", b"HTTP/" + version))
        sock.shutdown(socket.SHUT_WR)
        answer = _rest(sock).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert TEXT.split()[-1].encode() in answer
    assert _empty(on_either_loop)


def test_a_half_closed_client_gets_the_answers_to_pipelined_requests(on_either_loop: Served) -> None:
    with _connected(on_either_loop) as sock:
        sock.sendall(_post() * 3)
        sock.shutdown(socket.SHUT_WR)
        assert _rest(sock).count(b"HTTP/1.1 200 OK\r\n") == 3
    assert _empty(on_either_loop)


def test_an_ordinary_client_reads_the_answer_after_its_direction_has_ended(on_either_loop: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", on_either_loop.port, timeout=30)
    connection.request("POST", "/v1/chat/completions", BODY)
    connection.sock.shutdown(socket.SHUT_WR)
    answer = connection.getresponse()
    assert answer.status == 200
    assert json.loads(answer.read())["choices"][0]["message"]["content"] == TEXT
    connection.close()


@pytest.mark.parametrize(("body", "behaviour"), [
    (BODY, hang),
    (STREAM, hang),
    (STREAM, broken_stream(b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n', how="hang")),
])  # fmt: skip
def test_a_client_that_has_left_is_not_taken_for_a_half_closed_one(
    on_either_loop: Served, openai_server: OpenAIServer, body: bytes, behaviour: Any
) -> None:
    openai_server.script(behaviour)
    with _connected(on_either_loop) as sock:
        sock.sendall(_post(body))
        assert wait_until(lambda: len(openai_server.requests) == 1)
        if behaviour is not hang:
            _until(sock, b"data: ")
    assert openai_server.wait_left(1)
    assert _empty(on_either_loop)


def test_a_half_closed_client_that_leaves_later_is_noticed(
    on_either_loop: Served, openai_server: OpenAIServer
) -> None:
    openai_server.script(hang)
    with _connected(on_either_loop) as sock:
        sock.sendall(_post())
        sock.shutdown(socket.SHUT_WR)
        _until(sock, b"100 Continue\r\n\r\n")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() sends RST
    assert openai_server.wait_left(1)
    assert _empty(on_either_loop)


def test_a_request_that_ends_before_its_body_gets_no_answer(plain: Served) -> None:
    with _connected(plain) as sock:
        sock.sendall(_post()[:-5])
        sock.shutdown(socket.SHUT_WR)
        assert _rest(sock) == b""
    assert _empty(plain)
