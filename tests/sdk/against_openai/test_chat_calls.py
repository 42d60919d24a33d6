"""chat.completions: the same requests, responses, chunks and errors as with the OpenAI client."""

from __future__ import annotations

from typing import Any

import pytest
from both_clients import Both
from loopback_server import reply

ASK: dict[str, Any] = {"model": "m-large", "messages": [{"role": "user", "content": "hi"}]}


def test_a_complete_response(both: Both) -> None:
    happened = both.same(lambda side: side.get(side.client.chat.completions.create(**ASK)))
    assert happened.result["request_id"] == "req-whole"


def test_a_streamed_response(both: Both) -> None:
    happened = both.same(lambda side: side.get(side.client.chat.completions.create(**ASK, stream=True)))
    assert len(happened.result) > 5


def test_a_streamed_response_ends_with_usage_on_request(both: Both) -> None:
    options = {"include_usage": True}
    happened = both.same(
        lambda side: side.get(side.client.chat.completions.create(**ASK, stream=True, stream_options=options))
    )
    assert happened.result[-1]["dump"]["usage"]["prompt_tokens"] > 0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 429, 500, 503, 418])
def test_error_statuses_raise_the_same_errors(both: Both, status: int) -> None:
    body = {"error": {"message": "no such luck", "type": "t", "param": "p", "code": "c"}}
    both.same(
        lambda side: side.get(side.client.chat.completions.create(**ASK)),
        reply(status, body, {"x-request-id": "req-1"}),
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"plain text",
        b"<html>",
        {"message": "m"},
        {"error": "text"},
        {"detail": "d"},
        [1],
        {"error": {"code": 7}},
    ],
    ids=str,
)
def test_error_bodies_of_other_shapes_raise_the_same_errors(both: Both, body: Any) -> None:
    both.same(lambda side: side.get(side.client.chat.completions.create(**ASK)), reply(400, body))
