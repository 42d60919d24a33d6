"""The transport's deadlines, fresh keys, uploads, pacing and circuit breaker against failing servers."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import logging
import os
import time as real_time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from loopback_server import Behaviour, OpenAIServer, broken_stream, events, hang, reply, reset

from specclient.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    CircuitOpenError,
    ConfigurationError,
    DeadlineExceededError,
    InternalServerError,
    OpenAIError,
    RateLimitError,
)
from specclient.http_transport import Transport
from specclient.http_transport.response import ResponseBody
from specclient.types.limit import CircuitRule, DeploymentLimit
from specclient.types.wire import WireRequest

pytestmark = pytest.mark.anyio

Make = Callable[..., Transport]


@pytest.fixture(params=["aiohttp", "httpx"])
async def make(request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    """Make transports of either kind, whose sleeps return at once; they are closed at the end."""
    made: list[Transport] = []

    def build(**options: Any) -> Transport:
        made.append(Transport(**{"kind": request.param, "sleep": Pauses(), "random": lambda: 0.0, **options}))
        return made[-1]

    yield build
    for transport in made:
        await transport.aclose()


class Pauses(list[float]):
    """A sleep that records the seconds and returns at once."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def post(server: OpenAIServer, **options: Any) -> WireRequest:
    url = f"{server.base_url}/chat/completions" + options.pop("query", "")
    body = json.dumps({"model": "m", "messages": []}).encode()
    return WireRequest("POST", url, options.pop("headers", {}), body, **{"deployment": "p/m", **options})


async def collect(transport: Transport, request: WireRequest, seen: list[bytes] | None = None) -> list[bytes]:
    """Read a stream to its end; ``seen`` keeps the events received before an error."""
    seen = [] if seen is None else seen
    async with transport.stream(request) as stream:
        async for event in stream:
            seen.append(event.data)
    return seen


async def read(transport: Transport, request: WireRequest) -> bytes:
    async with transport.open(request) as body:
        return await body.read()


CALLS: list[Callable[[Transport, WireRequest], Any]] = [Transport.fetch, collect, read]


@pytest.mark.parametrize("call", CALLS)
async def test_a_retry_delay_that_would_pass_the_deadline_is_not_started(
    openai_server: OpenAIServer, make: Make, call: Any
) -> None:
    pauses = Pauses()
    openai_server.script(reply(429, {"error": {"message": "slow down"}}, {"retry-after": "60"}))
    with pytest.raises(
        DeadlineExceededError, match=r"Request timed out\. The deadline of 20 s .*60 s.*slow down"
    ) as caught:
        await call(make(sleep=pauses), post(openai_server, deadline_s=20))
    assert isinstance(caught.value, APITimeoutError)
    assert isinstance(caught.value.__cause__, RateLimitError)
    assert caught.value.attempts == 1
    assert (pauses, len(openai_server.requests)) == ([], 1)


@pytest.mark.parametrize("call", CALLS)
async def test_a_running_attempt_is_ended_at_the_deadline(
    openai_server: OpenAIServer, make: Make, call: Any
) -> None:
    openai_server.script(reply(500, {"error": {"message": "oops"}}, {"retry-after-ms": "1"}), hang)
    with pytest.raises(DeadlineExceededError, match=r"passed in attempt 2.*oops"):
        await call(make(), post(openai_server, deadline_s=0.4))
    assert len(openai_server.requests) == 2
    assert await asyncio.to_thread(openai_server.wait_left, 1)


async def test_a_stream_that_keeps_sending_is_ended_at_the_deadline(
    openai_server: OpenAIServer, make: Make
) -> None:
    openai_server.script(events(*[b"data: 1\n\n"] * 200, gap=0.02))
    seen: list[bytes] = []
    with pytest.raises(DeadlineExceededError):
        await collect(make(), post(openai_server, deadline_s=0.5), seen)
    assert 0 < len(seen) < 150
    assert await asyncio.to_thread(openai_server.wait_left, 1)


async def test_pacing_does_not_wait_past_the_deadline(openai_server: OpenAIServer, make: Make) -> None:
    pauses = Pauses()
    transport = make(sleep=pauses, clock=lambda: 0.0, limits={"p/m": DeploymentLimit(requests_per_minute=1)})
    await transport.fetch(post(openai_server))
    with pytest.raises(DeadlineExceededError, match=r"before a wait of 60 s"):
        await transport.fetch(post(openai_server, deadline_s=5))
    assert (pauses, len(openai_server.requests)) == ([], 1)
    await transport.fetch(post(openai_server, deadline_s=61))
    assert pauses == [60.0]


@pytest.mark.parametrize("deadline", [0, -1, float("nan"), "soon", True])
async def test_invalid_deadlines_raise(openai_server: OpenAIServer, make: Make, deadline: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"deadline_s is {deadline!r}"):
        await make().fetch(post(openai_server, deadline_s=deadline))


async def test_each_attempt_gets_a_fresh_key_that_is_redacted_from_errors(
    openai_server: OpenAIServer, make: Make
) -> None:
    keys = iter(["key-number-one", "key-number-two", "key-number-three"])

    async def authorize(request: WireRequest) -> WireRequest:
        return request.with_headers({"Authorization": f"Bearer {next(keys)}"})

    def echo(status: int) -> Behaviour:
        async def run(received: Any, wire: Any) -> None:
            await reply(status, {"error": {"message": received.headers["authorization"]}})(received, wire)

        return run

    openai_server.script(reset, echo(500), echo(401))
    request = post(openai_server, authorize=authorize, headers={"authorization": "Bearer stale-key"})
    with pytest.raises(APIStatusError, match=r"Error code: 401 - \[redacted\]") as caught:
        await make().fetch(request)
    sent = [received.headers["authorization"] for received in openai_server.requests]
    assert sent == ["Bearer key-number-one", "Bearer key-number-two", "Bearer key-number-three"]
    assert "number" not in str(caught.value.request.headers.raw)


async def test_a_request_is_sent_as_it_was_authorized_with_its_url_and_the_whole_body_to_sign(
    openai_server: OpenAIServer, make: Make
) -> None:
    signed: list[WireRequest] = []

    async def sign(request: WireRequest) -> WireRequest:
        signed.append(request)
        digest = hashlib.sha256(request.content).hexdigest()
        moved = replace(request, url=request.url.replace("/chat/", "/p-1/chat/"))
        return moved.with_headers({"x-signature": digest})

    openai_server.script(reply(503, {"error": {"message": "later"}}), reply(200, {}))
    answer = await make().fetch(post(openai_server, authorize=sign))
    assert answer.attempts == 2
    assert [type(each.content) for each in signed] == [bytes, bytes]
    for received in openai_server.requests:
        assert received.path == "/v1/p-1/chat/completions"
        assert received.headers["x-signature"] == hashlib.sha256(received.body).hexdigest()


async def test_an_exception_of_the_key_callback_is_raised_and_not_retried(
    openai_server: OpenAIServer, make: Make
) -> None:
    async def authorize(request: WireRequest) -> WireRequest:
        raise OpenAIError("no token today")

    transport = make(limits={"p/m": DeploymentLimit(concurrent=1)})
    for _ in range(2):  # the failed call frees its concurrency slot
        with pytest.raises(OpenAIError, match="no token today"):
            await transport.fetch(post(openai_server, authorize=authorize))
    assert openai_server.requests == []


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({}, ["0", "1"]),
        ({"headers": {"X-Stainless-Retry-Count": "7"}}, ["7", "7"]),
        ({"count_retries": False}, [None, None]),
    ],
)
async def test_the_retry_count_header_is_sent_unless_the_caller_sets_or_disables_it(
    openai_server: OpenAIServer, make: Make, options: Any, counts: list[str | None]
) -> None:
    openai_server.script(reply(500))
    await make().fetch(post(openai_server, **options))
    assert [r.headers.get("x-stainless-retry-count") for r in openai_server.requests] == counts


async def test_a_request_that_is_not_retryable_is_sent_once(openai_server: OpenAIServer, make: Make) -> None:
    openai_server.script(reply(500))
    with pytest.raises(InternalServerError):
        await make().fetch(post(openai_server, retryable=False))
    assert len(openai_server.requests) == 1


def form(server: OpenAIServer, *files: Any) -> WireRequest:
    return WireRequest("POST", f"{server.base_url}/files", data={"purpose": "fine-tune"}, files=files)


async def test_a_retried_upload_sends_the_file_again_from_its_start_position(
    openai_server: OpenAIServer, make: Make
) -> None:
    file = io.BytesIO(b"header:" + b"x" * 300_000)
    file.seek(7)
    openai_server.script(reply(500), reset, reply(200, {}))
    await make().fetch(form(openai_server, ("file", ("a.txt", file, "text/plain")), ("note", b"bytes")))
    bodies = [received.body for received in openai_server.requests]
    assert len(bodies) == 3
    for received, body in zip(openai_server.requests, bodies, strict=True):
        assert received.headers["content-type"].startswith("multipart/form-data; boundary=")
        assert body.count(b"x" * 300_000) == 1
        assert b'name="purpose"\r\n\r\nfine-tune\r\n' in body
        assert b'name="file"; filename="a.txt"\r\nContent-Type: text/plain' in body
        assert b"bytes" in body


class Pipe(io.RawIOBase):
    """A file that can be read once."""

    def __init__(self, content: bytes) -> None:
        self._left = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._left.readinto(buffer)


@pytest.mark.parametrize("kind", ["pipe", "closed"])
async def test_an_upload_of_a_file_that_cannot_be_read_twice_is_not_retried(
    openai_server: OpenAIServer, make: Make, kind: str
) -> None:
    file: Any = Pipe(b"once")
    openai_server.script(reply(500), reply(500))
    if kind == "closed":
        file = io.BytesIO(b"once")

        async def close(received: Any, wire: Any) -> None:
            file.close()
            await reply(500)(received, wire)

        openai_server._script.clear()
        openai_server.script(close)
    with pytest.raises(InternalServerError):
        await make().fetch(form(openai_server, ("file", file)))
    assert len(openai_server.requests) == 1


async def test_a_response_body_is_read_in_chunks_or_completely(
    openai_server: OpenAIServer, make: Make
) -> None:
    content = os.urandom(200_000)
    headers = {"content-type": "audio/mpeg", "x-request-id": "req-5"}
    openai_server.script(reply(500), *[reply(200, content, headers)] * 2)
    transport = make()
    async with transport.open(post(openai_server)) as body:
        assert (body.status, body.attempts, body.request_id) == (200, 2, "req-5")
        assert body.headers["content-type"] == "audio/mpeg"
        assert isinstance(body.response, httpx.Response)
        assert b"".join([chunk async for chunk in body.chunks()]) == content
        with pytest.raises(OpenAIError, match="cannot be read again"):
            await body.read()
    async with transport.open(post(openai_server)) as body:
        assert await body.read() == await body.read() == body.response.content == content
        assert [chunk async for chunk in body.chunks()] == [content]


async def test_a_response_body_that_is_disconnected_raises(openai_server: OpenAIServer, make: Make) -> None:
    for step in (ResponseBody.read, lambda body: anext(body.chunks())):
        openai_server.script(broken_stream())
        with pytest.raises(APIConnectionError, match="broke off"):
            async with make().open(post(openai_server)) as body:
                await step(body)


@pytest.mark.parametrize("status", [300, 304, 418])
@pytest.mark.parametrize("call", CALLS)
async def test_statuses_outside_2xx_raise_a_status_error(
    openai_server: OpenAIServer, make: Make, call: Any, status: int
) -> None:
    openai_server.script(reply(status))
    with pytest.raises(APIStatusError, match=f"^Error code: {status}$") as caught:
        await call(make(), post(openai_server))
    assert type(caught.value) is APIStatusError
    assert caught.value.status_code == status


@pytest.mark.parametrize(
    ("pieces", "done"),
    [
        ([b"data: 1\n\ndata: [DONE]\n\n"], True),
        ([b"data: 1\n\ndata: [DONE]"], True),
        ([b"data: 1\n\ndata: [DO", b"NE]\r\n\r\n"], True),
        ([b"data: 1\n\n"], False),
        ([b""], False),
    ],
)
async def test_a_stream_records_whether_it_received_done(
    openai_server: OpenAIServer, make: Make, pieces: list[bytes], done: bool
) -> None:
    openai_server.script(events(*filter(None, pieces)))
    async with make().stream(post(openai_server)) as stream:
        assert not stream.done
        assert [event.data async for event in stream] == [b"1", b"[DONE]"][: len(pieces[0]) // 6]
        assert stream.done is done


async def test_an_event_of_eight_megabytes_is_read(openai_server: OpenAIServer, make: Make) -> None:
    image = b"i" * 8_000_000
    openai_server.script(events(b"data: " + image, b"\n\ndata: [DONE]\n\n"))
    assert await collect(make(), post(openai_server)) == [image, b"[DONE]"]


async def test_a_refusal_with_retry_after_delays_all_callers(openai_server: OpenAIServer, make: Make) -> None:
    """The first caller is refused; no other of twenty starts until its Retry-After has passed."""
    transport = make(sleep=asyncio.sleep, max_retries=3)
    await transport.fetch(post(openai_server))
    openai_server.script(reply(429, {"error": {"message": "wait"}}, {"retry-after-ms": "500"}))
    first = asyncio.create_task(transport.fetch(post(openai_server)))
    while len(openai_server.requests) < 2:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.1)
    held = len(openai_server.requests)
    began = real_time.monotonic()
    await asyncio.gather(first, *[transport.fetch(post(openai_server)) for _ in range(20)])
    assert held == 2
    assert real_time.monotonic() - began > 0.3  # no upper bound, because the machine may be busy
    assert len(openai_server.requests) == 23


async def test_the_users_concurrency_limit_is_kept(openai_server: OpenAIServer, make: Make) -> None:
    running = most = 0

    async def slow(received: Any, wire: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        await reply(200, {})(received, wire)

    openai_server.script(*[slow] * 12)
    transport = make(limits={"p/m": DeploymentLimit(concurrent=3)})
    await asyncio.gather(*[transport.fetch(post(openai_server)) for _ in range(12)])
    assert most == 3


@pytest.mark.parametrize("end", ["read", "left", "cancelled"])
async def test_a_stream_holds_its_concurrency_slot_until_it_ends(
    openai_server: OpenAIServer, make: Make, end: str
) -> None:
    openai_server.script(broken_stream(b"data: 1\n\n", *[b"data: [DONE]\n\n"] * (end == "read"), how="hang"))
    transport = make(limits={"p/m": DeploymentLimit(concurrent=1)})
    begun = asyncio.Event()

    async def follow() -> None:
        async with transport.stream(post(openai_server)) as stream:
            async for _ in stream:
                begun.set()
                if end == "left":
                    break
                await asyncio.sleep(0.05)

    first = asyncio.create_task(follow())
    await begun.wait()
    second = asyncio.create_task(transport.fetch(post(openai_server)))
    await asyncio.sleep(0)
    assert len(openai_server.requests) == 1
    if end == "cancelled":
        first.cancel()
    assert (await second).status == 200
    await asyncio.wait([first])


async def test_the_circuit_opens_for_a_failing_server_and_closes_after_a_successful_probe(
    openai_server: OpenAIServer, make: Make
) -> None:
    clock = [0.0]
    circuit = CircuitRule(failures=3, lasting_s=0, rest_s=30)
    transport = make(circuit=circuit, clock=lambda: clock[0], max_retries=0)

    async def call(gap: float = 1.0) -> None:
        clock[0] += gap
        await transport.fetch(post(openai_server))

    openai_server.script(reply(500), reset, reply(503))
    for error in (InternalServerError, APIConnectionError, InternalServerError):
        with pytest.raises(error):
            await call()
    with pytest.raises(
        CircuitOpenError, match=r"^Connection error\. p/m has failed 3 times in a row"
    ) as caught:
        await call()
    assert caught.value.retry_after_s == 29.0
    assert len(openai_server.requests) == 3
    await call(30.0)
    await call()
    assert len(openai_server.requests) == 5


@pytest.mark.parametrize("slow", ["head", "body"])
@pytest.mark.parametrize("status", [200, 429])
async def test_a_probe_with_a_slow_response_does_not_keep_the_circuit_open(
    openai_server: OpenAIServer, make: Make, slow: str, status: int
) -> None:
    clock = [0.0]
    circuit = CircuitRule(failures=1, lasting_s=0, rest_s=30)
    transport = make(circuit=circuit, clock=lambda: clock[0], max_retries=0)
    going_on, begun = asyncio.Event(), asyncio.Event()

    async def respond_slowly(received: Any, wire: Any) -> None:
        head = f"HTTP/1.1 {status} So\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n".encode()
        await wire.send(head if slow == "body" else b"")
        loop.call_soon_threadsafe(begun.set)
        while not going_on.is_set():
            await asyncio.sleep(0.01)
        await wire.send(b"{}" if slow == "body" else head + b"{}")

    loop = asyncio.get_running_loop()
    openai_server.script(reply(500), respond_slowly)
    with pytest.raises(InternalServerError):
        await transport.fetch(post(openai_server))
    clock[0] += 30.0
    probe = asyncio.create_task(transport.fetch(post(openai_server)))
    await begun.wait()
    if slow == "head":
        with pytest.raises(CircuitOpenError, match="sent after the running probe") as caught:
            await transport.fetch(post(openai_server))
        assert caught.value.retry_after_s == 30.0
        clock[0] += 30.0
    for _ in range(500):  # until the head has been read
        try:
            assert (await transport.fetch(post(openai_server))).status == 200
            break
        except CircuitOpenError:
            assert slow == "body"
            await asyncio.sleep(0.01)
    else:
        probe.cancel()
        going_on.set()
        pytest.fail("the circuit stays open while the answer is being read")
    assert not probe.done()
    going_on.set()
    if status == 200:
        answer = await probe
        assert (answer.status, answer.content) == (200, b"{}")
    else:
        with pytest.raises(RateLimitError):
            await probe


@pytest.mark.parametrize("opened_by", ["itself", "another"])
async def test_a_caller_whose_retries_end_at_an_open_circuit_gets_its_own_error(
    openai_server: OpenAIServer, make: Make, opened_by: str
) -> None:
    openai_server.script(
        reply(500, {"error": {"message": "mine"}}), reply(500, {"error": {"message": "other"}})
    )
    clock, pauses = [0.0], []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock[0] += 1.0
        with pytest.raises(InternalServerError, match="other"):
            await transport.fetch(post(openai_server, max_retries=0))

    circuit = CircuitRule(failures=1 if opened_by == "itself" else 2, lasting_s=0)
    transport = make(circuit=circuit, clock=lambda: clock[0], sleep=sleep)
    with pytest.raises(InternalServerError, match="mine"):
        await transport.fetch(post(openai_server))
    assert (len(openai_server.requests), pauses) == ((1, []) if opened_by == "itself" else (2, [0.5]))


async def test_a_short_failure_of_many_calls_opens_no_circuit(
    openai_server: OpenAIServer, make: Make
) -> None:
    """The first two attempts of each of fifty callers fail at once, and the third succeeds."""
    openai_server.script(*[reset, reply(500)] * 50)
    transport = make()
    replies = await asyncio.gather(
        *[transport.fetch(post(openai_server)) for _ in range(50)], return_exceptions=True
    )
    failed = [reply for reply in replies if isinstance(reply, BaseException)]
    assert not any(isinstance(error, CircuitOpenError) for error in failed)
    assert len(openai_server.requests) >= 150 - len(failed)


async def test_httpx_logs_no_query_unless_the_client_is_the_users(
    openai_server: OpenAIServer, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "httpx")
    request = post(openai_server, query="?api-key=secret-of-the-query")
    await make().fetch(request)
    if caplog.text:  # httpx logs nothing when aiohttp sends the request
        assert f"HTTP Request: POST {openai_server.base_url}/chat/completions " in caplog.text
    assert "secret-of-the-query" not in caplog.text
    async with httpx.AsyncClient() as theirs:
        await make(http_client=theirs).fetch(request)
    assert "secret-of-the-query" in caplog.text


async def test_transports_that_share_connections_keep_their_own_defaults(
    openai_server: OpenAIServer, make: Make
) -> None:
    transport = make(max_retries=0)
    other = transport.sharing(http_client=None, timeout=None, max_retries=1)
    openai_server.script(reply(500))
    await other.fetch(post(openai_server))
    openai_server.script(reply(500))
    with pytest.raises(InternalServerError):
        await transport.fetch(post(openai_server))
    assert openai_server.connections == 1


async def test_requests_without_a_deployment_are_paced_by_server(make: Make) -> None:
    with OpenAIServer() as full, OpenAIServer() as free:
        pauses = Pauses()
        transport = make(sleep=pauses, clock=lambda: 0.0, max_retries=0)
        full.script(reply(429, {}, {"retry-after": "9"}))
        with pytest.raises(RateLimitError):
            await transport.fetch(post(full, deployment=""))
        await transport.fetch(post(free, deployment=""))
        assert pauses == []
        await transport.fetch(post(full, deployment=""))
        assert pauses == [9.0]
