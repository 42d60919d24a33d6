"""Calls from the client to a loopback server, streamed and not streamed, with their records."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest
from anyio import move_on_after
from loopback_server import TEXT, OpenAIServer, Received, Wire, broken_stream, events, hang, reply

from specclient import (
    APIResponseValidationError,
    APITimeoutError,
    AsyncOpenAI,
    AuthenticationError,
    ConfigurationError,
    InternalServerError,
    NoRouteError,
    NotFoundError,
    OpenAI,
    Policy,
    Settings,
)
from specclient.config import PriceSettings, ProviderSettings
from specclient.types import Call

pytestmark = pytest.mark.anyio

ASK = [{"role": "user", "content": "Say something about foxes."}]
PRICES = {"mine/m-large": PriceSettings(input=Decimal(2), output=Decimal(8))}


def _settings(server: OpenAIServer, **more: object) -> Settings:
    return Settings.model_validate(
        {"providers": {"mine": ProviderSettings(base_url=server.base_url)}, "prices": PRICES, **more}
    )


async def test_a_complete_answer_and_its_record(openai_server: OpenAIServer) -> None:
    async with AsyncOpenAI(config=_settings(openai_server)) as client:
        answer = await client.chat.completions.create(
            model="mine/m-large", messages=ASK, temperature=0.5, tags={"team": "a"}
        )
        assert answer.choices[0].message.content == TEXT
        sent = openai_server.requests[0]
        assert sent.path == "/v1/chat/completions"
        assert sent.json == {"model": "m-large", "messages": ASK, "temperature": 0.5}
        meta = answer.meta
        assert answer.usage is not None
        expected = Decimal(answer.usage.prompt_tokens * 2 + answer.usage.completion_tokens * 8) / 10**6
        assert meta.cost.total == expected
        assert sum(meta.cost.by_kind.values()) == expected
        assert not meta.cost.estimated
        assert (meta.status, meta.provider, meta.request_id, meta.attempts) == ("ok", "mine", "req-whole", 1)
        assert meta.route.chosen == "mine/m-large"
        assert meta.speculation is None
        assert "meta" not in answer.model_dump()
        (row,) = client.ledger.rows()
        assert row.id == meta.id
        assert row.tags == {"team": "a"}
        assert row.cost_nano == meta.cost.nano


async def test_text_completions_are_sent_and_streamed(openai_server: OpenAIServer) -> None:
    async with AsyncOpenAI(config=_settings(openai_server)) as client:
        whole = await client.completions.create(model="mine/m-large", prompt="The quick", max_tokens=9)
        stream = await client.completions.create(model="mine/m-large", prompt="The quick", stream=True)
        text = "".join([chunk.choices[0].text async for chunk in stream])
    assert whole.choices[0].text == text == TEXT
    assert openai_server.requests[0].path == "/v1/completions"
    assert openai_server.requests[0].json["max_tokens"] == 9
    assert whole.meta.operation == "completion"


async def test_refusals_are_recorded_and_cost_nothing(openai_server: OpenAIServer) -> None:
    openai_server.script(reply(401, {"error": {"message": "bad key", "type": "invalid_request_error"}}))
    async with AsyncOpenAI(config=_settings(openai_server)) as client:
        with pytest.raises(AuthenticationError, match="bad key"):
            await client.chat.completions.create(model="mine/m-large", messages=ASK)
        (row,) = client.ledger.rows()
    assert (row.status, row.error, row.http_status, row.cost_nano) == ("error", "AuthenticationError", 401, 0)


async def test_prediction_counts_become_speculation(openai_server: OpenAIServer) -> None:
    details = {"accepted_prediction_tokens": 6, "rejected_prediction_tokens": 4}
    usage = {"prompt_tokens": 5, "completion_tokens": 12, "completion_tokens_details": details}
    body = {"id": "x", "choices": [{"message": {"content": "hi"}}], "usage": usage}
    openai_server.script(reply(200, body))
    async with AsyncOpenAI(config=_settings(openai_server)) as client:
        answer = await client.chat.completions.create(
            model="mine/m-large", messages=ASK, prediction={"type": "content", "content": "hi there"}
        )
    assert answer.meta.speculation is not None
    assert (answer.meta.speculation.predicted_accepted, answer.meta.speculation.predicted_rejected) == (6, 4)
    assert answer.meta.speculation.drafted is None


async def test_the_usage_of_a_response_without_usage_is_estimated(openai_server: OpenAIServer) -> None:
    openai_server.script(events(b'data: {"choices": [{"delta": {"content": "a b c"}}]}\n\ndata: [DONE]\n\n'))
    async with AsyncOpenAI(config=_settings(openai_server)) as client:
        stream = await client.chat.completions.create(model="mine/m-large", messages=ASK, stream=True)
        assert [chunk async for chunk in stream]
    assert stream.meta.status == "ok"
    assert stream.meta.usage.estimated
    assert stream.meta.usage.completion == 3


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "one two three "},
        {"content": [{"type": "text", "text": "one two "}, {"type": "text", "text": "three "}]},
        {"reasoning_content": "one two three "},
        {"reasoning": "one two three "},
        {"refusal": "one two three "},
        {"tool_calls": [{"index": 0, "function": {"name": "one", "arguments": " two three "}}]},
    ],
    ids=["content", "parts", "reasoning_content", "reasoning", "refusal", "tool_calls"],
)
async def test_estimated_usage_counts_all_generated_text(
    openai_server: OpenAIServer, delta: dict[str, object]
) -> None:
    frame = b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"
    openai_server.script(broken_stream(frame, frame, how="hang"), events(frame, frame, b"data: [DONE]\n\n"))
    async with AsyncOpenAI(config=_settings(openai_server)) as client:
        async with await client.chat.completions.create(
            model="mine/m-large", messages=ASK, stream=True
        ) as left:
            await anext(left)
            await anext(left)
        whole = await client.chat.completions.create(model="mine/m-large", messages=ASK, stream=True)
        assert len([chunk async for chunk in whole]) == 2
    for stream in (left, whole):
        assert stream.meta.usage.completion == 6
        assert stream.meta.cost.estimated
        assert stream.meta.cost.total
        assert stream.meta.ttft_s is not None


def _tool_call(name: str) -> dict[str, object]:
    return {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}


async def test_tool_calls_of_an_answer_are_counted(openai_server: OpenAIServer) -> None:
    calls = [_tool_call("a"), _tool_call("b")]
    choice = {
        "index": 0,
        "finish_reason": "tool_calls",
        "message": {"role": "assistant", "tool_calls": calls},
    }
    whole_body = {
        "id": "c",
        "model": "m-large",
        "object": "chat.completion",
        "created": 1,
        "choices": [choice],
    }
    pieces = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": place, **call}]}}]}
        for place, call in ((0, calls[0]), (0, {"function": {"arguments": " "}}), (1, calls[1]))
    ]
    frames = [b"data: " + json.dumps(piece).encode() + b"\n\n" for piece in pieces]
    item = {"type": "function_call", "id": "f", "call_id": "f", "name": "a", "arguments": "{}"}
    response = {"id": "r", "object": "response", "model": "m-large", "output": [item]}
    done = {"type": "response.completed", "sequence_number": 0, "response": response}
    openai_server.script(
        reply(200, whole_body),
        events(*frames, b"data: [DONE]\n\n"),
        reply(200, response),
        events(b"event: response.completed\ndata: " + json.dumps(done).encode() + b"\n\n"),
    )
    async with AsyncOpenAI(config=_settings(openai_server)) as client:
        whole = await client.chat.completions.create(model="mine/m-large", messages=ASK)
        stream = await client.chat.completions.create(model="mine/m-large", messages=ASK, stream=True)
        assert len([chunk async for chunk in stream]) == 3
        answer = await client.responses.create(model="mine/m-large", input="hi")
        shown = await client.responses.create(model="mine/m-large", input="hi", stream=True)
        assert [event async for event in shown]
        plain = await client.chat.completions.create(model="mine/m-large", messages=ASK)
        text = await client.completions.create(model="mine/m-large", prompt="The quick")
        recorded = [
            each.meta.counts.get("tool_calls") for each in (whole, stream, answer, shown, plain, text)
        ]
        assert recorded == [2, 2, 1, 1, 0, None]
        assert [row.counts.get("tool_calls") for row in client.ledger.rows()] == recorded
        (total,) = client.ledger.rollup()
        assert total.tool_calls == 6


async def test_the_cost_of_a_call_without_a_response_is_unknown(openai_server: OpenAIServer) -> None:
    openai_server.script(hang, hang)
    async with AsyncOpenAI(config=_settings(openai_server), max_retries=0) as client:
        with pytest.raises(APITimeoutError):
            await client.chat.completions.create(model="mine/m-large", messages=ASK, timeout=0.1)
        with move_on_after(0.1):
            await client.chat.completions.create(model="mine/m-large", messages=ASK)
        rows = client.ledger.rows()
    assert [(row.status, row.cost_nano) for row in rows] == [("error", None), ("cancelled", None)]


async def test_the_cost_of_an_invalid_response_is_estimated(openai_server: OpenAIServer) -> None:
    openai_server.script(reply(200, b"<html>", {"content-type": "application/json"}))
    async with AsyncOpenAI(config=_settings(openai_server)) as client:
        with pytest.raises(APIResponseValidationError):
            await client.chat.completions.create(model="mine/m-large", messages=ASK)
        (row,) = client.ledger.rows()
    assert row.cost_nano
    assert row.cost_estimated


async def test_attempts_and_request_id_of_a_failure_are_recorded(openai_server: OpenAIServer) -> None:
    failing = reply(500, {"error": {"message": "no"}}, {"x-request-id": "req-err", "retry-after-ms": "1"})
    openai_server.script(failing, failing, failing)
    async with AsyncOpenAI(config=_settings(openai_server)) as client:
        with pytest.raises(InternalServerError):
            await client.chat.completions.create(model="mine/m-large", messages=ASK)
        (row,) = client.ledger.rows()
    assert (row.attempts, row.request_id, row.http_status, row.cost_nano) == (3, "req-err", 500, 0)


async def test_an_invalid_ledger_setting_raises_before_a_request_is_sent(
    openai_server: OpenAIServer,
) -> None:
    async with AsyncOpenAI(config=_settings(openai_server), ledger="sqlite://") as client:
        with pytest.raises(ConfigurationError, match="sqlite://"):
            await client.chat.completions.create(model="mine/m-large", messages=ASK)
    assert not openai_server.requests


async def test_the_first_call_is_recorded_even_if_it_is_cancelled(openai_server: OpenAIServer) -> None:
    async with AsyncOpenAI(config=_settings(openai_server)) as client:
        task = asyncio.create_task(client.chat.completions.create(model="mine/m-large", messages=ASK))
        while not openai_server.requests:
            await asyncio.sleep(0.001)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert len(client.ledger.rows()) == 1


async def test_a_custom_base_url_is_priced_by_model_name_which_the_cost_source_states(
    openai_server: OpenAIServer,
) -> None:
    async with AsyncOpenAI(base_url=openai_server.base_url, api_key="k") as client:
        known = await client.chat.completions.create(model="gpt-4.1", messages=ASK)
        unknown = await client.chat.completions.create(model="m-large", messages=ASK)
    assert known.meta.cost.total
    assert known.meta.cost.estimated
    assert "priced by model name; the endpoint is not known" in known.meta.cost.source
    assert unknown.meta.cost.total is None
    assert "no price" in unknown.meta.cost.source


async def test_with_base_url_model_names_are_sent_unchanged(
    openai_server: OpenAIServer, tmp_path: Path
) -> None:
    async with AsyncOpenAI(
        base_url=openai_server.base_url, api_key="sk-secret", ledger=str(tmp_path / "l")
    ) as client:
        for model in ("openai/gpt-4o", "local/demo", "auto", "plain"):
            answer = await client.chat.completions.create(model=model, messages=ASK)
            assert answer.meta.route.chosen == model
    assert [r.json["model"] for r in openai_server.requests] == [
        "openai/gpt-4o",
        "local/demo",
        "auto",
        "plain",
    ]
    assert openai_server.requests[0].headers["authorization"] == "Bearer sk-secret"
    assert b"sk-secret" not in (tmp_path / "l").read_bytes()


async def test_auto_chooses_the_cheapest_available_candidate(openai_server: OpenAIServer) -> None:
    prices = {
        "mine/m-large": PriceSettings(input=Decimal(2), output=Decimal(8)),
        "mine/m-small": PriceSettings(input=Decimal(1), output=Decimal(4)),
        "openai/gpt-4.1-nano": PriceSettings(input=Decimal(0), output=Decimal(0)),
    }
    candidates = ("openai/gpt-4.1-nano", "mine/m-large", "mine/m-small")
    settings = _settings(openai_server, prices=prices, candidates=candidates)
    async with AsyncOpenAI(config=settings) as client:
        answer = await client.chat.completions.create(model="auto", messages=ASK)
        verdicts = {c.route: c.verdict for c in answer.meta.route.candidates}
        assert verdicts == {
            "openai/gpt-4.1-nano": "unavailable",
            "mine/m-large": "left",
            "mine/m-small": "chosen",
        }
        assert openai_server.requests[0].json["model"] == "m-small"
        with pytest.raises(NoRouteError, match="max_cost_usd"):
            await client.chat.completions.create(model="auto", messages=ASK, policy=Policy(max_cost_usd=1e-9))
        with pytest.raises(ConfigurationError, match="model='auto'"):
            await client.chat.completions.create(model="mine/m-large", messages=ASK, policy=Policy())


async def test_estimates_learn_from_the_ledger_of_an_earlier_client(openai_server: OpenAIServer) -> None:
    settings = _settings(openai_server, candidates=("mine/m-small", "mine/m-large"))
    async with AsyncOpenAI(config=settings) as first:
        await first.chat.completions.create(model="mine/m-large", messages=ASK)
    async with AsyncOpenAI(config=settings, policy=Policy(minimize="latency", explore=0)) as second:
        answer = await second.chat.completions.create(model="auto", messages=ASK)
    evidence = {c.route: c.evidence for c in answer.meta.route.candidates}
    assert evidence == {"mine/m-small": 0, "mine/m-large": 1}
    assert answer.meta.route.chosen == "mine/m-large", "a known latency wins against an unknown one"


async def test_named_policies_are_used_and_unknown_names_raise(openai_server: OpenAIServer) -> None:
    settings = _settings(
        openai_server, policies={"cheap": {"minimize": "cost"}}, candidates=("mine/m-large",)
    )
    async with AsyncOpenAI(config=settings) as client:
        answer = await client.chat.completions.create(model="auto", messages=ASK, policy="cheap")
        assert answer.meta.route.policy == Policy(minimize="cost")
        with pytest.raises(ConfigurationError, match=r"no policy named 'fast'.*cheap"):
            await client.chat.completions.create(model="auto", messages=ASK, policy="fast")
        with pytest.raises(NotFoundError, match=r"unknown provider 'nobody'.*base_url="):
            await client.chat.completions.create(model="nobody/m", messages=ASK)
        with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
            await client.chat.completions.create(model="gpt-4.1", messages=ASK)
        assert [m.id async for m in await client.models.list(provider="mine")] == ["m-large", "m-small"]


async def test_unknown_keyword_arguments_raise() -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'temprature'.*extra_body"):
        await AsyncOpenAI().chat.completions.create(model="m", messages=ASK, temprature=1)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="unexpected keyword argument 'modle'"):
        AsyncOpenAI(modle="m")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="model is None"):
        await AsyncOpenAI().completions.create(model=None, prompt="")  # type: ignore[call-overload]


async def test_a_ledger_that_cannot_be_opened_does_not_fail_calls(
    openai_server: OpenAIServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    broken = str(tmp_path / "file" / "ledger.sqlite3")
    async with AsyncOpenAI(config=_settings(openai_server), ledger=broken) as client:
        for _ in range(2):
            answer = await client.chat.completions.create(model="mine/m-large", messages=ASK)
            assert answer.meta.status == "ok"
    warnings = [r.getMessage() for r in caplog.records if "ledger" in r.getMessage()]
    assert any("SPECCLIENT_LEDGER" in warning for warning in warnings)


def test_the_sync_client_gives_the_same_answers_and_records(openai_server: OpenAIServer) -> None:
    with OpenAI(config=_settings(openai_server)) as client:
        answer = client.chat.completions.create(model="mine/m-large", messages=ASK)
        with client.chat.completions.create(model="mine/m-large", messages=ASK, stream=True) as stream:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert answer.choices[0].message.content == text == TEXT
        assert isinstance(stream.meta, Call)
        assert stream.meta.cost == answer.meta.cost
        assert client.completions.create(model="mine/m-large", prompt="x").choices[0].text == TEXT
        assert [model.id for model in client.models.list(provider="mine")] == ["m-large", "m-small"]


@pytest.mark.anyio
async def test_configured_limits_pace_calls(openai_server: OpenAIServer, tmp_path: Path) -> None:
    file = tmp_path / "specclient.toml"
    file.write_text('[limits."openai/m"]\nconcurrent = 1\n')
    running = most = 0

    async def slow(received: Received, wire: Wire) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        await reply(200, {"choices": [{"message": {"role": "assistant", "content": "x"}}]})(received, wire)

    openai_server.script(*[slow] * 6)
    async with AsyncOpenAI(api_key="k", base_url=openai_server.base_url, config=file, ledger="off") as client:
        other = client.with_options(api_key="another account's")
        await asyncio.gather(*[client.chat.completions.create(model="m", messages=ASK) for _ in range(4)])
        assert most == 1
        both = [client.chat.completions.create(model="m", messages=ASK) for client in (client, other)]
        await asyncio.gather(*both)
        assert most == 2  # limits are kept per account
