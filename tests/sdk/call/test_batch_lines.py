"""Lines of batch outputs: parsed in two formats, and priced once, as the same answer of a call would be."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from anthropic_bodies import body as anthropic_body
from hypothesis import given, settings
from hypothesis import strategies as st

from specclient.call.batch_lines import parse_output, record_of
from specclient.call.recorder import CallRecorder
from specclient.config import Settings
from specclient.prices.prices import Prices
from specclient.providers import Endpoint, dialect
from specclient.types.call import Call
from specclient.types.inference_methods import CHAT, RESPONSE
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.wire import WireResponse

OPENAI = Endpoint(name="openai", base_url="https://api.openai.com/v1", price_provider="openai")
ANTHROPIC = Endpoint(
    name="anthropic",
    base_url="https://api.anthropic.com/v1",
    dialect="anthropic",
    price_provider="anthropic",
)
PRICES = Prices(Settings())
CREATED = int(datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp())
USAGE = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
CHAT_BODY = {
    "id": "c", "object": "chat.completion", "created": CREATED, "model": "gpt-5-2025-08-07",
    "choices": [CHOICE], "usage": USAGE, "service_tier": "default",
}  # fmt: skip


def openai_line(body: Any = CHAT_BODY, *, custom_id: str = "a", **changes: Any) -> bytes:
    response = {"status_code": 200, "request_id": "req_1", "body": body}
    line = {"id": "batch_req_1", "custom_id": custom_id, "response": response, "error": None}
    return json.dumps(line | changes).encode()


def anthropic_line(result: Any, custom_id: str = "a") -> bytes:
    return json.dumps({"custom_id": custom_id, "result": result}).encode()


def booked(raw: bytes, endpoint: Endpoint = OPENAI, scope: str = "file-1", prices: Prices = PRICES) -> Call:
    line = parse_output(raw)
    assert line is not None
    return record_of(line, endpoint, prices, scope=scope, job="batch_1", tags={"team": "a"})


def test_a_line_costs_the_batch_tiers_price() -> None:
    call = booked(openai_line())
    standard = Decimal("1.25") * 1000 / 10**6 + Decimal(10) * 100 / 10**6
    assert call.cost.total == standard / 2
    assert not call.cost.estimated
    assert "service tier batch" in call.cost.source
    assert (call.cost.tier, call.purpose, call.tags) == ("batch", "batch", {"team": "a", "batch": "batch_1"})
    assert (call.started_at.timestamp(), call.request_id, call.status) == (CREATED, "req_1", "ok")
    assert call.route.chosen == "openai/gpt-5-2025-08-07"


def test_a_line_of_anthropic_costs_half() -> None:
    message = json.loads(anthropic_body("text.json"))
    call = booked(anthropic_line({"type": "succeeded", "message": message}), ANTHROPIC, scope="msgbatch_1")
    whole = PRICES.price(
        dialect("anthropic").usage(
            dialect("anthropic").decode(CHAT, WireResponse(200, {}, json.dumps(message).encode()))
        ),
        "anthropic",
        message["model"],
        price_provider="anthropic",
        at=call.started_at,
    )
    assert whole.total
    assert call.cost.total == whole.total / 2


def test_a_model_without_a_listed_batch_price_has_the_share_that_the_page_states() -> None:
    call = booked(
        anthropic_line(
            {
                "type": "succeeded",
                "message": json.loads(anthropic_body("text.json")) | {"model": "claude-3-opus-20240229"},
            }
        ),
        ANTHROPIC,
    )
    assert call.cost.total
    assert "platform.claude.com/docs/en/build-with-claude/batch-processing, 2026-11-27" in call.cost.source


@pytest.mark.parametrize(
    ("vendor", "model", "dollars"),
    [
        ("azure", "gpt-4.1", "1.4"),  # 2 and 8 dollars per million tokens, half in a batch
        ("x-ai", "grok-4.20", "1.2"),  # 1 and 2 dollars in a batch
        ("moonshotai", "kimi-k2.5", "0.54"),  # 0.6 and 3 dollars, 60 % of them in a batch
        ("groq", "openai/gpt-oss-120b", "0.105"),  # 0.15 and 0.6 dollars, half in a batch
        ("mistral", "mistral-small-2603", "0.105"),  # 0.15 and 0.6 dollars, half in a batch
    ],
)
def test_a_line_of_a_vendor_with_openais_format_costs_its_batch_price(
    vendor: str, model: str, dollars: str
) -> None:
    """Such a line names no tier: that it comes from a batch is known from the file."""
    endpoint = Endpoint(name=vendor, base_url="https://api.example/v1", price_provider=vendor)
    body = {name: value for name, value in CHAT_BODY.items() if name != "service_tier"} | {"model": model}
    call = booked(openai_line(body), endpoint)
    assert call.cost.tier == "batch"
    assert call.cost.total == Decimal(dollars).scaleb(-3), call.cost.source


def test_a_vendor_without_a_stated_batch_price_is_unpriced() -> None:
    together = Endpoint(name="together", base_url="https://api.together.xyz/v1", price_provider="together")
    body = CHAT_BODY | {"model": "meta-llama/Llama-3.3-70B-Instruct-Turbo"}
    call = booked(openai_line(body), together)
    assert (call.cost.total, call.status) == (None, "ok")
    assert "in the service tier 'batch'" in call.cost.source


@pytest.mark.parametrize(
    ("raw", "error", "status"),
    [
        (openai_line(response=None, error={"code": "batch_expired", "message": "x"}), "batch_expired", None),
        (
            openai_line(response={"status_code": 400, "body": {"error": {"type": "invalid_request_error"}}}),
            "invalid_request_error",
            400,
        ),
        (anthropic_line({"type": "expired"}), "expired", None),
        (anthropic_line({"type": "canceled"}), "canceled", None),
        (
            anthropic_line(
                {"type": "errored", "error": {"type": "error", "error": {"type": "invalid_request_error"}}}
            ),
            "invalid_request_error",
            None,
        ),
    ],
)
def test_a_line_without_an_answer_costs_nothing(raw: bytes, error: str, status: int | None) -> None:
    call = booked(raw)
    assert (call.cost.total, call.status, call.error, call.http_status) == (0, "error", error, status)


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{", b"[1]", b"null", b'"custom_id"', openai_line()[:-3], b'{"custom_id": 5, "response": {}}',
        b'{"custom_id": "a", "method": "POST", "url": "/v1/x", "body": {}}', b"\xff" * 9, b"[" * 100_000,
        b'{"custom_id": "a", "response": []}', b'{"custom_id": "a", "response": null, "error": null}',
        b'{"custom_id": "a", "result": {"type": "succeeded", "message": 7}}',
    ],
)  # fmt: skip
def test_what_is_no_line_of_an_output_is_none(raw: bytes) -> None:
    assert parse_output(raw) is None


@pytest.mark.parametrize(
    "usage",
    [
        None, {}, 5, {"prompt_tokens": -1, "completion_tokens": 5},
        {"prompt_tokens": 10**30, "completion_tokens": 5}, {"prompt_tokens": 1.5, "completion_tokens": True},
    ],
)  # fmt: skip
def test_an_answer_whose_usage_cannot_be_read_is_unpriced(usage: Any) -> None:
    call = booked(openai_line(CHAT_BODY | {"usage": usage}))
    assert (call.cost.total, call.status) == (None, "ok")


def test_contradictory_usage_is_cut_and_marked() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 5000}}
    call = booked(openai_line(CHAT_BODY | {"usage": USAGE | details}))
    assert call.cost.estimated
    assert call.cost.total is not None
    assert call.cost.total <= booked(openai_line()).cost.total  # type: ignore[operator]


def test_each_line_has_one_id() -> None:
    lines = [openai_line(custom_id="a"), openai_line(custom_id="b"), anthropic_line({"type": "expired"}, "a")]
    ids = [booked(raw, scope=scope).id for raw in lines for scope in ("file-1", "file-2")]
    assert len(set(ids)) == len(ids)
    assert booked(lines[0]).id == booked(openai_line(CHAT_BODY | {"model": "gpt-4o"})).id


counts = st.integers(0, 10**6)


@st.composite
def usages(draw: st.DrawFn) -> dict[str, Any]:
    prompt, completion = draw(counts), draw(counts)
    inputs = {"cached_tokens": draw(st.integers(0, prompt)), "audio_tokens": 0}
    outputs = {"reasoning_tokens": draw(st.integers(0, completion))}
    return {
        "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        "prompt_tokens_details": draw(st.none() | st.just(inputs)),
        "completion_tokens_details": draw(st.none() | st.just(outputs)),
    }  # fmt: skip


def _recorder(method: Any = CHAT) -> CallRecorder:
    route = Decision(chosen="openai/gpt-5", provider="openai", model="gpt-5")
    request = Request(method, "openai/gpt-5", {"messages": []})
    return CallRecorder(
        request, route, PRICES, clock=lambda: 0.0, hosted=True, price_provider="openai", rejected_billed=None
    )


@settings(max_examples=60, deadline=None)
@given(usage=usages())
def test_streamed_whole_and_batch_lines_cost_the_same_for_the_same_usage(usage: dict[str, Any]) -> None:
    wire = dialect("openai")
    body = CHAT_BODY | {"usage": usage, "service_tier": "batch"}
    whole, streamed = _recorder(), _recorder()
    answer = wire.decode(CHAT, WireResponse(200, {}, json.dumps(body).encode()))
    whole.note_answer(answer, wire.usage(answer))
    head = {key: body[key] for key in ("id", "created", "model", "service_tier")}
    head["object"] = "chat.completion.chunk"
    delta = {"index": 0, "delta": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    read = wire.events(CHAT)
    for event in ({**head, "choices": [delta]}, {**head, "choices": [], "usage": usage}):
        chunk = read(json.dumps(event).encode(), None)
        streamed.note_chunk(chunk, wire.usage(chunk))
    calls = [whole.close(), streamed.close(), booked(openai_line(body))]
    assert len({call.cost.total for call in calls}) == 1
    assert calls[0].cost.by_kind == calls[1].cost.by_kind == calls[2].cost.by_kind
    assert calls[0].usage == calls[1].usage == calls[2].usage
    assert calls[0].cost.cache_saved == calls[1].cost.cache_saved == calls[2].cost.cache_saved


def test_responses_and_embeddings_are_read() -> None:
    usage = {"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100}
    part = {"type": "output_text", "text": "x", "annotations": []}
    item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    response = {
        "id": "r", "object": "response", "created_at": CREATED, "model": "gpt-5-2025-08-07",
        "status": "completed", "output": [item], "usage": usage,
    }  # fmt: skip
    call = booked(openai_line(response))
    assert (call.operation, call.counts["tool_calls"]) == (RESPONSE.operation, 0)
    assert call.cost.total == booked(openai_line()).cost.total
    embedding = {
        "object": "list", "model": "text-embedding-3-small",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
        "usage": {"prompt_tokens": 1000, "total_tokens": 1000},
    }  # fmt: skip
    call = booked(openai_line(embedding))
    assert (call.operation, call.usage.prompt, call.usage.completion) == ("embedding", 1000, 0)
