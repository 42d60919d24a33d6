"""OCR and reranking, called by path: recorded, and billed by pages, searches or tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import httpx
import pytest
from loopback_server import OpenAIServer, reply

from specclient import BudgetExceededError, OpenAI, Provider, Settings
from specclient.budgets.budgets import Budget
from specclient.call.path_usage import path_usage
from specclient.types.call import Call
from specclient.types.inference_methods import OCR, RERANK
from specclient.types.request import Request
from specclient.types.usage import Usage

JSON = {"content-type": "application/json"}
PAGES = {"model": "mistral-ocr-2512", "pages": [], "usage_info": {"pages_processed": 3, "doc_size_bytes": 9}}
COHERE = {"results": [], "meta": {"billed_units": {"search_units": 2}}}
DOCUMENT = {"type": "document_url", "document_url": "https://x.example/a.pdf"}


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


def called(
    server: OpenAIServer,
    path: str,
    body: Any,
    answer: Any,
    *,
    vendor: str | None,
    cast_to: Any = object,
    prices: Any = None,
    **given: Any,
) -> tuple[Any, Call]:
    """Return the result of a call by path, and its record."""
    server.script(reply(200, json.dumps(answer).encode(), JSON))
    mine = Provider(name="mine", base_url=server.base_url, key="k", price_provider=vendor)
    config = Settings.model_validate({"default_provider": "mine", "prices": prices or {}})
    found: list[Call] = []
    with OpenAI(providers=[mine], config=config, ledger="off", **given) as client:
        client.core.pipeline.observers.append(lambda call: found.append(call))
        result = client.post(path, cast_to=cast_to, body=body)
    return result, found[0]


@pytest.mark.parametrize(
    ("added", "total"),
    [({}, "0.006"), ({"document_annotation_format": {"type": "json_schema"}}, "0.009")],
)
def test_pages_read_have_the_catalogues_price(server: OpenAIServer, added: Any, total: str) -> None:
    body = {"model": "mistral-ocr-2512", "document": DOCUMENT, **added}
    result, call = called(server, "/ocr", body, PAGES, vendor="mistral")
    assert result == PAGES
    assert (call.operation, call.cost.total, call.cost.estimated) == ("ocr", Decimal(total), False)
    sent = server.requests[-1]
    assert (sent.path, json.loads(sent.body)) == ("/v1/ocr", body)


@pytest.mark.parametrize(
    ("model", "vendor", "answer", "total"),
    [
        ("rerank-v3.5", "cohere", COHERE, "0.004"),
        ("rerank-v4.0-pro", "cohere", COHERE, "0.005"),
        ("rerank-2.5-lite", "voyageai", {"data": [], "usage": {"total_tokens": 500_000}}, "0.01"),
        ("m", "openrouter", {"results": [], "usage": {"search_units": 1, "cost": 0.0019}}, "0.0019"),
    ],
)
def test_reranking_by_searches_tokens_or_a_reported_charge(
    server: OpenAIServer, model: str, vendor: str, answer: Any, total: str
) -> None:
    body = {"model": model, "query": "x", "documents": ["a", "b"]}
    _, call = called(server, "/v2/rerank", body, answer, vendor=vendor)
    assert (call.operation, call.cost.total) == ("rerank", Decimal(total))
    assert server.requests[-1].path.endswith("/v2/rerank")


def test_an_unknown_price_is_none_and_a_setting_gives_it(server: OpenAIServer) -> None:
    body = {"model": "rerank-new", "query": "x", "documents": ["a"]}
    _, call = called(server, "/rerank", body, COHERE, vendor="cohere")
    assert call.cost.total is None
    assert '[prices."mine/rerank-new"]' in call.cost.source
    prices = {"mine/*": {"units": {"search_unit": "0.01"}}}
    _, call = called(server, "/rerank", body, COHERE, vendor="cohere", prices=prices)
    assert (call.cost.total, call.cost.estimated) == (Decimal("0.02"), False)
    assert '[prices."mine/*".units] in the configuration' in call.cost.source


def test_the_result_has_the_type_that_the_caller_asks_for(server: OpenAIServer) -> None:
    body = {"model": "rerank-v3.5", "query": "x", "documents": ["a"]}
    result, call = called(server, "/rerank", body, COHERE, vendor="cohere", cast_to=httpx.Response)
    assert result.json() == COHERE
    assert call.cost.total == Decimal("0.004")
    result, _ = called(server, "/rerank", body, COHERE, vendor="cohere", cast_to=dict[str, Any])
    assert result["meta"] == COHERE["meta"]


def test_a_strict_budget_refuses_what_it_cannot_bound(server: OpenAIServer) -> None:
    budget = Budget(name="b", usd=1, unpriced="refuse")
    for path, model, vendor in (
        ("/ocr", "m", "mistral"),
        ("/ocr", "mistral-ocr-2512", "mistral"),
        ("/rerank", "rerank-v3.5", "cohere"),
    ):
        with pytest.raises(BudgetExceededError):
            called(server, path, {"model": model, "document": DOCUMENT}, {}, vendor=vendor, budgets=[budget])


@pytest.mark.parametrize("pages", [-1, 1.5, "3", None, True, 10**16])
def test_an_invalid_number_of_pages_is_unknown(pages: Any) -> None:
    content = json.dumps({"usage_info": {"pages_processed": pages}}).encode()
    assert path_usage(Request(OCR, "m"), content) is None


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"meta": [], "usage": 3}', b'{"usage": {}}'])
def test_an_answer_without_usage_is_unknown(content: bytes) -> None:
    assert path_usage(Request(RERANK, "m"), content) is None


def test_tokens_beside_searches_are_not_billed() -> None:
    content = json.dumps({"usage": {"search_units": 1, "total_tokens": 150}}).encode()
    usage = path_usage(Request(RERANK, "m"), content)
    assert usage == Usage(units=usage.units)  # type: ignore[union-attr]
