"""A stopping server ends within seconds of its grace, whatever its clients and its upstream do."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from gateway_server import wait_until
from loopback_server import OpenAIServer, Received, Wire, hang
from served_process import ServedProcess

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")

BODY = b'{"model": "mine/m-large", "messages": [{"role": "user", "content": "x"}], "max_tokens": 9%b}'
GRACE_S = 2
FRAME = b'data: {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}\n\n'


async def _endless(received: Received, wire: Wire) -> None:
    """Stream without an end, as fast as it is read."""
    await wire.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
    while True:
        await wire.chunk(FRAME * 100)


def _head(length: int) -> bytes:
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n" % length
    )


UNREAD = "an endless stream that is not read"
#: What clients send, by what keeps the server from ending.
REQUESTS = {
    "an upstream that does not answer": BODY % b"",
    UNREAD: BODY % b', "stream": true',
    "a body that does not arrive": b"",
}
#: Seconds that the processes may take to end, on a machine that also runs other tests.
ENDING_S = 5


@pytest.fixture
def stop_s(tmp_path: Path, openai_server: OpenAIServer) -> Iterator[Callable[[bytes, int], float]]:
    """Return the seconds from SIGTERM to the end of a server whose clients have sent a request."""
    with ExitStack() as stack:

        def measured(body: bytes, workers: int) -> float:
            server = ServedProcess(
                tmp_path, openai_server, "--workers", str(workers),
                configuration=f"[server]\ngrace_s = {GRACE_S}",
            )  # fmt: skip
            stack.callback(server.end)
            before = len(openai_server.requests)
            for _ in range(6):
                sock = socket.create_connection(("127.0.0.1", urlsplit(server.url).port), timeout=30)
                stack.callback(sock.close)
                sock.sendall(_head(len(body or BODY)) + body)
            assert not body or wait_until(lambda: len(openai_server.requests) == before + 6)
            time.sleep(0.5)  # for buffers to fill
            begun = time.monotonic()
            assert server.end()[0] == 0
            return time.monotonic() - begun

        yield measured


@pytest.mark.parametrize(("case", "workers"), [*((case, 1) for case in REQUESTS), (UNREAD, 2)])
def test_the_server_ends_within_seconds_of_its_grace(
    stop_s: Callable[[bytes, int], float], openai_server: OpenAIServer, case: str, workers: int
) -> None:
    openai_server.script(*[_endless if case == UNREAD else hang] * 6)
    assert stop_s(REQUESTS[case], workers) < GRACE_S + ENDING_S
