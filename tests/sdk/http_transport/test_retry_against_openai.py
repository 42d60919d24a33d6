"""The transport compared with the OpenAI client on the same responses: attempts, pauses and errors."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import openai
import openai._base_client as base
import pytest
from loopback_server import Behaviour, OpenAIServer, hang, raw, reply, reset

from specclient import errors
from specclient.http_transport import Transport
from specclient.types.wire import WireRequest

pytestmark = pytest.mark.anyio

NOW = 1_755_780_000.0  # 2025-08-21T12:40:00Z
BODY = {"error": {"message": "no", "type": "t", "param": "p", "code": "c"}}


@dataclass
class Outcome:
    """The pauses and the error of a call, and the retry counts that the server received."""

    pauses: list[float] = field(default_factory=list)
    counts: list[str | None] = field(default_factory=list)
    error: str = ""
    message: str = ""
    fields: dict[str, Any] = field(default_factory=dict)


def completed(outcome: Outcome, server: OpenAIServer, error: BaseException | None) -> Outcome:
    outcome.counts = [received.headers.get("x-stainless-retry-count") for received in server.requests]
    if error is not None:
        outcome.error = type(error).__name__
        names = ("status_code", "request_id", "body", "code", "param", "type")
        outcome.fields = {name: getattr(error, name) for name in names if hasattr(error, name)}
        if hasattr(error, "status_code"):
            outcome.message = str(error)
    return outcome


async def by_openai(monkeypatch: pytest.MonkeyPatch, timeout: float, *script: Behaviour) -> Outcome:
    outcome = Outcome()

    class Client(openai.AsyncOpenAI):
        def _calculate_retry_timeout(self, *args: Any, **options: Any) -> float:
            outcome.pauses.append(super()._calculate_retry_timeout(*args, **options))
            return 0.0

    monkeypatch.setattr(base, "random", lambda: 0.5)
    monkeypatch.setattr(base, "time", SimpleNamespace(time=lambda: NOW))
    with OpenAIServer() as server:
        server.script(*script)
        async with Client(api_key="sk-test", base_url=server.base_url, timeout=timeout) as client:
            try:
                await client.chat.completions.create(model="m", messages=[])
            except openai.OpenAIError as error:
                return completed(outcome, server, error)
            return completed(outcome, server, None)


async def by_us(timeout: float, *script: Behaviour) -> Outcome:
    outcome = Outcome()

    async def sleep(seconds: float) -> None:
        outcome.pauses.append(seconds)

    # There is one caller, so pacing adds no delay, and the clock need not advance with the pauses.
    clock = iter(range(0, 10**9, 10**3))
    transport = Transport(
        sleep=sleep, random=lambda: 0.5, now=lambda: NOW, clock=lambda: float(next(clock)), timeout=timeout
    )
    with OpenAIServer() as server:
        server.script(*script)
        try:
            await transport.fetch(
                WireRequest("POST", f"{server.base_url}/chat/completions", content=b'{"model": "m"}')
            )
        except errors.OpenAIError as error:
            return completed(outcome, server, error)
        finally:
            await transport.aclose()
        return completed(outcome, server, None)


HEADERS = [
    {},
    {"retry-after": "3"},
    {"retry-after": "0.25"},
    {"retry-after": " 5 "},
    {"retry-after": "1e1"},
    {"retry-after": "0"},
    {"retry-after": "-3"},
    {"retry-after": "120"},
    {"retry-after": "120.5"},
    {"retry-after": "3600"},
    {"retry-after": "1e999"},
    {"retry-after": "inf"},
    {"retry-after": "nan"},
    {"retry-after": "soon"},
    {"retry-after": "Thu, 21 Aug 2025 12:40:30 GMT"},
    {"retry-after": "Thu, 21 Aug 2025 12:39:30 GMT"},
    {"retry-after": "Thu, 21 Aug 2025 12:50:30 GMT"},
    {"retry-after-ms": "250"},
    {"retry-after-ms": "250", "retry-after": "9"},
    {"retry-after-ms": "x", "retry-after": "9"},
    {"retry-after-ms": "nan", "retry-after": "9"},
    {"retry-after-ms": "0", "retry-after": "9"},
    {"retry-after-ms": "120001"},
    {"x-should-retry": "true"},
    {"x-should-retry": "false"},
    {"x-should-retry": "perhaps"},
    {"x-should-retry": "true", "retry-after": "3600"},
    {"x-should-retry": "true", "retry-after": "2"},
]
STATUSES = [300, 400, 401, 402, 403, 404, 408, 409, 413, 422, 425, 429, 500, 501, 502, 503, 504, 529]


@pytest.mark.parametrize("headers", HEADERS, ids=str)
@pytest.mark.parametrize("status", [429, 400])
async def test_response_headers_have_the_same_effect(
    monkeypatch: pytest.MonkeyPatch, status: int, headers: dict[str, str]
) -> None:
    script = [reply(status, BODY, {"x-request-id": "req-1", **headers})] * 3
    theirs = await by_openai(monkeypatch, 60, *script)
    assert await by_us(60, *script) == theirs
    assert theirs.error


@pytest.mark.parametrize("status", STATUSES)
async def test_statuses_have_the_same_effect(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    script = [reply(status, BODY)] * 3
    assert await by_us(60, *script) == await by_openai(monkeypatch, 60, *script)


@pytest.mark.parametrize(
    ("script", "timeout"),
    [
        ([reset] * 3, 60),
        ([hang] * 3, 0.2),
        ([reset, hang, reply(500, BODY)], 0.2),
        ([reset, reply(429, BODY, {"retry-after": "2"})], 60),
        ([raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort")] * 3, 60),
    ],
    ids=["reset", "hang", "mixed", "recovers", "cut"],
)
async def test_connection_failures_have_the_same_effect(
    monkeypatch: pytest.MonkeyPatch, script: list[Behaviour], timeout: float
) -> None:
    assert await by_us(timeout, *script) == await by_openai(monkeypatch, timeout, *script)


BODIES: list[Any] = [
    BODY,
    {"error": {"message": "only words"}},
    {"error": {"message": ""}},
    {"error": {"message": None, "code": 429}},
    {"error": {"code": 404, "message": "a number", "param": ["messages", 0], "type": None}},
    {"error": None},
    {"error": {}},
    {"message": "flat", "type": "t", "code": 400, "object": "error", "param": None},
    {"unlike": "anything"},
    {},
    [],
    ["text"],
    "a string",
    7,
    None,
    b"",
    b"  plain text \n",
    b"<html>502 Bad Gateway</html>",
    b'{"cut": ',
    "ünïcode".encode("latin-1"),
]


@pytest.mark.parametrize("body", BODIES, ids=repr)
async def test_error_bodies_give_the_same_error(monkeypatch: pytest.MonkeyPatch, body: Any) -> None:
    script = [reply(400, body, {"x-request-id": "req-1"})]
    theirs = await by_openai(monkeypatch, 60, *script)
    assert await by_us(60, *script) == theirs
    assert theirs.error == "BadRequestError"


@pytest.mark.parametrize(
    ("body", "message", "fields"),
    [
        ({"error": "words", "error_type": "overloaded"}, " - words", {"type": "overloaded"}),
        ({"detail": "not found here"}, " - not found here", {}),
        ({"detail": [{"input": "the prompt"}]}, "", {}),
        (
            [{"error": {"code": 400, "message": "m", "status": "INVALID"}}],
            " - m",
            {"code": "400", "type": "INVALID"},
        ),
    ],
)
async def test_error_bodies_of_other_vendors_add_a_message_and_fields_only(
    monkeypatch: pytest.MonkeyPatch, body: Any, message: str, fields: dict[str, str]
) -> None:
    script = [reply(400, body)]
    ours, theirs = await by_us(60, *script), await by_openai(monkeypatch, 60, *script)
    assert ours.message == theirs.message + message
    assert ours.fields == {**theirs.fields, **fields}
    assert json.dumps(ours.fields["body"]) == json.dumps(theirs.fields["body"])


async def test_a_spent_quota_is_not_retried_although_openai_retries_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = [reply(429, {"error": {"message": "no money", "code": "insufficient_quota"}})] * 3
    ours, theirs = await by_us(60, *script), await by_openai(monkeypatch, 60, *script)
    assert (len(ours.counts), len(theirs.counts)) == (1, 3)
    assert ours.message == theirs.message
