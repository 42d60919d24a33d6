"""Handshakes that fail, and connections that end: one clear error each, in time."""

from __future__ import annotations

import pickle
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import websockets
from websocket_server import SocketServer, send_events

from specclient import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    ConfigurationError,
    InternalServerError,
    OpenAI,
    RateLimitError,
    ResponseLimits,
    ResponseTooLargeError,
)

KEY = "sk-very-secret-key"


def client_of(url: str, **options: Any) -> OpenAI:
    return OpenAI(api_key=KEY, base_url=f"{url}/v1", **options)


def connecting(client: OpenAI, **options: Any) -> Any:
    """Return a context manager of a connection; keyword arguments are those of ``websockets``."""
    return client.realtime.connect(model="gpt-realtime", websocket_connection_options=options)


@contextmanager
def tcp_server(answer: bytes, *, hold: bool = False) -> Iterator[str]:
    """Return the URL of a server that sends ``answer`` to each connection, and closes it unless ``hold``."""
    listener = socket.create_server(("127.0.0.1", 0))
    open_connections: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            connection.recv(65536)
            connection.sendall(answer)
            if hold:
                open_connections.append(connection)
            else:
                connection.close()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in open_connections:
            connection.close()


@pytest.mark.parametrize(
    ("status", "kind"), [(401, AuthenticationError), (429, RateLimitError), (503, InternalServerError)]
)
def test_a_refused_handshake_raises_the_error_of_its_status(
    socket_server: SocketServer, status: int, kind: type[Exception]
) -> None:
    body = b'{"error": {"message": "no: sk-very-secret-key", "code": "the_code"}}'
    socket_server.refusals = [(status, {"x-request-id": "req_1", "content-type": "application/json"}, body)]
    with client_of(socket_server.url) as client, pytest.raises(kind) as caught:
        connecting(client).enter()
    error: Any = caught.value
    assert (error.status_code, error.code, error.request_id) == (status, "the_code", "req_1")
    assert error.message == f"Error code: {status} - no: [redacted]"
    assert KEY not in repr(error) + str(error) + str(error.body) + str(error.request.headers)


def test_a_server_without_websockets_is_named() -> None:
    page = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
    for answer in (page, b"SSH-2.0-OpenSSH_9.6\r\n", b""):
        with (
            tcp_server(answer) as url,
            client_of(url) as client,
            pytest.raises(APIConnectionError, match="Check that the server offers WebSockets"),
        ):
            connecting(client).enter()


def test_a_proxy_that_refuses_is_named(socket_server: SocketServer) -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n"
    with (
        tcp_server(refusal) as proxy,
        client_of(socket_server.url) as client,
        pytest.raises(APIStatusError, match="from the proxy on the way to http://127") as caught,
    ):
        connecting(client, proxy=proxy).enter()
    assert caught.value.status_code == 407


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with client_of(f"http://127.0.0.1:{port}") as client, pytest.raises(APIConnectionError) as caught:
        connecting(client).enter()
    assert f"http://127.0.0.1:{port}" in str(caught.value)
    assert caught.value.sent is False


def test_a_handshake_without_an_answer_times_out() -> None:
    with (
        tcp_server(b"", hold=True) as url,
        client_of(url) as client,
        pytest.raises(APITimeoutError) as caught,
    ):
        connecting(client, open_timeout=0.2).enter()
    assert "open_timeout" in str(caught.value)


def test_a_redirect_does_not_take_the_key_to_another_origin(socket_server: SocketServer) -> None:
    with tcp_server(b"") as url:
        socket_server.refusals = [(302, {"location": f"{url.replace('http', 'ws')}/v1/realtime"}, b"")]
        with (
            client_of(socket_server.url) as client,
            pytest.raises(APIConnectionError, match="another origin"),
        ):
            connecting(client).enter()
    socket_server.refusals = [(302, {"location": f"{socket_server.ws_url}/elsewhere?model=m"}, b"")]
    with client_of(socket_server.url) as client, connecting(client):
        pass
    assert socket_server.last.path == "/elsewhere"
    assert socket_server.last.headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(("code", "ended"), [(1000, True), (1011, False), (4000, False)])
def test_the_error_of_a_closed_connection_is_the_librarys_too(
    socket_server: SocketServer, code: int, ended: bool
) -> None:
    socket_server.script = lambda connection: connection.close(code, "because")
    with client_of(socket_server.url) as client, connecting(client) as connection:
        with pytest.raises(APIConnectionError, match=f"code {code}: 'because'") as caught:
            connection.recv()
        with pytest.raises(APIConnectionError):
            connection.send({"type": "session.update"})
    error: Any = caught.value
    kind = websockets.ConnectionClosedOK if ended else websockets.ConnectionClosedError
    assert isinstance(error, kind)
    assert error.rcvd.code == code
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.rcvd.code) == (str(error), code)


def test_iteration_ends_at_a_normal_end_alone(socket_server: SocketServer) -> None:
    socket_server.script = lambda connection: connection.close(1000)
    with client_of(socket_server.url) as client, connecting(client) as connection:
        assert list(connection) == []
    socket_server.script = lambda connection: connection.close(1011)
    with (
        client_of(socket_server.url) as client,
        connecting(client) as connection,
        pytest.raises(websockets.ConnectionClosedError),
    ):
        list(connection)


def test_broken_frames_end_the_connection_with_one_error(socket_server: SocketServer) -> None:
    frames = {
        b"\xff\xff\xff": "1002",  # reserved bits and an unknown opcode
        b"\x83\x00": "1002",  # a reserved opcode
    }
    for frame, code in frames.items():

        def script(connection: Any, frame: bytes = frame) -> None:
            connection.socket.sendall(frame)
            socket_server.read_all(connection)

        socket_server.script = script
        with (
            client_of(socket_server.url) as client,
            connecting(client) as connection,
            pytest.raises(APIConnectionError, match=code),
        ):
            connection.recv()


def test_a_message_that_is_too_long_names_the_limit(socket_server: SocketServer) -> None:
    socket_server.script = lambda connection: send_events(connection, {"type": "x", "text": "y" * 5000})
    limits = ResponseLimits(max_event_bytes=1000)
    with client_of(socket_server.url, response_limits=limits) as client:
        with connecting(client) as connection, pytest.raises(ResponseTooLargeError, match="max_event_bytes"):
            connection.recv()
        with connecting(client, max_size=10_000) as connection:
            assert connection.recv().type == "x"


def test_a_missing_library_is_named(socket_server: SocketServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets.asyncio.client", None)
    with (
        client_of(socket_server.url) as client,
        pytest.raises(ConfigurationError, match=r"specclient\[realtime\]"),
    ):
        connecting(client)
