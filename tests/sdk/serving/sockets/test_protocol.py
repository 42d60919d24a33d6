"""The WebSocket protocol: messages that still arrive are bounded."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from gateway_server import Served, wait_until
from websocket_server import SocketServer
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from specclient.config import Settings
from specclient.serving import Limits

PATH = "/v1/realtime?model=gpt-realtime"
PART = "x" * 700 * 2**10


@pytest.fixture
def small(socket_server: SocketServer, tmp_path: Path) -> Iterator[Served]:
    """A gateway that holds one MiB of messages, and takes messages of one MiB."""
    socket_server.script = socket_server.read_all
    mine = {"base_url": f"{socket_server.url}/v1", "api_key": "sk-upstream"}
    tables = {"default_provider": "mine", "ledger": "off", "providers": {"mine": mine}}
    limits = Limits(bodies_bytes=2**20, message_bytes=2**20, grace_s=1)
    with Served(Settings.model_validate(tables), limits=limits) as served:
        yield served


def test_messages_that_still_arrive_are_bounded_together(small: Served, socket_server: SocketServer) -> None:
    """Other messages are served all the while, and large ones again once there is room."""
    url = f"ws://127.0.0.1:{small.port}{PATH}"
    arrived, go_on = threading.Event(), threading.Event()

    def slowly() -> Iterator[str]:
        yield '{"type": "a", "x": "' + PART
        arrived.set()
        assert go_on.wait(20)
        yield '"}'

    with (
        connect(url, proxy=None) as slow,
        connect(url, proxy=None) as late,
        connect(url, proxy=None) as small_one,
    ):
        sending = threading.Thread(target=slow.send, args=(slowly(),))
        sending.start()
        assert arrived.wait(10)
        for number in range(5):  # the server reads what it has received in turns, and counts it
            small_one.send(f'{{"type": "e{number}"}}')
            sent = f'"e{number}"'
            assert wait_until(
                lambda sent=sent: any(sent in str(m) for h in socket_server.handshakes for m in h.messages)
            )
        late.send('{"type": "b", "x": "' + PART + '"}')
        with pytest.raises(ConnectionClosed) as closed:
            late.recv(timeout=10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013
        small_one.send('{"type": "c"}')
        assert wait_until(lambda: any('"c"' in str(m) for h in socket_server.handshakes for m in h.messages))
        go_on.set()
        sending.join(10)
        assert wait_until(lambda: any(PART in str(m) for h in socket_server.handshakes for m in h.messages))
        small_one.send('{"type": "d", "x": "' + PART + '"}')
        assert wait_until(
            lambda: any('"d"' in str(m)[:20] for h in socket_server.handshakes for m in h.messages)
        )


def test_a_message_of_frames_without_content_is_bounded(socket_server: SocketServer) -> None:
    """Each frame takes memory, and none of it counts as content."""
    socket_server.script = socket_server.read_all
    mine = {"base_url": f"{socket_server.url}/v1", "api_key": "sk-upstream"}
    tables = {"default_provider": "mine", "ledger": "off", "providers": {"mine": mine}}
    limits = Limits(message_bytes=2**18, grace_s=1)
    begin, empty = bytes([0x01, 0x80, 0, 0, 0, 0]), bytes([0x00, 0x80, 0, 0, 0, 0])
    with (
        Served(Settings.model_validate(tables), limits=limits) as served,
        connect(f"ws://127.0.0.1:{served.port}{PATH}", proxy=None) as client,
    ):
        with suppress(OSError):  # the server may close while this is still being sent
            client.socket.sendall(begin + empty * 150_000)
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=20)
        assert closed.value.rcvd is None or closed.value.rcvd.code == 1009


ASK = (
    b"upgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"sec-websocket-version: 13\r\n"
)


@pytest.mark.parametrize(
    ("query", "lines", "end", "status"),
    [
        (b"", b"x-a: " + b"a" * 8000 + b"\r\n", b"", b"101"),
        (b"", b"x-a: " + b"a" * 9000 + b"\r\n", b"", b"431"),
        (b"", b"x-a: " + b"a" * 70_000 + b"\r\n", b"", b"431"),
        (b"", b"".join(b"x-%d: 1\r\n" % i for i in range(200)), b"", b"431"),
        (b"&x=" + b"q" * 9000, b"", b"", b"431"),
        (b"", b"content-length: 3\r\n", b"abc", b"400"),
        (b"", b"transfer-encoding: chunked\r\n", b"0\r\n\r\n", b"400"),
        (b"", b"sec-websocket-version: 7\r\n", b"", b"400"),
    ],
    ids=["long", "longer", "longest", "many", "query", "body", "chunked", "version"],
)
def test_a_handshake_is_answered_whatever_its_head_is(
    small: Served, query: bytes, lines: bytes, end: bytes, status: bytes
) -> None:
    """The library gives no sign of a head that it cannot read; the connection would stay open for ever."""
    with socket.create_connection(("127.0.0.1", small.port), timeout=20) as sock:
        sock.sendall(
            b"GET %b HTTP/1.1\r\nhost: localhost\r\n" % (PATH.encode() + query) + ASK + lines + b"\r\n" + end
        )
        assert sock.recv(65_536).startswith(b"HTTP/1.1 " + status)
