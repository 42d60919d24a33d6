"""The prediction strategy: the caller's or a drafted prediction, its checks, benefit, counts and cost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback_server import OpenAIServer, events, hang, reset
from strategy_servers import ANSWER, answering, refusing, verifying

from specclient import (
    AsyncOpenAI,
    BadRequestError,
    ConfigurationError,
    DeadlineExceededError,
    NotFoundError,
    OpenAI,
    Policy,
    Settings,
    Strategy,
    UnsupportedParameterError,
)
from specclient.call.strategies.cost_benefit import PredictionHistory, worth_sending
from specclient.config import PriceSettings
from specclient.runtime import forks
from specclient.types.inference_methods import CHAT
from specclient.types.request import PerCallOptions, Request

pytestmark = pytest.mark.anyio

ASK = [{"role": "user", "content": "Say something about foxes."}]
GUESS = {"type": "content", "content": "The quick red fox jumps over the lazy cat."}
DRAFTED = Strategy(kind="prediction", draft="cheap/small")
PRICES = {
    "openai/big": PriceSettings(input=Decimal(2), output=Decimal(8)),
    "cheap/small": PriceSettings(input=Decimal("0.0375"), output=Decimal("0.15")),
}


@pytest.fixture
def cheap() -> Any:
    with OpenAIServer() as server:
        yield server


@pytest.fixture
async def client(
    openai_server: OpenAIServer, cheap: OpenAIServer, tmp_path: Any
) -> AsyncIterator[AsyncOpenAI]:
    made = _client(AsyncOpenAI, openai_server, cheap, tmp_path)
    async with made:
        yield made


def _client(kind: Any, target: OpenAIServer, cheap: OpenAIServer, tmp_path: Any, **known: Any) -> Any:
    providers = {"openai": {"base_url": target.base_url}, "cheap": {"base_url": cheap.base_url}}
    settings = Settings.model_validate({"providers": providers, "prices": PRICES})
    made = kind(config=settings, ledger=str(tmp_path / "l.db"), max_retries=0, api_key="k")
    _set_capabilities(made, prediction=True, prediction_models=(), rejected_billed=True, **known)
    return made


def _set_capabilities(client: Any, **known: Any) -> None:
    """Set capabilities of the target, so that a test does not depend on its preset."""
    from dataclasses import replace

    endpoints = client.core.pipeline.destinations.endpoints
    own = endpoints["openai"]
    endpoints["openai"] = replace(own, capabilities=replace(own.capabilities, **known), probed={})


def _rows(client: Any) -> list[Any]:
    return sorted(client.ledger.rows(), key=lambda row: row.started_at)


async def test_a_prediction_given_by_the_caller_is_verified_and_counted(
    client: AsyncOpenAI, openai_server: OpenAIServer
) -> None:
    openai_server.script(verifying())
    answer = await client.chat.completions.create(
        model="openai/big", messages=ASK, prediction=GUESS, strategy="prediction", temperature=0
    )
    assert answer.choices[0].message.content == ANSWER
    assert openai_server.requests[0].json["prediction"] == GUESS
    counts = answer.meta.speculation
    assert counts is not None
    assert (counts.method, counts.predicted_accepted, counts.predicted_rejected) == ("prediction", 7, 2)
    assert (counts.drafted, counts.accepted) == (None, None)
    assert answer.meta.strategy == "prediction"
    (row,) = _rows(client)
    assert (row.cost_nano, row.completion_tokens) == (answer.meta.cost.nano, 15)
    assert answer.meta.cost.total == Decimal(10 * 2 + 15 * 8) / 10**6
    (part,) = answer.meta.parts
    assert (part.id, part.parent, part.strategy) == (row.id, answer.meta.id, "prediction")


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_drafted_prediction_is_sent_and_every_sub_call_is_charged_once(
    client: AsyncOpenAI, openai_server: OpenAIServer, cheap: OpenAIServer, streamed: bool
) -> None:
    cheap.script(answering("The quick brown fox jumps over the lazy cat."))
    openai_server.script(verifying())
    create = client.chat.completions.create
    if streamed:
        stream = await create(
            model="openai/big", messages=ASK, strategy=DRAFTED, stream=True, max_tokens=50, tags={"a": "b"}
        )
        assert stream.meta.status == "open"
        chunks = [chunk async for chunk in stream]
        assert all(chunk.choices for chunk in chunks)  # no usage chunk, which was not requested
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        meta = stream.meta
        assert meta.ttft_s is not None
    else:
        answer = await create(
            model="openai/big", messages=ASK, strategy=DRAFTED, max_tokens=50, tags={"a": "b"}
        )
        text, meta = answer.choices[0].message.content, answer.meta
    assert text == ANSWER
    drafted = cheap.requests[0].json
    assert (drafted["messages"], drafted["max_tokens"], drafted["model"]) == (ASK, 50, "small")
    assert "stream" not in drafted
    sent = openai_server.requests[0].json["prediction"]
    assert sent == {"type": "content", "content": "The quick brown fox jumps over the lazy cat."}
    rows = _rows(client)
    assert [row.route for row in rows] == ["cheap/small", "openai/big"]
    assert all(row.tags == {"a": "b"} for row in rows)
    assert meta.cost.nano == sum(row.cost_nano for row in rows)
    assert sum(meta.cost.by_kind.values()) == meta.cost.total
    assert meta.usage.completion == sum(row.completion_tokens for row in rows)
    assert [part.id for part in meta.parts] == [row.id for row in rows]
    assert meta.latency_s >= sum(part.latency_s for part in meta.parts)
    assert (meta.status, meta.speculation.predicted_accepted) == ("ok", 8)
    assert "expected to be accepted" in meta.strategy_reason


def test_the_synchronous_client_drafts_a_prediction(
    openai_server: OpenAIServer, cheap: OpenAIServer, tmp_path: Any
) -> None:
    cheap.script(answering(ANSWER))
    openai_server.script(verifying())
    with _client(OpenAI, openai_server, cheap, tmp_path) as client:
        stream = client.chat.completions.create(
            model="openai/big", messages=ASK, strategy=DRAFTED, stream=True
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == ANSWER
        assert stream.meta.speculation.predicted_rejected == 0
        assert len(stream.meta.parts) == 2


@pytest.mark.parametrize("failure", [reset, refusing("no"), answering("")])
async def test_after_a_failed_draft_the_request_is_sent_without_a_prediction(
    client: AsyncOpenAI, openai_server: OpenAIServer, cheap: OpenAIServer, failure: Any
) -> None:
    cheap.script(failure)
    openai_server.script(verifying())
    answer = await client.chat.completions.create(model="openai/big", messages=ASK, strategy=DRAFTED)
    assert answer.choices[0].message.content == ANSWER
    assert "prediction" not in openai_server.requests[0].json
    assert "sent without a prediction: the draft cheap/small" in answer.meta.strategy_reason
    assert len(_rows(client)) == 2
    assert _rows(client)[0].status == ("ok" if failure.__qualname__.startswith("answering") else "error")


async def test_the_deadline_covers_all_sub_calls(
    client: AsyncOpenAI, openai_server: OpenAIServer, cheap: OpenAIServer
) -> None:
    cheap.script(hang)
    with pytest.raises(DeadlineExceededError, match=r"deadline_s=0\.3 is over"):
        await client.chat.completions.create(
            model="openai/big", messages=ASK, strategy=DRAFTED, deadline_s=0.3
        )
    assert openai_server.requests == []
    (row,) = _rows(client)
    assert (row.route, row.error) == ("cheap/small", "DeadlineExceededError")


async def test_the_draft_is_asked_for_the_same_owner(
    client: AsyncOpenAI, openai_server: OpenAIServer, cheap: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine keeps what it reports apart by owner."""
    cheap.script(answering(ANSWER))
    openai_server.script(verifying())
    pipeline, sent = client.core.pipeline, []
    send = pipeline.send

    async def noted(request: Request, *rest: Any) -> Any:
        sent.append((request.model, request.options.owner))
        return await send(request, *rest)

    monkeypatch.setattr(pipeline, "send", noted)
    options = PerCallOptions(owner="key")
    await pipeline.execute(Request(CHAT, "openai/big", {"messages": ASK}, strategy=DRAFTED, options=options))
    assert sent == [("cheap/small", "key"), ("openai/big", "key")]


async def test_an_unknown_draft_raises_before_any_request_is_sent(
    client: AsyncOpenAI, openai_server: OpenAIServer
) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        await client.chat.completions.create(
            model="openai/big", messages=ASK, strategy=Strategy(kind="prediction", draft="nowhere/x")
        )
    with pytest.raises(UnsupportedParameterError, match="needs a prediction"):
        await client.chat.completions.create(model="openai/big", messages=ASK, strategy="prediction")
    assert openai_server.requests == []
    assert _rows(client) == []


CONFLICTS = [
    ("n", 2),
    ("logprobs", True),
    ("presence_penalty", 0.5),
    ("frequency_penalty", 0.5),
    ("audio", {"voice": "alloy", "format": "wav"}),
    ("modalities", ["text", "audio"]),
    ("max_completion_tokens", 10),
    ("tools", [{"type": "function", "function": {"name": "f"}}]),
]


@pytest.mark.parametrize(("name", "value"), CONFLICTS)
async def test_a_conflicting_parameter_raises_or_with_drop_params_drops_the_prediction(
    client: AsyncOpenAI, openai_server: OpenAIServer, cheap: OpenAIServer, name: str, value: Any
) -> None:
    params: dict[str, Any] = {"model": "openai/big", "messages": ASK, "strategy": DRAFTED, name: value}
    with pytest.raises(UnsupportedParameterError, match=f"'prediction' together with '{name}'") as caught:
        await client.chat.completions.create(**params)
    assert caught.value.param == name
    assert isinstance(caught.value, BadRequestError)
    if name == "max_completion_tokens":
        assert "pass max_tokens" in str(caught.value)
    assert openai_server.requests == []
    assert cheap.requests == []
    openai_server.script(verifying())
    answer = await client.chat.completions.create(**params, drop_params=True)
    sent = openai_server.requests[0].json
    assert sent[name] == value
    assert "prediction" not in sent
    assert cheap.requests == []
    assert f"refuses together with '{name}'" in answer.meta.strategy_reason


async def test_default_values_of_conflicting_parameters_are_accepted(
    client: AsyncOpenAI, openai_server: OpenAIServer
) -> None:
    openai_server.script(verifying())
    await client.chat.completions.create(
        model="openai/big", messages=ASK, prediction=GUESS, strategy="prediction",
        n=1, logprobs=False, presence_penalty=0, frequency_penalty=-0.5, modalities=["text"], tools=[],
    )  # fmt: skip
    assert openai_server.requests[0].json["prediction"] == GUESS


async def test_a_prediction_refused_by_the_server_raises(
    client: AsyncOpenAI, openai_server: OpenAIServer
) -> None:
    openai_server.script(refusing())
    with pytest.raises(BadRequestError, match="Unrecognized"):
        await client.chat.completions.create(
            model="openai/big", messages=ASK, prediction=GUESS, strategy="prediction"
        )
    (row,) = _rows(client)
    assert (row.status, row.http_status, row.cost_nano) == ("error", 400, 0)


async def test_a_server_that_ignores_the_prediction_leaves_the_counts_unknown(
    client: AsyncOpenAI, openai_server: OpenAIServer
) -> None:
    openai_server.script(answering(ANSWER))
    answer = await client.chat.completions.create(
        model="openai/big", messages=ASK, prediction="The quick", strategy="prediction"
    )
    assert openai_server.requests[0].json["prediction"] == {"type": "content", "content": "The quick"}
    counts = answer.meta.speculation
    assert (counts.method, counts.predicted_accepted, counts.predicted_rejected) == ("prediction", None, None)


async def test_models_and_endpoints_without_predictions_raise(
    client: AsyncOpenAI, openai_server: OpenAIServer
) -> None:
    _set_capabilities(client, prediction_models=("gpt-4o", "gpt-4.1"))
    params: dict[str, Any] = {"model": "openai/big", "messages": ASK, "strategy": "prediction"}
    with pytest.raises(UnsupportedParameterError, match=r"begin with gpt-4o, gpt-4\.1"):
        await client.chat.completions.create(**params, prediction=GUESS)
    _set_capabilities(client, prediction_models=(), prediction=False)
    with pytest.raises(UnsupportedParameterError, match="'openai' does not verify"):
        await client.chat.completions.create(**params, prediction=GUESS)
    assert openai_server.requests == []
    answer = await client.chat.completions.create(**params, prediction=GUESS, drop_params=True)
    assert "prediction" not in openai_server.requests[0].json
    assert "sent without a prediction" in answer.meta.strategy_reason


async def test_text_completions_send_text_or_ids_as_speculation(
    client: AsyncOpenAI, openai_server: OpenAIServer, cheap: OpenAIServer
) -> None:
    with pytest.raises(UnsupportedParameterError, match="completion"):
        await client.completions.create(model="openai/big", prompt="Foxes", strategy=DRAFTED)
    _set_capabilities(client, speculation=True)
    cheap.script(answering(ANSWER))
    openai_server.script(verifying(), answering(ANSWER))
    answer = await client.completions.create(model="openai/big", prompt="Foxes", strategy=DRAFTED)
    assert cheap.requests[0].json["prompt"] == "Foxes"
    assert openai_server.requests[0].json["speculation"] == ANSWER
    assert answer.choices[0].text == ANSWER
    await client.completions.create(
        model="openai/big", prompt="Foxes", strategy="prediction", extra_body={"speculation": [1, 2, 3]}
    )
    assert openai_server.requests[1].json["speculation"] == [1, 2, 3]


async def test_auto_predicts_only_if_the_endpoint_is_known_to_support_it(
    client: AsyncOpenAI, openai_server: OpenAIServer, cheap: OpenAIServer
) -> None:
    create = client.chat.completions.create
    plain = await create(model="openai/big", messages=ASK, strategy="auto")
    assert (plain.meta.strategy, plain.meta.parts, plain.meta.parent) == ("direct", (), None)
    assert "neither draft nor prediction" in plain.meta.strategy_reason
    auto = Strategy(draft="cheap/small")
    cheap.script(answering(ANSWER))
    openai_server.script(verifying())
    assert (await create(model="openai/big", messages=ASK, strategy=auto)).meta.strategy == "prediction"
    _set_capabilities(client, prediction=None)
    unknown = await create(model="openai/big", messages=ASK, strategy=auto)
    assert unknown.meta.strategy == "direct"
    _set_capabilities(client, prediction=True)
    conflicting = await create(model="openai/big", messages=ASK, strategy=auto, n=2)
    assert conflicting.meta.strategy == "direct"
    assert len(cheap.requests) == 1
    assert len(_rows(client)) == 5


async def test_predictions_that_are_always_rejected_are_no_longer_sent(
    client: AsyncOpenAI, openai_server: OpenAIServer, cheap: OpenAIServer
) -> None:
    wrong = " ".join(f"word{i}" for i in range(200))
    cheap.script(*[answering(wrong)] * 3)
    openai_server.script(*[verifying()] * 3)
    for _ in range(3):
        last = await client.chat.completions.create(model="openai/big", messages=ASK, strategy=DRAFTED)
    assert ["prediction" in request.json for request in openai_server.requests] == [True, False, False]
    assert "sent without the answer of cheap/small" in last.meta.strategy_reason


@pytest.mark.parametrize("wanted", ["faster", 3, Strategy])
async def test_an_invalid_strategy_raises(client: AsyncOpenAI, wanted: Any) -> None:
    with pytest.raises(ConfigurationError, match="auto, direct, prediction, prefill, remote"):
        await client.chat.completions.create(model="openai/big", messages=ASK, strategy=wanted)


async def test_embeddings_and_streaming_responses_accept_no_strategy_and_raw_responses_do(
    client: AsyncOpenAI, openai_server: OpenAIServer
) -> None:
    with pytest.raises(UnsupportedParameterError, match=r"embeddings\.create takes no strategy"):
        await client.embeddings.create(model="openai/big", input="x", strategy="auto")
    with pytest.raises(UnsupportedParameterError, match="with_raw_response"):
        async with client.chat.completions.with_streaming_response.create(
            model="openai/big", messages=ASK, strategy="auto"
        ):
            pass
    openai_server.script(verifying())
    raw = await client.chat.completions.with_raw_response.create(
        model="openai/big", messages=ASK, prediction=GUESS, strategy="prediction"
    )
    assert raw.headers["x-request-id"] == "req-1"
    assert raw.parse().meta.strategy == "prediction"


async def test_a_stream_closed_early_is_recorded_as_cancelled(
    client: AsyncOpenAI, openai_server: OpenAIServer
) -> None:
    openai_server.script(verifying())
    stream = await client.chat.completions.create(
        model="openai/big", messages=ASK, prediction=GUESS, strategy="prediction", stream=True
    )
    await anext(aiter(stream))
    await stream.close()
    assert stream.meta.status == "cancelled"
    (row,) = _rows(client)
    assert row.status == "cancelled"


@given(
    tokens=st.integers(0, 10_000),
    acceptance=st.floats(0, 1),
    price=st.decimals("0", "0.001", places=9),
    second=st.none() | st.decimals("0", "1", places=4),
)
def test_the_benefit_is_monotone_in_acceptance_and_price(
    tokens: int, acceptance: float, price: Decimal, second: Decimal | None
) -> None:
    def send(**changed: Any) -> bool:
        params = {
            "acceptance": acceptance,
            "output_price": price,
            "rejected_billed": True,
            "second_usd": second,
        }
        return worth_sending(tokens, **{**params, **changed}).send

    if send():
        assert send(acceptance=min(1.0, acceptance + 0.1))
        assert send(output_price=price / 2)
        assert send(rejected_billed=False)
    if not send(rejected_billed=False):
        assert not send()
    assert send(rejected_billed=None) == send()


def test_a_prediction_is_sent_if_its_time_saved_outweighs_its_cost() -> None:
    dear = Decimal("0.00006")
    assert worth_sending(100, acceptance=0.9, output_price=dear, rejected_billed=True).send
    assert not worth_sending(100, acceptance=0.4, output_price=dear, rejected_billed=True).send
    assert worth_sending(100, acceptance=0.4, output_price=dear, rejected_billed=False).send
    assert worth_sending(100, acceptance=0.4, output_price=dear, second_usd=None).send
    assert not worth_sending(100, acceptance=0.9, output_price=dear, second_usd=Decimal(0)).send
    assert worth_sending(100, acceptance=1.0, output_price=dear, second_usd=Decimal(0)).send
    assert not worth_sending(100, acceptance=0.1, rejected_billed=False).send  # slower than no prediction
    assert not worth_sending(0, acceptance=1.0).send


def test_the_acceptance_history_decays_and_is_kept_per_pair() -> None:
    history = PredictionHistory()
    assert history.acceptance(("a", "b")) is None
    history.note(("a", "b"), 0, 500)
    low = history.acceptance(("a", "b"))
    for _ in range(30):
        history.note(("a", "b"), 500, 0)
    high = history.acceptance(("a", "b"))
    assert low is not None
    assert high is not None
    assert low < 0.1 < 0.9 < high
    assert history.acceptance(("a", "c")) is None


def test_a_forked_child_does_not_wait_for_the_lock_of_the_acceptance_history() -> None:
    history = PredictionHistory()
    assert id(history) in forks._live
    with history._lock:  # as a thread of the parent may hold it
        history.reset_after_fork()
        history.note(("a", "b"), 1, 0)
    assert history.acceptance(("a", "b")) is not None


def test_a_policy_sets_the_value_of_a_second() -> None:
    from specclient.call.strategies.prediction import _second_usd

    assert _second_usd(Policy(minimize="cost")) == 0
    assert _second_usd(Policy(minimize="latency")) is None


async def test_a_draft_longer_than_max_tokens_is_truncated(
    client: AsyncOpenAI, openai_server: OpenAIServer, cheap: OpenAIServer
) -> None:
    cheap.script(answering("word " * 200))
    openai_server.script(verifying())
    answer = await client.chat.completions.create(
        model="openai/big", messages=ASK, max_tokens=20, strategy=DRAFTED
    )
    assert openai_server.requests[0].json["prediction"]["content"].split() == ["word"] * 20
    assert "of 20 predicted tokens" in (answer.meta.strategy_reason or "")


@pytest.mark.parametrize("kind", ["prediction", "auto"])
async def test_an_invalid_prediction_is_sent_for_the_target_to_refuse(
    client: AsyncOpenAI, openai_server: OpenAIServer, kind: Any
) -> None:
    openai_server.script(refusing("Invalid type for 'prediction'"))
    with pytest.raises(BadRequestError, match="Invalid type for 'prediction'"):
        await client.chat.completions.create(
            model="openai/big",
            messages=ASK,
            prediction=5,
            strategy=kind,  # type: ignore[call-overload]
        )


async def test_an_empty_stream_ends(client: AsyncOpenAI, openai_server: OpenAIServer) -> None:
    openai_server.script(events(b"data: [DONE]\n\n"))
    stream = await client.chat.completions.create(
        model="openai/big", messages=ASK, prediction=GUESS, strategy="prediction", stream=True
    )
    assert [chunk async for chunk in stream] == []
    assert stream.meta.status == "ok"


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_strategy_of_a_policy_applies(
    client: AsyncOpenAI, openai_server: OpenAIServer, cheap: OpenAIServer, streamed: bool
) -> None:
    policy = Policy(minimize="latency", allow=("openai/big",), strategy=DRAFTED)
    routed: dict[str, Any] = {"model": "auto", "messages": ASK, "policy": policy, "stream": streamed}
    client = client.with_options(candidates=["openai/big"])
    openai_server.script(verifying())
    cheap.script(answering(GUESS["content"]))
    answer = await client.chat.completions.create(**routed)
    if streamed:
        async for _ in answer:
            pass
    assert answer.meta.strategy == "prediction", answer.meta.strategy_reason
    assert openai_server.requests[0].json["prediction"]["content"] == GUESS["content"]


async def test_the_strategy_of_a_call_overrides_that_of_its_policy(
    client: AsyncOpenAI, openai_server: OpenAIServer, cheap: OpenAIServer
) -> None:
    policy = Policy(minimize="latency", allow=("openai/big",), strategy=DRAFTED)
    client = client.with_options(candidates=["openai/big"])
    openai_server.script(answering(ANSWER))
    await client.chat.completions.create(model="auto", messages=ASK, policy=policy, strategy="direct")
    assert "prediction" not in openai_server.requests[0].json
    assert not cheap.requests


def test_a_configured_policy_may_name_a_strategy() -> None:
    tables = {"quick": {"strategy": "prediction", "draft": "cheap/small", "depth": 4}}
    policy = Settings.model_validate({"policies": tables}).policy_named("quick")
    assert policy.strategy == Strategy(kind="prediction", draft="cheap/small", depth=4)
    assert Settings.model_validate({"policies": {"p": {"draft": "a/b"}}}).policy_named(
        "p"
    ).strategy == Strategy(draft="a/b")
    with pytest.raises(ConfigurationError, match="strategy is 'guess'; it must be one of auto, direct"):
        Policy(strategy="guess")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"policy\.strategy is 3; it must be a Strategy"):
        Policy(strategy=3)  # type: ignore[arg-type]
