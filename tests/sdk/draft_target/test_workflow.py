"""The draft-target workflow over real sockets: requests, failures and costs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from loopback_server import OpenAIServer, Received, Wire, hang, reply

import specclient
from specclient import AsyncOpenAI, ConfigurationError, OpenAI
from specclient.draft_target import DEPTHS, DEPTHS_TOKENS, PAIRS, SEGMENT_TOKENS
from specclient.draft_target.workflow import VERIFY_PROMPT

pytestmark = pytest.mark.anyio

DRAFT, ANSWER = "The quick red fox", "The quick brown fox jumps"


def body(text: str | None, prompt: int = 100, completion: int = 10, **usage: object) -> dict:
    message = {"role": "assistant", "content": text}
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": counts | usage,
    }


@pytest.fixture
def config(openai_server: OpenAIServer, tmp_path: Path) -> Path:
    """``plain/…`` accepts no predictions; ``sure/…`` verifies them for models named ``big…``."""
    file = tmp_path / "specclient.toml"
    url = f'base_url = "{openai_server.base_url}"'
    file.write_text(
        f"[providers.plain]\n{url}\ncapabilities = {{ prediction = false }}\n"
        f"[providers.sure]\n{url}\n[providers.sure.capabilities]\nprediction = true\n"
        'prediction_models = ["big"]\nprediction_conflicts = ["tools", "n"]\n'
        '[prices."plain/small"]\ninput = 1\noutput = 2\n'
        '[prices."plain/large"]\ninput = 10\noutput = 20\n'
        '[prices."sure/big"]\ninput = 10\noutput = 20\n'
        '[pairs.mine]\ndraft = "plain/small"\ntarget = "plain/large"\n'
        '[pairs.cost]\ndraft = "plain/small"\ntarget = "sure/big"\n'
    )
    return file


@pytest.fixture
def client(config: Path) -> Iterator[OpenAI]:
    with OpenAI(config=config, max_retries=0) as client:
        yield client


def test_a_draft_is_sent_as_an_assistant_message(client: OpenAI, openai_server: OpenAIServer) -> None:
    openai_server.script(reply(200, body(DRAFT, 50, 8)), reply(200, body(ANSWER, 90, 10)))
    result = specclient.speculative_decode(
        "Say it.", pair="mine", task="code", client=client, temperature=0, tags={"team": "a"}, user="u"
    )
    first, second = (request.json for request in openai_server.requests)
    ask = {"role": "user", "content": "Say it."}
    assert first == {
        "model": "small",
        "messages": [ask],
        "temperature": 0,
        "max_tokens": DEPTHS["code"][1] * SEGMENT_TOKENS,
    }
    assert second == {
        "model": "large",
        "messages": [
            ask,
            {"role": "assistant", "content": DRAFT},
            {"role": "user", "content": VERIFY_PROMPT},
        ],
        "temperature": 0,
        "user": "u",
    }
    assert (result.output, result.draft.output, result.handed) == (ANSWER, DRAFT, "conversation")
    assert "plain/large is not known to verify predictions" in result.reason
    assert (result.draft.usage.completion, result.target.usage.prompt) == (8, 90)
    assert result.draft.cost == Decimal("0.000066")
    assert result.target.cost == Decimal("0.0011")
    assert result.cost == Decimal("0.001166")
    assert result.draft.latency_s + result.target.latency_s <= result.latency_s
    assert result.alone_latency_s == result.target.latency_s
    assert Decimal("0.0002") < result.alone_cost < result.target.cost  # without the draft's messages
    assert result.acceptance == 0.75
    speculation = result.speculation
    assert (speculation.method, speculation.drafted, speculation.accepted, speculation.source) == (
        "draft_target",
        4,
        3,
        "text",
    )
    assert result.target.call.tags == result.draft.call.tags == {"team": "a"}


def test_a_draft_is_sent_as_a_prediction_where_supported(client: OpenAI, openai_server: OpenAIServer) -> None:
    details = {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 1}
    answer = body(ANSWER, 40, 7, completion_tokens_details=details)
    openai_server.script(reply(200, body(DRAFT)), reply(200, answer))
    result = specclient.speculative_decode("Say it.", pair="cost", client=client)
    sent = openai_server.requests[1].json
    assert sent["prediction"] == {"type": "content", "content": DRAFT}
    assert [message["role"] for message in sent["messages"]] == ["user"]
    assert (result.handed, result.target.call.speculation.predicted_accepted) == ("prediction", 3)
    assert result.alone_latency_s is None
    assert result.alone_cost == Decimal("0.00052")  # 40 prompt tokens, 7 - 1 completion tokens
    assert result.speculation.method == "draft_target"  # not the target's own verification


@pytest.mark.parametrize(
    ("target", "params", "reason"),
    [
        ("sure/small", {}, "sure/small is not known to verify"),
        ("sure/big", {"n": 2}, "refuses a prediction together with n"),
        ("sure/big", {"extra_body": {"tools": [{"type": "x"}]}}, "together with tools"),
    ],
)
def test_unsupported_models_and_parameters_prevent_a_prediction(
    client: OpenAI, openai_server: OpenAIServer, target: str, params: dict, reason: str
) -> None:
    result = specclient.speculative_decode("x", pair="mine", target=target, client=client, **params)
    assert result.handed == "conversation"
    assert reason in result.reason
    assert "prediction" not in openai_server.requests[1].json


@pytest.mark.parametrize(
    ("draft", "behaviour", "error", "cost"),
    [
        ("plain/small", reply(404, {"error": {"message": "no such model"}}), "NotFoundError", Decimal(0)),
        ("plain/small", reply(200, body("  ")), None, Decimal("0.00012")),
        ("plain/small", reply(200, body(None)), None, Decimal("0.00012")),
        ("nobody/small", None, "NotFoundError", Decimal(0)),
        ("openai/gpt-4.1", None, "ConfigurationError", Decimal(0)),  # no key
    ],
)
def test_after_a_failed_draft_the_target_answers_alone(
    client: OpenAI, openai_server: OpenAIServer, draft: str, behaviour, error: str | None, cost: Decimal
) -> None:
    openai_server.script(*([behaviour] if behaviour else []), reply(200, body(ANSWER)))
    result = specclient.speculative_decode("Say it.", draft=draft, target="plain/large", client=client)
    assert openai_server.requests[-1].json["messages"] == [{"role": "user", "content": "Say it."}]
    assert (result.output, result.handed, result.error) == (ANSWER, "nothing", None)
    assert (type(result.draft.error).__name__ if result.draft.error else None) == error
    assert (error or "returned no text") in result.reason
    assert result.draft.cost == cost
    assert result.acceptance is None
    assert result.alone_cost == result.target.cost


def test_a_failed_target_raises(client: OpenAI, openai_server: OpenAIServer) -> None:
    openai_server.script(reply(200, body(DRAFT)), reply(400, {"error": {"message": "too long"}}))
    with pytest.raises(specclient.BadRequestError, match="too long"):
        specclient.speculative_decode("x", pair="mine", client=client)


def test_the_cost_of_an_interrupted_draft_is_unknown(client: OpenAI, openai_server: OpenAIServer) -> None:
    async def cut(received: Received, wire: Wire) -> None:
        wire.reset()

    openai_server.script(cut, reply(200, body(ANSWER)))
    result = specclient.speculative_decode("x", pair="mine", client=client)
    assert (result.output, result.draft.cost, result.cost) == (ANSWER, None, None)


def test_a_draft_gets_half_of_the_deadline(client: OpenAI, openai_server: OpenAIServer) -> None:
    openai_server.script(hang, reply(200, body(ANSWER)))
    result = specclient.speculative_decode("x", pair="mine", client=client, deadline_s=1.0)
    assert type(result.draft.error).__name__ == "DeadlineExceededError"
    assert result.output == ANSWER
    assert 0.5 <= result.latency_s < 1.0


@pytest.mark.parametrize(
    ("params", "limit"),
    [
        ({"depth": 2}, {"max_tokens": 64}),
        ({"depth": 2, "max_tokens": 16}, {"max_tokens": 16}),
        ({"depth": 2, "max_completion_tokens": 500}, {"max_completion_tokens": 64}),
        ({"task": "long_context"}, {"max_tokens": 96}),
        ({"task": "documents"}, {"max_tokens": 192}),
        ({}, {"max_tokens": 128}),
        ({"depth_tokens": 5}, {"max_tokens": 5}),
        ({"depth_tokens": 5, "max_completion_tokens": 4}, {"max_completion_tokens": 4}),
        ({"depth_tokens": "task"}, {"max_tokens": 4}),
        ({"depth_tokens": "task", "task": "documents"}, {"max_tokens": 6}),
        ({"depth_tokens": "task", "task": "code"}, {"max_tokens": 5}),
        ({"depth_tokens": "task", "task": "long_context"}, {"max_tokens": 3}),
    ],
)
def test_depth_limits_the_drafts_tokens(
    client: OpenAI, openai_server: OpenAIServer, params: dict, limit: dict
) -> None:
    specclient.speculative_decode("x", pair="mine", client=client, **params)
    first, second = (request.json for request in openai_server.requests)
    assert {name: value for name, value in first.items() if name.startswith("max")} == limit
    own = {name: value for name, value in params.items() if name.startswith("max")}
    assert {name: value for name, value in second.items() if name.startswith("max")} == own


@pytest.mark.parametrize(
    ("params", "lengths"),
    [({"depth": 2}, (2, 64)), ({"depth_tokens": 7}, (None, 7)), ({"depth_tokens": "task"}, (None, 4))],
)
def test_a_result_states_the_length_in_the_units_given(
    client: OpenAI, openai_server: OpenAIServer, params: dict, lengths: tuple
) -> None:
    result = specclient.speculative_decode("x", pair="mine", client=client, **params)
    assert (result.depth, result.depth_tokens) == lengths


def test_presets_in_tokens_are_those_of_tutorials() -> None:
    assert dict(DEPTHS_TOKENS) == {
        "chat": (3, 4),
        "documents": (5, 6),
        "code": (4, 5),
        "long_context": (2, 3),
    }


def test_messages_are_passed_to_both_models(client: OpenAI, openai_server: OpenAIServer) -> None:
    messages = ({"role": role, "content": role} for role in ("system", "user"))
    specclient.speculative_decode(messages, pair="mine", client=client)
    first, second = (request.json["messages"] for request in openai_server.requests)
    assert [message["role"] for message in first] == ["system", "user"]
    assert [message["role"] for message in second] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pair": "best"}, "'best'.*cost, quality, balanced, mine"),
        ({"pair": None}, "None.*balanced"),
        ({"task": "poems"}, "'poems'.*chat, documents, code, long_context"),
        ({"depth": 0}, "depth is 0.*32 tokens"),
        ({"depth": True}, "depth is True"),
        ({"depth_tokens": 0}, "depth_tokens is 0.*1 or more, or 'task'"),
        ({"depth_tokens": True}, "depth_tokens is True"),
        ({"depth_tokens": 4.0}, "depth_tokens is 4.0"),
        ({"depth_tokens": "code"}, "depth_tokens is 'code'"),
        ({"depth": 1, "depth_tokens": 4}, "depth is 1 and depth_tokens is 4; give .* not both"),
        ({"draft": ""}, "draft is ''"),
        ({"concurrency": 0}, "concurrency is 0"),
    ],
)
def test_an_invalid_argument_is_named(
    client: OpenAI, openai_server: OpenAIServer, given: dict, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        specclient.speculative_decode_many(["x"], client=client, **given)
    assert not openai_server.requests


@pytest.mark.parametrize("name", ["stream", "model", "strategy", "nonsense"])
def test_an_unsupported_parameter_is_named_before_any_request(
    client: OpenAI, openai_server: OpenAIServer, name: str
) -> None:
    with pytest.raises(TypeError, match=name):
        specclient.speculative_decode("x", client=client, **{name: "x"})
    assert not openai_server.requests


def test_all_presets_use_one_draft_model() -> None:
    assert {pair.draft for pair in PAIRS.values()} == {"deepseek/deepseek-chat"}
    assert [pair.target.partition("/")[0] for pair in PAIRS.values()] == ["gemini", "openai", "anthropic"]
    with pytest.raises(TypeError):
        PAIRS["mine"] = PAIRS["cost"]


async def test_many_prompts_keep_their_order_and_concurrency_limit(
    config: Path, openai_server: OpenAIServer
) -> None:
    running = most = 0

    async def slow(received: Received, wire: Wire) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        number = int(received.json["messages"][0]["content"])
        await asyncio.sleep(0.03 if number % 2 else 0.001)
        running -= 1
        if number == 3:
            await reply(400, {"error": {"message": f"not {number}"}})(received, wire)
        else:
            await reply(200, body(f"{received.json['model']} {number}"))(received, wire)

    openai_server.script(*[slow] * 100)
    async with AsyncOpenAI(config=config, max_retries=0) as client:
        prompts = (str(i) for i in range(12))
        results = await specclient.aspeculative_decode_many(
            prompts, concurrency=3, pair="mine", client=client
        )
    assert most == 3
    assert [r.output for r in results] == [None if i == 3 else f"large {i}" for i in range(12)]
    assert isinstance(results[3].error, specclient.BadRequestError)
    assert results[3].cost == Decimal(0)
    assert [r.error for i, r in enumerate(results) if i != 3] == [None] * 11


async def test_without_a_client_one_is_created_and_closed(
    config: Path, openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCLIENT_CONFIG", str(config))
    openai_server.script(reply(200, body(DRAFT)), reply(200, body(ANSWER)))
    result = await specclient.aspeculative_decode("x", pair="mine")
    assert result.output == ANSWER
    assert await asyncio.to_thread(openai_server.wait_left, openai_server.connections)
