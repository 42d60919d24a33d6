"""The memory of request bodies: those of slow uploaders are bounded, and no key takes all of it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from gateway_server import Served, upstream_settings, wait_until
from loopback_server import OpenAIServer, hang, reply

from specclient.serving import Limits
from specclient.serving.body_memory import FREE_BYTES, BodyHold, BodyMemory

KIB = 2**10
ASK = {"model": "mine/m-large", "messages": [{"role": "user", "content": "x"}]}


def test_a_hold_counts_what_a_body_has_beyond_the_free_bytes() -> None:
    memory = BodyMemory(100)
    first, second = BodyHold(memory, None), BodyHold(memory, None)
    assert first.grow(FREE_BYTES)
    assert memory.held == 0
    assert first.grow(60)
    assert second.grow(FREE_BYTES + 40)
    assert memory.held == 100
    assert not first.grow(1)
    assert memory.held == 40  # a body without room holds nothing
    second.release()
    second.release()
    assert memory.held == 0


def test_a_key_has_half_of_the_memory() -> None:
    memory = BodyMemory(100)
    alice, again, bob = (BodyHold(memory, name) for name in ("alice", "alice", "bob"))
    assert alice.grow(FREE_BYTES + 40)
    assert not again.grow(FREE_BYTES + 11)
    assert bob.grow(FREE_BYTES + 50)
    alice.release()
    assert BodyHold(memory, "alice").grow(FREE_BYTES + 50)


@contextmanager
def _uploading(served: Served, size: int, count: int, key: str = "") -> Iterator[list[socket.socket]]:
    """Open connections that have sent ``size`` bytes of a body that is twice as long."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n" % (2 * size)
    head += f"authorization: Bearer {key}\r\n\r\n".encode() if key else b"\r\n"
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=30))
            for _ in range(count)
        ]
        for sock in sockets:
            sock.sendall(head + b"x" * size)
        yield sockets


@pytest.fixture
def small(openai_server: OpenAIServer) -> Iterator[Served]:
    """A gateway that holds one MiB of bodies."""
    with Served(upstream_settings(openai_server), limits=Limits(bodies_bytes=KIB * KIB, grace_s=1)) as served:
        yield served


def _held(served: Served) -> int:
    middleware: Any = served.server.config.loaded_app
    while not hasattr(middleware, "_bodies"):
        middleware = getattr(middleware, "middleware_stack", None) or middleware.app
    held: int = middleware._bodies.held
    return held


def _post(served: Served, size: int) -> httpx.Response:
    body = json.dumps({**ASK, "user": "x" * size})
    headers = {"content-type": "application/json"}
    url = f"{served.base_url}/chat/completions"
    return httpx.post(url, content=body, headers=headers, timeout=30, trust_env=False)


def test_slow_uploaders_take_no_more_than_the_limit(small: Served) -> None:
    with _uploading(small, 300 * KIB, 8):
        assert wait_until(lambda: _held(small) > 700 * KIB)
        assert _held(small) <= KIB * KIB
        answer = _post(small, 900 * KIB)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "server_busy")
        assert answer.headers["retry-after"] == "1"
        assert _post(small, KIB).status_code == 200  # small requests are served all the while
    assert wait_until(lambda: _held(small) == 0)
    assert _post(small, 900 * KIB).status_code == 200


def test_the_body_of_a_running_request_is_held_until_it_ends(
    small: Served, openai_server: OpenAIServer
) -> None:
    openai_server.script(hang)
    body = json.dumps({**ASK, "user": "x" * 600 * KIB}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", small.port), timeout=30) as sock:
        sock.sendall(head + body)
        assert wait_until(lambda: len(openai_server.requests) == 1)
        assert _post(small, 600 * KIB).status_code == 429
    assert wait_until(lambda: _held(small) == 0)
    openai_server.script(reply(400, {"error": {"message": "no"}}))
    assert _post(small, 600 * KIB).status_code == 400
    assert wait_until(lambda: _held(small) == 0)


def test_a_request_without_a_valid_key_is_refused_before_its_body_is_read(
    openai_server: OpenAIServer,
) -> None:
    with (
        Served(upstream_settings(openai_server), key="right") as served,
        _uploading(served, 300 * KIB, 1, key="wrong") as (sock,),
    ):
        assert sock.recv(65536).startswith(b"HTTP/1.1 401")
        assert _held(served) == 0
