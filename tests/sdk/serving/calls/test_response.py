"""Streams: OpenAI's framing, and release of engine, upstream connection and slot on disconnection."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import openai
import pytest
from gateway_server import Served, upstream_settings, wait_until
from loopback_server import OpenAIServer, Received, Wire, events, hang

from specclient.serving import Limits

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
ASK: Any = [{"role": "user", "content": "x"}]
HOSTED: Any = {"model": "mine/m-large", "messages": ASK, "stream": True}
LONG: Any = {
    "model": "local/demo-target",
    "prompt": "def f(x):\n",
    "max_tokens": 900,
    "temperature": 1,
    "seed": 1,
}
Connect = Callable[[str], openai.OpenAI]


def _frames(served: Served, body: dict[str, Any], path: str = "/v1/chat/completions") -> list[bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    connection.request("POST", path, json.dumps(body), {"x-specclient-meta": "0"})
    answer = connection.getresponse()
    assert answer.getheader("content-type") == "text/event-stream; charset=utf-8"
    assert answer.getheader("cache-control") == "no-cache"
    text = answer.read()
    connection.close()
    *frames, rest = text.split(b"\n\n")
    assert rest == b""
    return frames


def test_stream_frames_match_openais_format(gateway: Served) -> None:
    frames = _frames(gateway, {"model": "mine/m-large", "messages": ASK, "stream": True})
    assert frames[-1] == b"data: [DONE]"
    for frame in frames[:-1]:
        assert frame.startswith(b"data: {")
        assert b"\n" not in frame
        chunk = json.loads(frame[6:])
        assert chunk["object"] == "chat.completion.chunk"
        assert chunk["choices"]
        assert "usage" not in chunk
        assert "specclient" not in chunk


def test_the_events_of_an_openai_upstream_are_sent_on_as_they_came(
    gateway: Served, openai_server: OpenAIServer
) -> None:
    plain = b'{"id":"c", "object":"chat.completion.chunk", "choices":[{"index": 0,"delta":{"content":"a"}}]}'
    in_lines = plain.replace(b', "choices"', b',\ndata: "choices"')
    odd = plain.replace(b'"c"', b"7").replace(b'"a"', b'"a", "x": 1.50')
    usage = plain.replace(b'[{"index": 0,"delta":{"content":"a"}}]', b'[], "usage": {"prompt_tokens": 1}')
    done = b"data: [DONE]"
    sent = [plain, in_lines, odd, usage]
    openai_server.script(events(*[b"data: %b\n\n" % each for each in sent], done + b"\n\n"))
    first, second, third, last = _frames(gateway, HOSTED)
    assert first == b"data: " + plain
    assert second.count(b"\n") == 0, "one event"
    assert json.loads(second[6:]) == json.loads(plain)
    assert third == b"data: " + odd
    assert last == done, "the usage was not asked for"


def test_a_streams_cost_is_reported_when_requested(connect: Connect, gateway: Served) -> None:
    ask: Any = {"model": "mine/m-large", "messages": ASK, "stream": True}
    asked = {"extra_headers": {"x-specclient-meta": "1"}}, {"extra_body": {"specclient": {"meta": True}}}
    for how in asked:
        *_, last = connect(gateway.base_url).chat.completions.create(**ask, **how)
        assert last.choices == []
        assert last.id == "cmpl-1"
        reported: Any = last.model_extra
        assert reported["specclient"]["route"]["chosen"] == "mine/m-large"
        cost = reported["specclient"]["cost"]
        assert Decimal(cost["total"]) == Decimal(4 * 2 + 9 * 8) / 10**6
        assert sum(map(Decimal, cost["by_kind"].values())) == Decimal(cost["total"])
        assert cost["estimated"] is False
        whole = connect(gateway.base_url).chat.completions.create(**{**ask, "stream": False}, **how)
        extra: Any = whole.model_extra
        assert extra["specclient"] == reported["specclient"]


def test_speculation_is_reported_when_requested(connect: Connect, local_server: Served) -> None:
    answer = connect(local_server.base_url).completions.create(
        model="local/demo", prompt="def f(x):\n", max_tokens=16, temperature=0,
        extra_body={"specclient": {"meta": True, "draft_length": 2}},
    )  # fmt: skip
    extra: Any = answer.model_extra
    reported = extra["specclient"]["speculation"]
    assert reported["method"] == "draft"
    assert 0 < reported["accepted"] <= reported["drafted"] <= 2 * reported["steps"]


def test_a_routed_call_reports_its_route(connect: Connect, openai_server: OpenAIServer) -> None:
    policies = {"cheap": {"minimize": "cost", "allow": ["mine/m-small"]}}
    with Served(upstream_settings(openai_server, policies=policies)) as served:
        for policy in ("cheap", {"minimize": "cost", "deny": ["mine/m-large"]}, None):
            ours = {"meta": True, "tags": {"team": "a"}} | ({"policy": policy} if policy else {})
            answer = connect(served.base_url).chat.completions.create(
                model="auto", messages=ASK, extra_body={"specclient": ours}
            )
            extra: Any = answer.model_extra
            assert extra["specclient"]["route"]["chosen"] == "mine/m-small"
            assert openai_server.requests[-1].json == {"model": "m-small", "messages": ASK}


class Raw:
    """A raw client that writes one request and lets the test read and disconnect."""

    def __init__(self, served: Served, path: str, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n\r\n"
        self._sock = socket.create_connection(("127.0.0.1", served.port), timeout=60)
        self._sock.sendall(head.encode() + content)
        self.seen = b""

    def read_to(self, mark: bytes) -> bytes:
        """Read until ``mark`` has arrived; return everything received so far."""
        while mark not in self.seen:
            piece = self._sock.recv(65536)
            assert piece, f"closed before {mark!r}: {self.seen!r}"
            self.seen += piece
        return self.seen

    def close(self) -> None:
        self._sock.close()


@pytest.mark.parametrize("stream", [True, False])
def test_the_engine_stops_when_the_client_disconnects(local_server: Served, stream: bool) -> None:
    turns = local_server.service.admission
    assert wait_until(lambda: turns.running == local_server.engine_jobs() == 0)
    client = Raw(local_server, "/v1/completions", {**LONG, "stream": stream})
    if stream:
        client.read_to(b"data: ")
    assert wait_until(lambda: local_server.engine_jobs() == 1)
    assert turns.running == 1
    client.close()
    assert wait_until(lambda: local_server.engine_jobs() == 0)
    assert wait_until(lambda: turns.running == 0)


CHUNK: dict[str, Any] = {
    "id": "1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}],
}


def _data(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


async def _endless(_: Received, wire: Wire) -> None:
    """Start a stream and wait until the client disconnects."""
    await wire.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
    await wire.chunk(_data(CHUNK))
    await wire.client_left()


@pytest.mark.parametrize("stream", [True, False])
def test_the_upstream_connection_is_closed_when_the_client_disconnects(
    gateway: Served, openai_server: OpenAIServer, stream: bool
) -> None:
    openai_server.script(_endless if stream else hang)
    client = Raw(gateway, CHAT, {**HOSTED, "stream": stream})
    if stream:
        client.read_to(b"data: ")
    assert wait_until(lambda: len(openai_server.requests) == 1)
    client.close()
    assert openai_server.wait_left(1)
    assert wait_until(lambda: gateway.service.admission.running == 0)


def test_requests_over_the_limit_queue_and_those_over_the_queue_get_429(openai_server: OpenAIServer) -> None:
    openai_server.script(_endless)
    limits = Limits(running=1, waiting=1, grace_s=1)
    with Served(upstream_settings(openai_server), limits=limits) as served:
        turns = served.service.admission
        first = Raw(served, CHAT, HOSTED)
        first.read_to(b"data: ")
        second = Raw(served, CHAT, HOSTED)
        assert wait_until(lambda: turns.waiting == 1)
        refused = Raw(served, CHAT, HOSTED)
        answer = refused.read_to(b"}}")
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b"\r\nretry-after: 1\r\n" in answer
        assert b'"code": "server_busy"' in answer
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"{served.url}/ready")
        second.close()  # while it is queued
        assert wait_until(lambda: turns.waiting == 0)
        third = Raw(served, CHAT, HOSTED)
        assert wait_until(lambda: turns.waiting == 1)
        first.close()
        third.read_to(b"data: [DONE]")
        assert wait_until(lambda: turns.running == 0)
        refused.close()
        third.close()


def test_a_client_that_does_not_read_is_disconnected(openai_server: OpenAIServer) -> None:
    big = _data({**CHUNK, "choices": [{"index": 0, "delta": {"content": "a" * 2**20}}]})

    async def flood(_: Received, wire: Wire) -> None:
        await wire.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        while True:
            await wire.chunk(big)

    openai_server.script(flood)
    with Served(upstream_settings(openai_server), limits=Limits(send_s=0.3, grace_s=1)) as served:
        client = Raw(served, CHAT, HOSTED)
        client.read_to(b"data: ")
        assert openai_server.wait_left(1)
        assert wait_until(lambda: served.service.admission.running == 0)
        client.close()


def test_stopping_the_server_lets_streams_finish(openai_server: OpenAIServer) -> None:
    pieces = [_data(CHUNK)] * 5 + [b"data: [DONE]\n\n"]
    openai_server.script(events(*pieces, gap=0.1))
    with Served(upstream_settings(openai_server)) as served:
        client = Raw(served, CHAT, HOSTED)
        client.read_to(b"data: ")
        served.stop()
        assert client.read_to(b"data: [DONE]").count(b'"content": "a"') == 5
        client.close()


@pytest.mark.parametrize("stream", [True, False])
def test_after_the_grace_period_open_requests_get_server_stopping(
    openai_server: OpenAIServer, stream: bool
) -> None:
    openai_server.script(_endless if stream else hang)
    with Served(upstream_settings(openai_server), limits=Limits(grace_s=1)) as served:
        client = Raw(served, CHAT, {**HOSTED, "stream": stream})
        assert wait_until(lambda: len(openai_server.requests) == 1)
        served.stop()
        answer = client.read_to(b'"server_stopping"')
        assert answer.startswith(b"HTTP/1.1 200 " if stream else b"HTTP/1.1 503 ")
        assert openai_server.wait_left(1)
        client.close()


async def _stream_until(served: Served, body: dict[str, Any], path: str, leaves_after: int | None) -> bytes:
    """Stream a response; disconnect after ``leaves_after`` reads if given; return the bytes received."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    content = json.dumps(body).encode()
    writer.write(
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n\r\n".encode()
        + content
    )
    seen, reads = b"", 0
    while b"data: [DONE]" not in seen and reads != leaves_after:
        piece = await reader.read(4096)
        assert piece, seen
        seen, reads = seen + piece, reads + 1
    writer.close()
    return seen


async def test_disconnecting_clients_do_not_disturb_concurrent_streams(openai_server: OpenAIServer) -> None:
    rng = random.Random(3)
    texts = [f"t{number} " for number in range(40)]
    chunks = [_data({**CHUNK, "choices": [{"index": 0, "delta": {"content": text}}]}) for text in texts]
    openai_server.script(*[events(*chunks, b"data: [DONE]\n\n", gap=0.005)] * 80)
    with Served(upstream_settings(openai_server, local={"threads": 1})) as served:
        before = await asyncio.to_thread(_settled, served)
        hosted = [(HOSTED, CHAT, rng.choice((0, 1, 2, 5)) if i % 4 == 0 else None) for i in range(80)]
        short = {
            "model": "local/demo",
            "prompt": "def f(x):",
            "max_tokens": 12,
            "temperature": 0,
            "stream": True,
        }
        local = [(short, "/v1/completions", rng.choice((0, 1)) if i % 4 == 0 else None) for i in range(20)]
        found = await asyncio.gather(*[_stream_until(served, *one) for one in hosted + local])
        whole = [seen for seen, (_, _, leaves) in zip(found, hosted, strict=False) if leaves is None]
        assert len(whole) == 60
        for seen in whole:
            assert [json.loads(frame) for frame in _frames_in(seen)] == [json.loads(c[6:]) for c in chunks]
        answers = {
            "".join(json.loads(frame)["choices"][0]["text"] for frame in _frames_in(seen))
            for seen, (_, _, leaves) in zip(found[80:], local, strict=True)
            if leaves is None
        }
        assert len(answers) == 1  # greedy: every complete answer is the same
        assert await asyncio.to_thread(wait_until, lambda: served.service.admission.running == 0)
        assert await asyncio.to_thread(wait_until, lambda: served.engine_jobs() == 0)
        assert await asyncio.to_thread(wait_until, lambda: len(asyncio.all_tasks(served.loop)) <= before)
        assert not served.server.server_state.connections or await asyncio.to_thread(
            wait_until, lambda: not served.server.server_state.connections
        )


def _settled(served: Served) -> int:
    """Return the number of an idle server's tasks, after a first request has started the permanent ones."""
    urllib.request.urlopen(f"{served.url}/health").close()
    assert wait_until(lambda: not served.server.server_state.connections)
    return len(asyncio.all_tasks(served.loop))


def _frames_in(answer: bytes) -> list[bytes]:
    """Return the data of the events in a raw chunked response."""
    lines = answer.partition(b"\r\n\r\n")[2].split(b"\n")
    return [line[6:] for line in lines if line.startswith(b"data: {")]
