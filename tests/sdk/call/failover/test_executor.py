"""Failover: which routes are tried after each failure, and how errors, records and costs are reported."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from failover_servers import ANSWER, ASK, answering, kit, status
from loopback_server import Behaviour, OpenAIServer, hang, reply, reset

from specclient import (
    APIConnectionError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    BudgetExceededError,
    DeadlineExceededError,
    InternalServerError,
    OpenAI,
    Policy,
)
from specclient import errors as tree
from specclient.call.failover.causes import (
    error_label,
    failover_scope,
    is_context_overflow,
    rejected_before_send,
)
from specclient.types.budget import Budget

pytestmark = pytest.mark.anyio

FAILURES: list[tuple[str, Behaviour, str]] = [
    ("no answer", reset, "APIConnectionError"),
    ("429", status(429), "RateLimitError 429"),
    ("spent", status(429, code="insufficient_quota"), "RateLimitError 429"),
    ("500", status(500), "InternalServerError 500"),
    ("529", status(529), "InternalServerError 529"),
    ("408", status(408), "APIStatusError 408"),
    ("404", status(404), "NotFoundError 404"),
    ("401", status(401), "AuthenticationError 401"),
    ("402", status(402), "APIStatusError 402"),
    ("no JSON", reply(200, b"<html>", {"content-type": "text/html"}), "APIResponseValidationError"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("name", "failure", "label"), FAILURES, ids=[each[0] for each in FAILURES])
async def test_a_failed_route_is_replaced_by_the_next(
    tmp_path: Path, name: str, failure: Behaviour, label: str, stream: bool
) -> None:
    async with kit(tmp_path) as made:
        made.servers[0].script(failure)
        made.servers[1].script(answering())
        if stream:
            chunks = await made.client.chat.completions.create(model="auto", messages=ASK, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
            meta = chunks.meta
        else:
            answer = await made.client.chat.completions.create(model="auto", messages=ASK)
            text, meta = answer.choices[0].message.content or "", answer.meta
        assert text == ANSWER
        assert meta.route.chosen == "s1/m"
        assert meta.route.reason.startswith(
            f"in place of s0/m ({label}); s0/m was chosen as the first of all"
        )
        assert [(part.route.chosen, part.status, part.purpose) for part in meta.parts] == [
            ("s0/m", "error", "call"),
            ("s1/m", "ok", "failover"),
        ]
        assert (meta.status, meta.served_model, meta.attempts) == ("ok", "m", 2)
        rows = await made.rows()
    assert [(row.route, row.status, row.purpose, row.parent) for row in rows] == [
        ("s0/m", "error", "call", meta.id),
        ("s1/m", "ok", "failover", meta.id),
    ]
    if status_known := [part for part in meta.parts if part.http_status]:
        # A refused request costs nothing, so the sum is the cost of the answer.
        assert status_known[0].cost.total == 0
        assert meta.cost.total == meta.parts[1].cost.total == Decimal("0.000062")
        assert meta.usage == meta.parts[1].usage


async def test_a_call_without_a_failure_has_one_row_and_no_parts(tmp_path: Path) -> None:
    async with kit(tmp_path) as made:
        made.servers[0].script(answering(), answering())
        answer = await made.client.chat.completions.create(model="auto", messages=ASK)
        chunks = await made.client.chat.completions.create(model="auto", messages=ASK, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
        rows = await made.rows()
        assert made.request_counts() == [2, 0]
    assert text == answer.choices[0].message.content == ANSWER
    assert [(row.id, row.parent, row.purpose) for row in rows] == [
        (answer.meta.id, None, "call"),
        (chunks.meta.id, None, "call"),
    ]
    assert answer.meta.parts == chunks.meta.parts == ()
    assert answer.meta.route.reason == "the first of all"


SAME_EVERYWHERE: list[tuple[int, dict[str, Any]]] = [(400, {}), (422, {}), (400, {"code": "content_filter"})]


@pytest.mark.parametrize(("code", "more"), SAME_EVERYWHERE)
async def test_an_error_that_every_route_would_give_is_raised_without_failover(
    tmp_path: Path, code: int, more: dict[str, Any]
) -> None:
    async with kit(tmp_path) as made:
        made.servers[0].script(status(code, **more))
        with pytest.raises(tree.APIStatusError) as raised:
            await made.client.chat.completions.create(model="auto", messages=ASK)
        rows = await made.rows()
        assert made.request_counts() == [1, 0]
    assert raised.value.status_code == code
    assert not getattr(raised.value, "__notes__", [])
    assert [(row.status, row.parent) for row in rows] == [("error", None)]


async def test_an_authentication_error_fails_over_to_other_providers_only(tmp_path: Path) -> None:
    async with kit(tmp_path, routes=["s0/m", "s0/other", "s1/m"]) as made:
        made.servers[0].script(status(401))
        made.servers[1].script(answering())
        answer = await made.client.chat.completions.create(model="auto", messages=ASK)
        assert made.request_counts() == [1, 1]
        assert answer.meta.route.chosen == "s1/m"
        made.routes[:] = ["s0/m", "s0/other"]
        made.servers[0].script(status(401))
        with pytest.raises(AuthenticationError):
            await made.client.chat.completions.create(model="auto", messages=ASK)
        assert made.request_counts() == [2, 1]


async def test_the_first_error_is_raised_with_a_note_of_all_routes_tried(tmp_path: Path) -> None:
    async with kit(tmp_path, 3) as made:
        made.servers[0].script(status(500))
        made.servers[1].script(status(429))
        made.servers[2].script(reset)
        with pytest.raises(InternalServerError) as raised:
            await made.client.chat.completions.create(model="auto", messages=ASK)
        rows = await made.rows()
    assert raised.value.__notes__ == [
        "Tried, in this order: s0/m (InternalServerError 500); s1/m (RateLimitError 429); "
        "s2/m (APIConnectionError)."
    ]
    assert [(row.route, row.purpose) for row in rows] == [
        ("s0/m", "call"),
        ("s1/m", "failover"),
        ("s2/m", "failover"),
    ]
    assert len({row.parent for row in rows}) == 1


async def test_a_policy_without_fallbacks_does_not_fail_over(tmp_path: Path) -> None:
    async with kit(tmp_path) as made:
        made.servers[0].script(status(500), status(500))
        ask: dict[str, Any] = {"model": "auto", "messages": ASK, "policy": Policy(fallbacks=False)}
        for stream in (False, True):
            with pytest.raises(InternalServerError):
                await made.client.chat.completions.create(**ask, stream=stream)
        assert made.request_counts() == [2, 0]
        assert [row.parent for row in await made.rows()] == [None, None]


async def test_a_context_overflow_fails_over_to_longer_contexts_only(tmp_path: Path) -> None:
    too_long = status(400, message="This model's maximum context length is 8192 tokens.")
    async with kit(tmp_path, 3, routes=["s0/gpt-4o-mini", "s1/gpt-4", "s2/gpt-4.1"]) as made:
        endpoints: Any = made.client.pipeline.destinations.endpoints
        for name in ("s0", "s1", "s2"):  # the price catalogue of a vendor has the context lengths
            endpoints[name] = replace(endpoints[name], price_provider="openai")
        made.servers[0].script(too_long)
        made.servers[2].script(answering())
        answer = await made.client.chat.completions.create(model="auto", messages=ASK)
        assert made.request_counts() == [1, 0, 1]
    assert answer.meta.route.chosen == "s2/gpt-4.1"


async def test_a_context_overflow_is_raised_where_no_context_length_is_known(tmp_path: Path) -> None:
    async with kit(tmp_path) as made:  # the context lengths of these models are unknown
        made.servers[0].script(status(400, code="context_length_exceeded"))
        with pytest.raises(BadRequestError):
            await made.client.chat.completions.create(model="auto", messages=ASK)
        assert made.request_counts() == [1, 0]


async def test_an_unsupported_parameter_fails_over_to_an_endpoint_that_supports_it(tmp_path: Path) -> None:
    async with kit(tmp_path, 1, routes=["local/demo", "s0/m"]) as made:
        made.servers[0].script(answering())
        answer = await made.client.chat.completions.create(
            model="auto", messages=ASK, modalities=["text", "audio"], audio={"voice": "x"}
        )
        assert answer.meta.route.chosen == "s0/m"
        assert answer.meta.parts[0].cost.total == 0


async def test_a_route_with_an_open_circuit_is_skipped(tmp_path: Path) -> None:
    circuit = {"circuit": {"failures": 1, "lasting_s": 0, "rest_s": 60}}
    async with kit(tmp_path, settings=circuit) as made:
        made.servers[0].script(status(500))
        made.servers[1].script(answering(), answering())
        for _ in range(2):
            answer = await made.client.chat.completions.create(model="auto", messages=ASK)
        assert made.request_counts() == [1, 2]
    assert "s0/m (CircuitOpenError)" in answer.meta.route.reason
    assert answer.meta.cost.total == answer.meta.parts[1].cost.total
    assert answer.meta.parts[0].cost.source == "not sent"


async def test_a_route_whose_provider_budget_is_spent_is_skipped(tmp_path: Path) -> None:
    spent = [Budget(name="first", usd=Decimal("0.0000001"), provider="s0")]
    async with kit(tmp_path, budgets=spent) as made:
        made.servers[1].script(answering())
        answer = await made.client.chat.completions.create(model="auto", messages=ASK)
        assert made.request_counts() == [0, 1]
        assert "s0/m (BudgetExceededError)" in answer.meta.route.reason
        assert [row.route for row in await made.rows()] == ["s1/m"]
        made.routes[:] = ["s0/m"]
        with pytest.raises(BudgetExceededError):
            await made.client.chat.completions.create(model="auto", messages=ASK)


async def test_fallbacks_are_reserved_and_settled_in_budgets(tmp_path: Path) -> None:
    async with kit(tmp_path, budgets=[Budget(name="all", usd=Decimal(1))]) as made:
        made.servers[0].script(status(500))
        made.servers[1].script(answering())
        answer = await made.client.chat.completions.create(model="auto", messages=ASK)
        budgets: Any = made.client.core.shared.budgets
        (standing,) = await asyncio.to_thread(budgets.standings)
    assert standing.spent == answer.meta.cost.nano
    assert standing.reserved == 0


async def test_the_local_engine_can_be_a_fallback(tmp_path: Path) -> None:
    async with kit(tmp_path, 1, routes=["s0/m", "local/demo"]) as made:
        made.servers[0].script(status(503), status(503))
        ask: dict[str, Any] = {"model": "auto", "messages": ASK, "max_tokens": 4, "temperature": 0}
        answer = await made.client.chat.completions.create(**ask)
        chunks = await made.client.chat.completions.create(**ask, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices])
        rows = await made.rows()
    assert answer.meta.route.chosen == chunks.meta.route.chosen == "local/demo"
    assert text == answer.choices[0].message.content
    assert answer.meta.engine_s is not None
    assert [row.route for row in rows] == ["s0/m", "local/demo"] * 2
    known = [row.cost_nano or 0 for row in rows]
    assert sum(known[:2]) == answer.meta.cost.nano


async def test_a_route_that_times_out_fails_over_with_an_unknown_cost(tmp_path: Path) -> None:
    async with kit(tmp_path) as made:
        made.servers[0].script(hang)
        made.servers[1].script(answering())
        answer = await made.client.chat.completions.create(model="auto", messages=ASK, timeout=0.2)
        assert answer.meta.parts[0].error == "APITimeoutError"
        assert answer.meta.cost.total is None  # the first request may be billed an unknown amount
        assert await asyncio.to_thread(made.servers[0].wait_left, 1)


async def test_an_idempotency_key_is_sent_to_the_first_route_only(tmp_path: Path) -> None:
    async with kit(tmp_path) as made:
        made.servers[0].script(status(500))
        made.servers[1].script(answering())
        key = {"Idempotency-Key": "k"}
        await made.client.chat.completions.create(model="auto", messages=ASK, extra_headers=key)
        first, second = (server.requests[0].headers for server in made.servers)
    assert first["idempotency-key"] == "k"
    assert "idempotency-key" not in second


async def test_completions_and_responses_fail_over(tmp_path: Path) -> None:
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "output": [],
        "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
    }
    async with kit(tmp_path) as made:
        made.servers[0].script(*[status(500)] * 3)
        made.servers[1].script(answering(), reply(200, response))
        text = await made.client.completions.create(model="auto", prompt="x")
        answer = await made.client.responses.create(model="auto", input="x")
        assert (text.choices[0].text, answer.id) == (ANSWER, "resp_1")
        assert text.meta.route.chosen == answer.meta.route.chosen == "s1/m"
        with pytest.raises(InternalServerError):  # the previous response is stored at the first provider
            await made.client.responses.create(model="auto", input="x", previous_response_id="resp_0")
        assert made.request_counts() == [3, 2]


async def test_embeddings_fail_over_to_the_same_model_only(tmp_path: Path) -> None:
    vectors = {
        "object": "list",
        "model": "m",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
        "usage": {"prompt_tokens": 1, "total_tokens": 1},
    }
    routes = ["s0/embed-3", "s1/other-embed", "s2/vendor/Embed-3"]
    async with kit(tmp_path, 3, routes=routes) as made:
        made.servers[0].script(status(500))
        made.servers[2].script(reply(200, vectors))
        answer = await made.client.embeddings.create(model="auto", input="x", encoding_format="float")
        assert made.request_counts() == [1, 0, 1]
    assert answer.data[0].embedding == [0.5]


async def test_raw_responses_are_of_the_route_that_answered(tmp_path: Path) -> None:
    async with kit(tmp_path) as made:
        made.servers[0].script(*[status(500)] * 3)
        made.servers[1].script(answering(), answering(), answering())
        raw: Any = await made.client.chat.completions.with_raw_response.create(model="auto", messages=ASK)
        assert str(raw.http_request.url).startswith(made.servers[1].url)
        assert raw.parse().meta.route.chosen == "s1/m"
        raw = await made.client.chat.completions.with_raw_response.create(
            model="auto", messages=ASK, stream=True
        )
        assert str(raw.http_request.url).startswith(made.servers[1].url)
        assert [chunk async for chunk in raw.parse()]
        unread = made.client.chat.completions.with_streaming_response.create(model="auto", messages=ASK)
        async with unread as response:
            assert ANSWER.encode() in await response.read()
        rows = await made.rows()
    assert [row.purpose for row in rows] == ["call", "failover"] * 3
    assert len({row.parent for row in rows}) == 3


async def test_a_raw_response_is_returned_even_if_no_route_gives_a_valid_body(tmp_path: Path) -> None:
    page = reply(200, b"<html>", {"content-type": "text/html"})
    async with kit(tmp_path) as made:
        for server in made.servers:
            server.script(page)
        raw: Any = await made.client.chat.completions.with_raw_response.create(model="auto", messages=ASK)
        assert raw.status_code == 200
        assert made.request_counts() == [1, 1]


def test_the_synchronous_client_fails_over(tmp_path: Path) -> None:
    async def main() -> None:
        async with kit(tmp_path) as made:
            made.servers[0].script(status(500), status(500))
            made.servers[1].script(answering(), answering())
            client = OpenAI(config=made.client.core.settings, ledger="off", max_retries=0)
            client.core.pipeline.router.decide = made.decide  # type: ignore[method-assign]

            def ask() -> tuple[Any, str]:
                with client:
                    answer = client.chat.completions.create(model="auto", messages=ASK)
                    stream = client.chat.completions.create(model="auto", messages=ASK, stream=True)
                    return answer, "".join(chunk.choices[0].delta.content or "" for chunk in stream)

            answer, text = await asyncio.to_thread(ask)
            assert answer.choices[0].message.content == text == ANSWER
            assert answer.meta.route.chosen == "s1/m"

    asyncio.run(main())


def _error(cls: type[tree.APIStatusError], number: int, /, **body: Any) -> tree.APIStatusError:
    error = cls(str(body.get("message", "no")), body=body)
    error.status_code = number
    return error


CLASSES: list[tuple[BaseException, str]] = [
    (APIConnectionError(), "any"),
    (APITimeoutError(), "any"),
    (DeadlineExceededError(), "any"),
    (tree.CircuitOpenError("x", deployment="d", retry_after_s=1), "any"),
    (_error(tree.RateLimitError, 429), "any"),
    (_error(tree.RateLimitError, 429, code="insufficient_quota"), "other_provider"),
    (_error(tree.InternalServerError, 503), "any"),
    (_error(tree.ConflictError, 409), "any"),
    (_error(tree.NotFoundError, 404), "any"),
    (_error(tree.AuthenticationError, 401), "other_provider"),
    (_error(tree.PermissionDeniedError, 403), "other_provider"),
    (_error(tree.BadRequestError, 400), "none"),
    (_error(tree.BadRequestError, 400, code="context_length_exceeded"), "longer_context"),
    (_error(tree.BadRequestError, 400, message="prompt is too long: 9 tokens > 8 maximum"), "longer_context"),
    (
        _error(tree.BadRequestError, 400, message='litellm: {"code": "context_length_exceeded"}'),
        "longer_context",
    ),
    (
        _error(tree.BadRequestError, 400, message="/chat/completions: Invalid model name passed in model=x."),
        "any",
    ),
    (_error(tree.BadRequestError, 400, message="Server is pinned to 'a'; requested 'b'."), "any"),
    (_error(tree.APIStatusError, 413), "longer_context"),
    (_error(tree.APIStatusError, 402), "other_provider"),
    (_error(tree.APIStatusError, 418), "none"),
    (_error(tree.UnprocessableEntityError, 422), "none"),
    (tree.UnsupportedParameterError("x"), "any"),
    (tree.APIResponseValidationError(), "any"),
    (tree.BudgetExceededError("x"), "any"),
    (tree.ContextOverflowError("x"), "longer_context"),
    (tree.CheckpointError("x"), "any"),
    (tree.EngineError("x"), "any"),
    (tree.ConfigurationError("x"), "other_provider"),
    (tree.LedgerError("x"), "none"),
    (ValueError("x"), "none"),
    (asyncio.CancelledError(), "none"),
]


@pytest.mark.parametrize(("error", "expected"), CLASSES, ids=[f"{error_label(e)}-{w}" for e, w in CLASSES])
def test_the_failover_scope_of_each_error(error: BaseException, expected: str) -> None:
    assert failover_scope(error) == expected


def test_errors_rejected_before_send_are_recognized() -> None:
    assert rejected_before_send(tree.BudgetExceededError("x"))
    assert rejected_before_send(tree.UnsupportedParameterError("x"))
    assert not rejected_before_send(APIConnectionError())
    assert not is_context_overflow(ValueError("context length"))


async def test_a_closed_client_does_not_fail_over(tmp_path: Path) -> None:
    async with kit(tmp_path) as made:
        made.servers[0].script(hang)
        calling = asyncio.create_task(made.client.chat.completions.create(model="auto", messages=ASK))
        while not made.servers[0].requests:
            await asyncio.sleep(0.01)
        await made.client.close()
        with pytest.raises(APIConnectionError, match="closed"):
            await calling
        assert made.request_counts() == [1, 0]


async def test_routing_estimates_observe_each_attempted_route(tmp_path: Path) -> None:
    async with kit(tmp_path) as made:
        made.servers[0].script(status(500))
        made.servers[1].script(answering())
        seen: list[Any] = []
        made.client.core.shared.estimates.observe = seen.append  # type: ignore[method-assign]
        await made.client.chat.completions.create(model="auto", messages=ASK)
    assert [(call.route.chosen, call.status) for call in seen] == [("s0/m", "error"), ("s1/m", "ok")]


def test_a_call_with_a_named_model_does_not_import_failover_modules(openai_server: OpenAIServer) -> None:
    code = (
        "import sys\n"
        "from specclient import OpenAI, Settings\n"
        "with OpenAI(config=Settings(), ledger='off', base_url=sys.argv[1], api_key='k') as client:\n"
        "    client.completions.create(model='m', prompt='x')\n"
        "ours = ('specclient.call.failover.executor', 'specclient.routing.choose.session_affinity', "
        "'specclient.call.subcalls')\n"
        "print(sorted(m for m in sys.modules if m.startswith(ours)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, openai_server.base_url], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
