"""Searches of the web by which Gemini grounds an answer are counted and priced as Google bills them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from loopback_server import OpenAIServer, reply

from specclient import OpenAI, Provider
from specclient.types.call import Call

QUERIES = ["a", "b", "a", ""]


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


def answer(model: str, queries: Any = QUERIES) -> dict[str, Any]:
    candidate = {
        "content": {"role": "model", "parts": [{"text": "x"}]},
        "finishReason": "STOP",
        "groundingMetadata": {"webSearchQueries": queries},
    }
    usage = {"promptTokenCount": 1000, "candidatesTokenCount": 100, "totalTokenCount": 1100}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model}


def called(server: OpenAIServer, model: str, body: Any, *, stream: bool = False) -> Call:
    mine = Provider(name="mine", base_url=server.base_url, key="k", dialect="gemini", price_provider="google")
    kind = {"content-type": "text/event-stream" if stream else "application/json"}
    content = json.dumps(body).encode()
    server.script(reply(200, b"data: %b\n\n" % content if stream else content, kind))
    found: list[Call] = []
    with OpenAI(providers=[mine], ledger="off") as client:
        client.core.pipeline.observers.append(lambda call: found.append(call))
        asked = client.chat.completions.create(
            model=f"mine/{model}", messages=[{"role": "user", "content": "x"}], stream=stream
        )
        if stream:
            list(asked)
    return found[0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("model", "dollars"), [("gemini-2.5-flash", "0.035"), ("gemini-3.5-flash", "0.028")])
def test_searches_by_call_before_gemini_3_and_by_unique_query_since(
    server: OpenAIServer, model: str, dollars: str, stream: bool
) -> None:
    call = called(server, model, answer(model), stream=stream)
    assert call.cost.by_kind["web_search"] == Decimal(dollars)
    assert call.cost.estimated, "Google does not bill some searches of a day or a month"
    assert "none of the searches is free" in call.cost.source


@pytest.mark.parametrize("queries", [[], None, "a", [1, None, ""], {"a": 1}])
def test_an_answer_without_queries_has_no_searches(server: OpenAIServer, queries: Any) -> None:
    call = called(server, "gemini-3.5-flash", answer("gemini-3.5-flash", queries))
    assert "web_search" not in call.cost.by_kind
    assert not call.cost.estimated
