"""The transport against a real server that succeeds, refuses, disconnects, stalls and sends invalid HTTP."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import traceback
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import anyio
import httpx
import pytest
from loopback_server import OpenAIServer, broken_stream, events, hang, raw, reply, reset

from specclient.errors import (
    APIConnectionError,
    APIError,
    APIResponseValidationError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    ConfigurationError,
    InternalServerError,
    NotFoundError,
    RateLimitError,
)
from specclient.http_transport import Transport
from specclient.http_transport.clients.defaults import Timeout
from specclient.providers import OpenAIDialect
from specclient.types import inference_methods
from specclient.types.wire import WireRequest

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-0123456789"
Make = Callable[..., Transport]


class Pauses(list[float]):
    """A sleep that only records its seconds.

    The clock does not move meanwhile. After a response that asks for a delay, the retry loop waits for it;
    the pacer, which holds every caller of the deployment until the same moment, then finds that moment still
    ahead and waits as well. With a clock that moves, the pacer's wait is 0 and is not made.
    """

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture(params=["aiohttp", "httpx"])
async def make(request: pytest.FixtureRequest, pauses: Pauses) -> AsyncIterator[Make]:
    """Make transports of either kind, closed at the end."""
    made: list[Transport] = []

    def build(**options: Any) -> Transport:
        made.append(Transport(**{"kind": request.param, "sleep": pauses, "random": lambda: 0.0, **options}))
        return made[-1]

    yield build
    for transport in made:
        await transport.aclose()


def post(server: OpenAIServer, **options: Any) -> WireRequest:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": options.pop("stream", False),
    }
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    url = f"{server.base_url}/chat/completions"
    return WireRequest("POST", url, headers, json.dumps(body).encode(), deployment="p/m", **options)


async def collect(transport: Transport, request: WireRequest, seen: list[bytes] | None = None) -> list[bytes]:
    """Read a stream to its end; ``seen`` keeps the events received before an error."""
    seen = [] if seen is None else seen
    async with transport.stream(request) as stream:
        async for event in stream:
            seen.append(event.data)
    return seen


async def test_fetch_returns_the_complete_response(openai_server: OpenAIServer, make: Make) -> None:
    answer = await make().fetch(post(openai_server))
    assert answer.status == 200
    assert answer.request_id == "req-whole"
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.content)["object"] == "chat.completion"
    assert answer.attempts == 1
    assert openai_server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert openai_server.requests[0].headers["x-stainless-retry-count"] == "0"


async def test_a_streamed_response(openai_server: OpenAIServer, make: Make) -> None:
    async with make().stream(post(openai_server, stream=True)) as stream:
        assert (stream.status, stream.request_id, stream.attempts) == (200, "req-stream", 1)
        data = [event.data async for event in stream]
    assert data[-1] == b"[DONE]"
    assert json.loads(data[0])["choices"][0]["delta"] == {"content": "The"}


async def test_streams_read_to_done_reuse_one_connection(openai_server: OpenAIServer, make: Make) -> None:
    transport = make()
    for _ in range(3):
        async with transport.stream(post(openai_server, stream=True)) as stream:
            async for event in stream:
                if event.data == b"[DONE]":
                    break
    assert openai_server.connections == 1


async def test_a_connection_left_open_after_done_does_not_delay_the_reader(
    openai_server: OpenAIServer, make: Make
) -> None:
    openai_server.script(broken_stream(b"data: 1\n\n", b"data: [DONE]\n\n", how="hang"))
    async with make().stream(post(openai_server)) as stream:
        data = []
        async for event in stream:
            data.append(event.data)
            if event.data == b"[DONE]":
                break
    assert data == [b"1", b"[DONE]"]


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("mark", [b"[DONE]", b"[DONE] "])
async def test_a_disconnect_after_done_is_ignored(
    openai_server: OpenAIServer, make: Make, how: str, mark: bytes
) -> None:
    tail = b"data: " + mark + b"\n\ndata: late\n\n"
    openai_server.script(broken_stream(b"data: 1\n\n", tail, how=how))
    assert await collect(make(), post(openai_server)) == [b"1", mark]


async def test_events_split_inside_characters_and_line_ends_and_keep_alives_are_decoded(
    openai_server: OpenAIServer, make: Make
) -> None:
    body = ': keep-alive\r\n\r\ndata: {"a": "€"}\r\n\r\ndata:\r\n\r\ndata: [DONE]'.encode()
    openai_server.script(events(*(body[i : i + 1] for i in range(len(body))), gap=0.001))
    assert await collect(make(), post(openai_server)) == ['{"a": "€"}'.encode(), b"[DONE]"]


async def test_compressed_streams_are_decompressed(openai_server: OpenAIServer, make: Make) -> None:
    body = gzip.compress(b"data: 1\n\ndata: [DONE]\n\n")
    openai_server.script(events(body[:9], body[9:], headers={"content-encoding": "gzip"}))
    assert await collect(make(), post(openai_server)) == [b"1", b"[DONE]"]


async def test_a_json_response_to_a_streamed_request_is_one_event(
    openai_server: OpenAIServer, make: Make
) -> None:
    openai_server.script(reply(200, {"error": {"message": "overloaded"}}))
    assert await collect(make(), post(openai_server)) == [b'{"error": {"message": "overloaded"}}']


async def test_an_html_response_to_a_streamed_request_raises(openai_server: OpenAIServer, make: Make) -> None:
    openai_server.script(reply(200, b"<html>hello</html>", {"content-type": "text/html; charset=utf-8"}))
    with pytest.raises(APIResponseValidationError, match=r"check base_url.*<html>hello") as caught:
        await collect(make(), post(openai_server))
    assert caught.value.status_code == 200


@pytest.mark.parametrize("streamed", [False, True])
async def test_status_errors_carry_the_inner_error_object(
    openai_server: OpenAIServer, make: Make, streamed: bool
) -> None:
    error = {
        "message": "no such model",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    openai_server.script(reply(404, {"error": error}, {"x-request-id": "req-7"}))
    call = collect if streamed else Transport.fetch
    with pytest.raises(NotFoundError) as caught:
        await call(make(), post(openai_server))
    failed = caught.value
    assert str(failed) == "Error code: 404 - no such model"
    assert failed.body == error
    assert (failed.code, failed.param, failed.type) == ("model_not_found", "model", "invalid_request_error")
    assert (failed.status_code, failed.request_id) == (404, "req-7")
    assert failed.response.json() == {"error": error}


@pytest.mark.parametrize("streamed", [False, True])
async def test_errors_carry_the_number_of_attempts(
    openai_server: OpenAIServer, make: Make, streamed: bool
) -> None:
    call = collect if streamed else Transport.fetch
    for last in (reply(500), reset, reply(404)):
        openai_server.script(reply(500), reset, last)
        with pytest.raises(APIError) as caught:
            await call(make(), post(openai_server))
        assert caught.value.attempts == 3
    with pytest.raises(APIError) as caught:
        await call(make(max_retries=0), WireRequest("POST", "http://nowhere.invalid:81/"))
    assert caught.value.attempts == 1
    assert APIError.attempts == 1


async def test_errors_amid_a_stream_carry_the_number_of_attempts(
    openai_server: OpenAIServer, make: Make
) -> None:
    openai_server.script(reply(500), broken_stream(b"data: 1\n\n"), reply(500))
    with pytest.raises(APIConnectionError, match="broke off") as caught:
        await collect(make(), post(openai_server))
    assert caught.value.attempts == 2
    decoding = APIError("a dialect's, of an event")
    with pytest.raises(APIError) as also:
        async with make().stream(post(openai_server)):
            raise decoding
    assert also.value is decoding
    assert decoding.attempts == 2


@pytest.mark.parametrize("streamed", [False, True])
async def test_requests_are_retried_until_they_succeed(
    openai_server: OpenAIServer, make: Make, pauses: Pauses, streamed: bool
) -> None:
    openai_server.script(reply(500), reply(429, {"error": {"message": "slow down"}}, {"retry-after-ms": "5"}))
    transport = make()
    if streamed:
        async with transport.stream(post(openai_server, stream=True)) as stream:
            assert stream.attempts == 3
            assert [event async for event in stream]
    else:
        assert (await transport.fetch(post(openai_server))).attempts == 3
    counts = [received.headers.get("x-stainless-retry-count") for received in openai_server.requests]
    assert counts == ["0", "1", "2"]
    assert pauses[:2] == [0.5, 0.005]


async def test_a_reset_connection_is_retried_and_does_not_raise_a_timeout(
    openai_server: OpenAIServer, make: Make
) -> None:
    openai_server.script(reset, reset, reset)
    with pytest.raises(
        APIConnectionError, match=f"No answer from {openai_server.url} .*base_url is right"
    ) as caught:
        await make().fetch(post(openai_server))
    assert not isinstance(caught.value, APITimeoutError)
    assert len(openai_server.requests) == 3


async def test_max_retries_of_the_request_override_those_of_the_transport(
    openai_server: OpenAIServer, make: Make
) -> None:
    openai_server.script(*[reply(503)] * 5)
    with pytest.raises(InternalServerError):
        await make(max_retries=4).fetch(post(openai_server, max_retries=0))
    assert len(openai_server.requests) == 1
    with pytest.raises(InternalServerError):
        await make(max_retries=0).fetch(post(openai_server, max_retries=1))
    assert len(openai_server.requests) == 3


async def test_retry_after_delays_the_next_request_to_the_deployment(
    openai_server: OpenAIServer, make: Make, pauses: Pauses
) -> None:
    openai_server.script(reply(429, {"error": {"message": "slow"}}, {"retry-after": "30"}))
    transport = make(max_retries=0, clock=lambda: 0.0)
    with pytest.raises(RateLimitError):
        await transport.fetch(post(openai_server))
    await transport.fetch(post(openai_server))
    assert pauses == [30.0]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_refused_connection_raises_a_connection_error(
    make: Make, openai_server: OpenAIServer, streamed: bool
) -> None:
    request = post(openai_server, max_retries=0)
    openai_server.close()
    call = collect if streamed else Transport.fetch
    with pytest.raises(APIConnectionError, match=f"{openai_server.url}.*server is running"):
        await call(make(), request)


async def test_a_host_that_does_not_resolve_is_named_without_the_query(make: Make) -> None:
    with pytest.raises(APIConnectionError, match=r"No answer from http://nowhere\.invalid:81 ") as caught:
        await make(max_retries=0).fetch(WireRequest("POST", "http://nowhere.invalid:81/v1?key=qwerty"))
    assert "qwerty" not in str(caught.value)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_server_that_sends_nothing_raises_a_read_timeout(
    openai_server: OpenAIServer, make: Make, streamed: bool
) -> None:
    openai_server.script(hang)
    call = collect if streamed else Transport.fetch
    with pytest.raises(
        APITimeoutError, match=f"{openai_server.url} sent nothing within the read timeout of 0.1 s"
    ):
        await call(make(max_retries=0), post(openai_server, timeout=0.1))


async def test_a_stream_that_stalls_raises_a_read_timeout(openai_server: OpenAIServer, make: Make) -> None:
    openai_server.script(broken_stream(b"data: 1\n\n", how="hang"))
    seen: list[bytes] = []
    with pytest.raises(APITimeoutError, match=r"read timeout of 0\.2 s"):
        await collect(make(timeout=Timeout(5, read=0.2)), post(openai_server), seen)
    assert seen == [b"1"]
    assert len(openai_server.requests) == 1


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_stream_that_is_disconnected_raises_and_is_not_retried(
    openai_server: OpenAIServer, make: Make, how: str
) -> None:
    openai_server.script(broken_stream(b'data: 1\n\ndata: {"cut', how=how))
    seen: list[bytes] = []
    with pytest.raises(APIConnectionError, match=f"The answer of {openai_server.url} broke off") as caught:
        await collect(make(), post(openai_server), seen)
    assert not isinstance(caught.value, APITimeoutError)
    assert seen == [b"1"]
    assert len(openai_server.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        raw(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nshort"),
        raw(b"this is no HTTP\r\n\r\n"),
        raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nx\r\n"),
        raw(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nnope"),
        raw(b"HTTP/1.1 500 Oops\r\ncontent-length: 50\r\n\r\nshort"),
        raw(),
    ],
    ids=["cut", "no http", "bad chunk", "bad gzip", "cut error", "nothing"],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_invalid_http_raises_a_connection_error(
    openai_server: OpenAIServer, make: Make, answer: Any, streamed: bool
) -> None:
    openai_server.script(answer)
    call = collect if streamed else Transport.fetch
    with pytest.raises(APIConnectionError, match=openai_server.url):
        await call(make(max_retries=0), post(openai_server))


@pytest.mark.parametrize("leave", ["break", "cancel", "anyio"])
async def test_leaving_a_stream_closes_its_connection(
    openai_server: OpenAIServer, make: Make, leave: str
) -> None:
    openai_server.script(broken_stream(b"data: 1\n\n", how="hang"))
    transport = make()
    first = anyio.Event()

    async def read() -> None:
        async with transport.stream(post(openai_server)) as stream:
            async for _ in stream:
                first.set()
                if leave == "break":
                    return

    if leave == "anyio":
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await first.wait()
            tasks.cancel_scope.cancel()
    else:
        task = asyncio.create_task(read())
        await first.wait()
        if leave == "cancel":
            task.cancel()
        await asyncio.wait([task])
    assert await asyncio.to_thread(openai_server.wait_left, 1)


async def test_cancelling_a_call_closes_its_connection(openai_server: OpenAIServer, make: Make) -> None:
    openai_server.script(hang)
    with anyio.move_on_after(0.2):
        await make().fetch(post(openai_server))
    assert await asyncio.to_thread(openai_server.wait_left, 1)


async def test_redirects_are_followed(openai_server: OpenAIServer, make: Make) -> None:
    openai_server.script(reply(307, b"", {"location": f"{openai_server.base_url}/moved/chat/completions"}))
    assert (await make().fetch(post(openai_server))).status == 200
    assert openai_server.requests[1].path == "/v1/moved/chat/completions"
    assert openai_server.requests[1].body == openai_server.requests[0].body


@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("name", ["authorization", "api-key", "x-api-key", "x-goog-api-key"])
async def test_api_keys_are_not_sent_after_a_redirect_to_another_origin(
    openai_server: OpenAIServer, make: Make, name: str, status: int
) -> None:
    with OpenAIServer() as other:
        openai_server.script(reply(status, b"", {"location": f"{other.base_url}/models"}))
        other.script(reply(200, {}))
        await make().fetch(replace(post(openai_server), headers={name: KEY, "x-mine": "kept"}))
        assert openai_server.requests[0].headers[name] == KEY
        assert name not in other.requests[0].headers
        assert other.requests[0].headers["x-mine"] == "kept"


async def test_long_response_headers_are_read(openai_server: OpenAIServer, make: Make) -> None:
    openai_server.script(reply(200, {}, {"content-security-policy": "a" * 60_000}))
    answer = await make().fetch(post(openai_server))
    assert len(answer.headers["content-security-policy"]) == 60_000


def all_text(error: BaseException | None) -> str:
    """Return all text that a log, a traceback or a crash reporter could print of an error and its causes."""
    found = []
    while error is not None:
        found += [repr(error), str(error), *traceback.format_exception(error), repr(vars(error))]
        for carrier in (error, getattr(error, "response", None), *getattr(error, "__notes__", ())):
            try:
                request = carrier.request
            except (AttributeError, RuntimeError):
                continue
            if request is not None:
                found += [repr(request), repr(request.headers), repr(request.headers.raw)]
        error = error.__cause__ or error.__context__
    return "\n".join(found)


async def test_the_key_is_in_no_error_log_or_repr(
    openai_server: OpenAIServer, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "specclient")
    echo = {"error": {"message": f"the key Bearer {KEY} is wrong"}}
    openai_server.script(
        reply(401, echo), reset, reply(307, b"", {"location": "/lost"}), reply(401, echo), hang,
        broken_stream(b"data: 1\n\n"), reply(200, KEY.encode(), {"content-type": "text/html"}),
    )  # fmt: skip
    transport = make(max_retries=0)
    errors: list[APIError] = []
    for call in (Transport.fetch, Transport.fetch, Transport.fetch, Transport.fetch, collect, collect):
        try:
            await call(transport, post(openai_server, timeout=0.3))
        except APIError as error:
            errors.append(error)
    kinds = [
        AuthenticationError,
        APIConnectionError,
        AuthenticationError,
        APITimeoutError,
        APIConnectionError,
    ]
    assert [type(error) for error in errors] == [*kinds, APIResponseValidationError]
    seen = [
        *map(all_text, errors),
        caplog.text,
        repr(transport),
        repr(vars(transport)),
        repr(post(openai_server)),
    ]
    assert errors[0].request.headers["authorization"] == "[redacted]"
    assert not any(KEY in text for text in seen)


def all_text_and_contents(error: BaseException) -> str:
    """Return the text of :func:`all_text`, and the contents of the request and the response."""
    found = [all_text(error), str(getattr(error, "code", ""))]
    for carrier in (error, getattr(error, "response", None)):
        if (request := getattr(carrier, "request", None)) is not None:
            found += [str(request.url), str(dict(request.headers))]
    if (response := getattr(error, "response", None)) is not None:
        found += [response.text, repr(response.content), str(dict(response.headers)), str(response.url)]
    return "\n".join(found)


SECRETS = {
    "authorization": f"Bearer {KEY}",
    "x-auth-token": "token-of-the-user-1",
    "x-signature": "c2lnbmF0dXJl/w==",
    "cookie": "theme=dark; session=cookie-of-the-user",
}
QUERY = "api_key=query%2Fsecret&version=2024-01-01"
PARTS = (
    KEY,
    "token-of-the-user-1",
    "c2lnbmF0dXJl/w==",
    "cookie-of-the-user",
    "query/secret",
    "query%2Fsecret",
    "query\\u002fsecret",
    "c2lnbmF0dXJl\\u002fw==",
)


def echo(status: int, kind: str, *, escaped: bool = False, stream: bool = False, reason: str = "") -> Any:
    """Echo the headers and query received in the body, a header and, with ``reason``, the status line."""

    async def run(received: Any, wire: Any) -> None:
        echoed = " ".join([*received.headers.values(), received.query, "query/secret"])
        if reason:
            wire.keep = False
            await wire.send(f"{reason} {echoed}\r\n\r\n".encode())
            return
        body = echoed
        if "json" in kind:
            body = json.dumps({"error": {"message": echoed, "code": KEY}})
            body = body.replace("/", "\\u002f") if escaped else body
        headers = {"content-type": kind, "www-authenticate": f'Bearer error="{received.query} {KEY}"'}
        if stream:
            body = f"data: {body}\n\n"
        await wire.head(status, {**headers, "content-length": str(len(body))})
        await wire.send(body.encode())

    return run


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "answer",
    [
        echo(401, "application/json"),
        echo(401, "application/json", escaped=True),
        echo(400, "text/plain"),
        echo(200, "text/html"),
        echo(200, "application/json"),
        echo(200, "text/event-stream", stream=True),
        echo(0, "", reason="NOT HTTP"),
        echo(0, "", reason="HTTP/1.1 999x"),
        reset,
        hang,
    ],
    ids=["401", "escaped", "text", "html", "200", "event", "garbage", "bad status", "reset", "hang"],
)
@pytest.mark.parametrize("own", [True, False], ids=["ours", "theirs"])
async def test_secrets_echoed_by_the_server_are_redacted_from_errors(
    openai_server: OpenAIServer, make: Make, answer: Any, streamed: bool, own: bool
) -> None:
    openai_server.script(answer)
    request = post(openai_server, timeout=0.3)
    carried = SECRETS if own else {}
    request = replace(request, url=f"{request.url}?{QUERY}", headers={**request.headers, **carried})
    theirs = httpx.AsyncClient(headers=SECRETS, params={"api_key": "query/secret"})
    transport = make(max_retries=0) if own else make(max_retries=0, http_client=theirs)
    async with theirs:
        with pytest.raises(APIError) as caught:
            await send_and_decode(transport, request, streamed=streamed)
    seen = all_text_and_contents(caught.value)
    assert [part for part in PARTS if part in seen] == []
    assert caught.value.__context__ is None


async def send_and_decode(transport: Transport, request: WireRequest, *, streamed: bool) -> None:
    """Send the request and decode the response as the pipeline does."""
    dialect = OpenAIDialect()
    if not streamed:
        dialect.decode(inference_methods.CHAT, await transport.fetch(request))
        return
    async with transport.stream(request) as stream:
        async for event in stream:
            dialect.decode_event(inference_methods.CHAT, event.data, event.event)


async def test_a_status_error_keeps_the_response_and_the_request_with_secrets_redacted(
    openai_server: OpenAIServer, make: Make
) -> None:
    body = gzip.compress(json.dumps({"error": {"message": f"bad key {KEY}", "code": "x"}}).encode())
    headers = {"content-encoding": "gzip", "content-type": "application/json", "x-request-id": "req-9"}
    openai_server.script(reply(401, body, headers))
    request = post(openai_server)
    request = replace(request, url=f"{request.url}?{QUERY}")
    with pytest.raises(AuthenticationError, match=r"bad key \[redacted\]") as caught:
        await make().fetch(request)
    failed = caught.value
    assert (failed.code, failed.request_id, failed.response.status_code) == ("x", "req-9", 401)
    assert failed.response.json() == {"error": {"message": "bad key [redacted]", "code": "x"}}
    assert failed.response.headers["content-type"] == "application/json"
    assert failed.response.elapsed.total_seconds() >= 0
    assert failed.request.content == request.content
    assert failed.request.url.path == "/v1/chat/completions"
    assert dict(failed.request.url.params) == {"api_key": "[redacted]", "version": "[redacted]"}
    assert failed.request.headers["content-type"] == "application/json"


async def test_debug_logging_has_a_line_for_each_attempt_and_retry(
    openai_server: OpenAIServer, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "specclient")
    openai_server.script(reset, reply(503))
    await make().fetch(post(openai_server))
    lines = [record.getMessage() for record in caplog.records if record.name == "specclient"]
    assert [line.split()[0] for line in lines] == ["attempt", "retry", "attempt", "retry", "attempt"]
    assert "200" in lines[4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_retries": -1}, "max_retries is -1"),
        ({"max_retries": 1.5}, "max_retries is 1.5"),
        ({"timeout": "fast"}, "timeout is 'fast'"),
        ({"timeout": -1}, "timeout is -1"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"kind": "curl"}, "'aiohttp' or 'httpx'"),
        ({"http_client": object()}, "http_client is a builtins.object"),
    ],
)
async def test_invalid_arguments_raise(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Transport(**options)


async def test_an_infinite_timeout_is_accepted(openai_server: OpenAIServer, make: Make) -> None:
    assert (await make(timeout=float("inf")).fetch(post(openai_server))).status == 200


async def test_a_hundred_concurrent_streams_are_read_completely(
    openai_server: OpenAIServer, make: Make
) -> None:
    transport = make()
    lengths: list[int] = []

    async def one() -> None:
        lengths.append(len(await collect(transport, post(openai_server, stream=True))))

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(one)
    assert lengths == [11] * 100


async def test_statuses_without_an_error_class_raise_api_status_error(
    openai_server: OpenAIServer, make: Make
) -> None:
    openai_server.script(reply(402, b"pay first"))
    with pytest.raises(APIStatusError) as caught:
        await make().fetch(post(openai_server))
    assert type(caught.value) is APIStatusError
    assert (str(caught.value), caught.value.body) == ("Error code: 402", "pay first")
    assert isinstance(caught.value.response, httpx.Response)
