"""A server that refuses `stream_options`, which the caller has not sent, still serves streams."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback_server import OpenAIServer, reply

from specclient import BadRequestError, OpenAI
from specclient.errors import APIStatusError

ASK: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
REFUSALS = {
    "OpenAI's form": (400, {"error": {"message": "Unknown parameter: 'stream_options'.", "code": "x"}}),
    "pydantic's": (
        422,
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs"}]},
    ),
    "without its name": (400, {"error": "unexpected field in the body"}),
}
OTHER = reply(400, {"error": {"message": "This model's maximum context length is 8192 tokens."}})


@pytest.fixture
def client(openai_server: OpenAIServer, tmp_path: Path) -> Iterator[OpenAI]:
    with OpenAI(
        base_url=openai_server.base_url, api_key="k", max_retries=2, ledger=str(tmp_path / "l.db")
    ) as client:
        yield client


def _text(client: OpenAI, **options: Any) -> str:
    return "".join(
        chunk.choices[0].delta.content or ""
        for chunk in client.chat.completions.create(**ASK, **options)
        if chunk.choices
    )


@pytest.mark.parametrize("form", REFUSALS)
def test_a_refused_stream_is_sent_once_more_without(
    client: OpenAI, openai_server: OpenAIServer, form: str
) -> None:
    openai_server.script(reply(*REFUSALS[form]))
    first, second = _text(client), _text(client.with_options(timeout=9))
    assert first == second != ""
    asked = ["stream_options" in request.json for request in openai_server.requests]
    assert asked == [True, False, False]
    client.ledger.flush()
    rows = client.ledger.rows()
    assert [(row.status, row.attempts) for row in rows] == [("ok", 2), ("ok", 1)]
    assert all(row.completion_tokens for row in rows)


@pytest.mark.parametrize("options", [{"stream_options": {"include_usage": True}}, {}], ids=["asked", "other"])
def test_other_refusals_are_raised_at_once(
    client: OpenAI, openai_server: OpenAIServer, options: dict[str, Any]
) -> None:
    openai_server.script(reply(*REFUSALS["OpenAI's form"]) if options else OTHER)
    with pytest.raises(BadRequestError):
        _text(client, **options)
    assert len(openai_server.requests) == 1


def test_a_second_refusal_is_raised_and_not_remembered(client: OpenAI, openai_server: OpenAIServer) -> None:
    openai_server.script(*[reply(*REFUSALS["OpenAI's form"])] * 2)
    with pytest.raises(APIStatusError):
        _text(client)
    _text(client)
    assert ["stream_options" in request.json for request in openai_server.requests] == [True, False, True]
