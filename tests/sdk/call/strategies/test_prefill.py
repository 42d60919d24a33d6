"""The prefill strategy: the request forms of servers, the rule to accept a draft, and one joined text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from typing import Any

import pytest
from loopback_server import Behaviour, OpenAIServer, reply
from strategy_servers import ANSWER, answering, continuing

from specclient import AsyncOpenAI, Settings, Strategy, UnsupportedParameterError
from specclient.config import PriceSettings

pytestmark = pytest.mark.anyio

ASK = [{"role": "user", "content": "Say something about foxes."}]
BEGUN = "The quick brown"
CONFIDENT = {"content": [{"token": "x", "logprob": -0.01}, {"token": "y", "logprob": -0.1}]}
UNCERTAIN = {"content": [{"token": "x", "logprob": -0.01}, {"token": "y", "logprob": -3.0}]}
DRAFTED = Strategy(kind="prefill", draft="near/small", depth=8)
PRICES = {
    name: PriceSettings(input=Decimal("0.3"), output=Decimal("1.2")) for name in ("far/big", "near/small")
}


@pytest.fixture
def near() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


def _client(far: OpenAIServer, near: OpenAIServer, form: str | None, tmp_path: Any) -> AsyncOpenAI:
    known = {} if form is None else {"capabilities": {"prefill": form}}
    providers = {"far": {"base_url": far.base_url, **known}, "near": {"base_url": near.base_url}}
    settings = Settings.model_validate({"providers": providers, "prices": PRICES})
    return AsyncOpenAI(config=settings, ledger=str(tmp_path / "l.db"), max_retries=0)


@pytest.fixture
async def client(
    openai_server: OpenAIServer, near: OpenAIServer, tmp_path: Any
) -> AsyncIterator[AsyncOpenAI]:
    async with _client(openai_server, near, "assistant", tmp_path) as made:
        yield made


FORMS = [
    ("assistant", {}, {}),
    ("prefix", {"prefix": True}, {}),
    ("continue_final_message", {}, {"continue_final_message": True, "add_generation_prompt": False}),
]


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize(("form", "turn", "body"), FORMS)
async def test_the_callers_prefill_is_sent_in_the_form_of_each_server(
    openai_server: OpenAIServer,
    near: OpenAIServer,
    tmp_path: Any,
    form: str,
    turn: Any,
    body: Any,
    echo: bool,
) -> None:
    openai_server.script(*[continuing(echo=echo)] * 2)
    ask: dict[str, Any] = {
        "model": "far/big",
        "messages": [*ASK, {"role": "assistant", "content": BEGUN}],
        "strategy": "prefill",
    }
    async with _client(openai_server, near, form, tmp_path) as client:
        answer = await client.chat.completions.create(**ask)
        stream = await client.chat.completions.create(**ask, stream=True)
        texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert answer.choices[0].message.content == ANSWER
    assert "".join(texts) == ANSWER
    sent = openai_server.requests[0].json
    assert sent["messages"] == [*ASK, {"role": "assistant", "content": BEGUN, **turn}]
    assert {name: sent.get(name) for name in body} == body
    assert ("continue_final_message" in sent) == bool(body)
    counts = answer.meta.speculation
    assert (counts.method, counts.drafted) == ("prefill", None)
    assert (counts.accepted, counts.acceptance_rate) == (None, None)
    assert len(answer.meta.parts) == 1


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_confident_draft_is_committed(
    client: AsyncOpenAI, openai_server: OpenAIServer, near: OpenAIServer, streamed: bool
) -> None:
    near.script(answering("The quick brown ", logprobs=CONFIDENT, finish_reason="length"))
    openai_server.script(continuing())
    ask: dict[str, Any] = {"model": "far/big", "messages": ASK, "strategy": DRAFTED, "max_tokens": 20}
    if streamed:
        stream = await client.chat.completions.create(**ask, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        meta = stream.meta
    else:
        answer = await client.chat.completions.create(**ask)
        text, meta = answer.choices[0].message.content or "", answer.meta
    assert text == ANSWER
    drafted, sent = near.requests[0].json, openai_server.requests[0].json
    assert (drafted["max_tokens"], drafted["logprobs"]) == (8, True)
    assert sent["messages"][-1] == {"role": "assistant", "content": "The quick brown"}  # no trailing blank
    assert sent["max_tokens"] == 20 - 3
    assert "committed 3 tokens of near/small: the draft's mean probability is 0.95" in meta.strategy_reason
    rows = client.ledger.rows()
    assert sum(row.cost_nano for row in rows) == meta.cost.nano
    assert len(rows) == len(meta.parts) == 2
    assert {(row.purpose, row.pair) for row in rows} == {
        (purpose, "far/big+near/small") for purpose in ("draft", "verify")
    }


async def test_an_uncertain_draft_is_rejected(
    client: AsyncOpenAI, openai_server: OpenAIServer, near: OpenAIServer
) -> None:
    near.script(answering("A slow grey", logprobs=UNCERTAIN))
    openai_server.script(answering(ANSWER))
    answer = await client.chat.completions.create(model="far/big", messages=ASK, strategy=DRAFTED)
    assert answer.choices[0].message.content == ANSWER
    assert openai_server.requests[0].json["messages"] == ASK
    assert "rejected 3 tokens of near/small" in answer.meta.strategy_reason
    assert answer.meta.speculation is None


@pytest.mark.parametrize(("drafted", "committed"), [("The quick brown", True), ("A slow grey", False)])
async def test_a_draft_without_log_probabilities_is_compared_with_the_target(
    client: AsyncOpenAI, openai_server: OpenAIServer, near: OpenAIServer, drafted: str, committed: bool
) -> None:
    no_logprobs = reply(400, {"error": {"message": "logprobs are not supported"}})
    near.script(no_logprobs, answering(drafted))
    openai_server.script(
        answering("The quick brown fox jumps"), continuing() if committed else answering(ANSWER)
    )
    answer = await client.chat.completions.create(model="far/big", messages=ASK, strategy=DRAFTED)
    assert answer.choices[0].message.content == ANSWER
    assert openai_server.requests[0].json["max_tokens"] == 8
    assert (openai_server.requests[1].json["messages"] != ASK) == committed
    assert len(answer.meta.parts) == 4
    assert answer.meta.parts[0].status == "error"


@pytest.mark.parametrize("failure", [reply(500, {"error": {"message": "no"}}), answering("")])
async def test_after_a_failed_draft_the_request_is_sent_without_a_prefill(
    client: AsyncOpenAI, openai_server: OpenAIServer, near: OpenAIServer, failure: Any
) -> None:
    near.script(failure)
    openai_server.script(answering(ANSWER))
    answer = await client.chat.completions.create(model="far/big", messages=ASK, strategy=DRAFTED)
    assert answer.choices[0].message.content == ANSWER
    assert openai_server.requests[0].json["messages"] == ASK
    assert "sent without a beginning" in answer.meta.strategy_reason


async def test_a_draft_longer_than_its_depth_is_not_committed(
    client: AsyncOpenAI, openai_server: OpenAIServer, near: OpenAIServer
) -> None:
    near.script(answering(ANSWER, logprobs=CONFIDENT))
    openai_server.script(answering(ANSWER))
    answer = await client.chat.completions.create(model="far/big", messages=ASK, strategy=DRAFTED)
    assert openai_server.requests[0].json["messages"] == ASK
    assert "returned no text of at most 8 tokens" in answer.meta.strategy_reason


async def test_plain_completions_continue_the_prompt(
    openai_server: OpenAIServer, near: OpenAIServer, tmp_path: Any
) -> None:
    near.script(answering(BEGUN, logprobs={"token_logprobs": [-0.01, -0.02], "tokens": ["a", "b"]}))
    openai_server.script(continuing())
    async with _client(openai_server, near, None, tmp_path) as client:
        answer = await client.completions.create(model="far/big", prompt="Foxes|", strategy=DRAFTED)
    assert openai_server.requests[0].json["prompt"] == f"Foxes|{BEGUN}"
    assert openai_server.requests[0].json["max_tokens"] == 16 - 3
    assert answer.choices[0].text == ANSWER


async def test_requests_that_cannot_be_prefilled_raise_or_are_sent_directly(
    openai_server: OpenAIServer, near: OpenAIServer, tmp_path: Any
) -> None:
    ask: dict[str, Any] = {"model": "far/big", "messages": ASK}
    for form, match in ((None, "not known to continue"), ("completions", r"use completions\.create")):
        async with _client(openai_server, near, form, tmp_path) as client:
            with pytest.raises(UnsupportedParameterError, match=match):
                await client.chat.completions.create(**ask, strategy=DRAFTED)
            answer = await client.chat.completions.create(**ask, strategy=DRAFTED, drop_params=True)
            assert "sent without a beginning" in answer.meta.strategy_reason
    async with _client(openai_server, near, "assistant", tmp_path) as client:
        with pytest.raises(UnsupportedParameterError, match="needs the beginning of an answer"):
            await client.chat.completions.create(**ask, strategy="prefill")
        for name, value in (("tools", [{"type": "function"}]), ("response_format", {"type": "json_object"})):
            with pytest.raises(UnsupportedParameterError, match=name) as caught:
                await client.chat.completions.create(**ask, strategy=DRAFTED, **{name: value})
            assert caught.value.param == name
        auto = await client.chat.completions.create(**ask, strategy=Strategy(draft="near/small"))
        assert auto.meta.strategy == "direct"  # auto never commits unverified text
    assert near.requests == []


async def test_text_that_resembles_an_echo_is_kept_if_the_server_sends_none(
    openai_server: OpenAIServer, near: OpenAIServer, tmp_path: Any
) -> None:
    confident = {"tokens": [")"], "token_logprobs": [-0.01], "top_logprobs": None, "text_offset": [0]}
    near.script(*[_completion(")", logprobs=confident)] * 2)
    openai_server.script(_completion(")\n"))
    ask: dict[str, Any] = {"model": "far/big", "prompt": "f(g(1", "strategy": DRAFTED}
    async with _client(openai_server, near, "completions", tmp_path) as client:
        answer = await client.completions.create(**ask)
        with pytest.raises(UnsupportedParameterError, match="'echo'"):
            await client.completions.create(**ask, echo=True)
    assert openai_server.requests[0].json["prompt"] == "f(g(1)"
    assert answer.choices[0].text == "))\n"


async def test_anthropics_continuation_is_joined_to_the_prefill(near: OpenAIServer, tmp_path: Any) -> None:
    text = {"type": "text", "text": "*Title**"}
    usage = {"input_tokens": 1, "output_tokens": 3}
    with OpenAIServer() as server:
        server.script(
            reply(200, {"id": "m", "type": "message", "role": "assistant", "model": "claude",
                        "content": [text], "stop_reason": "end_turn", "usage": usage})
        )  # fmt: skip
        known = {"prefill": "assistant"}
        far = {"base_url": server.base_url.removesuffix("/v1"), "api_key": "k", "capabilities": known}
        settings = Settings.model_validate({"providers": {"anthropic": far}, "ledger": "off"})
        async with AsyncOpenAI(config=settings, max_retries=0) as client:
            answer = await client.chat.completions.create(
                model="anthropic/claude-3-5-haiku-latest",
                messages=[*ASK, {"role": "assistant", "content": "*"}],  # type: ignore[list-item]
                max_tokens=9,
                strategy="prefill",
            )
    assert answer.choices[0].message.content == "**Title**"


def _completion(text: str, logprobs: Any = None) -> Behaviour:
    choice = {"index": 0, "text": text, "finish_reason": "length", "logprobs": logprobs}
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    return reply(200, {"id": "c", "object": "text_completion", "created": 1, "model": "m",
                       "choices": [choice], "usage": usage})  # fmt: skip
