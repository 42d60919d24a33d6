"""Targets with missing or invalid scores: the output is the target's, or an error is raised."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from loopback_server import OpenAIServer, events
from remote_servers import DRAFT, PROMPTS, Scorer, together, vllm
from specclient_local.api.backend import LocalBackend

from specclient import APIResponseValidationError, AsyncOpenAI, RateLimitError, Settings, Strategy
from specclient.call.strategies.remote import draft_length
from specclient.call.strategies.remote.echo_logprobs import parse_echo
from specclient.call.strategies.remote.scoring import ScoringRequest
from specclient.types.completion import Completion

pytestmark = pytest.mark.anyio

PROMPT, MOST = PROMPTS[0], 14


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    made = LocalBackend({"threads": 1})
    yield Scorer(made)
    anyio.run(made.aclose)


def _client(server: OpenAIServer, form: str = "prompt_logprobs") -> AsyncOpenAI:
    far = {"base_url": server.base_url, "capabilities": {"verification": form}}
    settings = {"providers": {"far": far}, "local": {"threads": 1}, "ledger": "off"}
    return AsyncOpenAI(config=Settings.model_validate(settings), max_retries=0)


async def _answer(scorer: Scorer, change: Any, *, depth: int | None = 3, **more: Any) -> tuple[Any, int]:
    """Return the answer over a server whose responses ``change`` modifies, and its number of requests."""
    params = {"prompt": PROMPT, "max_tokens": MOST, "temperature": 0, **more}
    with OpenAIServer() as server:
        server.script(*[vllm(scorer, change)] * 60)
        async with _client(server) as client:
            answer = await client.completions.create(
                model="far/m",
                **params,
                extra_body={"return_token_ids": True},
                strategy=Strategy(kind="remote", draft=DRAFT, depth=depth),
            )
        return answer, len(server.requests)


async def _alone(scorer: Scorer, prompt: Any = PROMPT, count: int = MOST, stop: Any = None) -> Any:
    scored = await scorer.score(prompt, count, 1, stop)
    decoded = await scorer.score(scored["ids"], 0, 1)
    return scored["text"][len(decoded["text"]) :], scored["new"], scored["finish"]


def _output(answer: Any) -> Any:
    choice = answer.choices[0]
    return choice.text, choice.token_ids, choice.finish_reason


def rows(change: Callable[[dict[str, Any]], Any]) -> Any:
    """Return a change of every prompt score."""

    def run(_: int, request: Any, choice: Any) -> None:
        for entry in choice["prompt_logprobs"] or ():
            if entry:
                change(entry)

    return run


def field(name: str, value: Any) -> Any:
    return rows(lambda entry: [row.update({name: value}) for row in entry.values()])


def choice(at: int = 1, **fields: Any) -> Any:
    """Return a change of fields of the choice, from request number ``at`` on."""

    def run(number: int, _: Any, choice: Any) -> None:
        if number >= at:
            choice.update(fields)

    return run


HARMLESS = {
    "no rank": rows(lambda entry: [row.pop("rank") for row in entry.values()]),
    "a rank of null": field("rank", None),
    "every rank 1": field("rank", 1),
    "a rank as text": field("rank", "1"),
    "a log-probability of null": field("logprob", None),
    "no text of tokens": field("decoded_token", None),
    "a number as the text of tokens": field("decoded_token", 5),
    "a wrong text of tokens": field("decoded_token", "zzz"),
    "an alternative that is no id": rows(lambda entry: entry.update(other={"rank": 2})),
    "ids without text": choice(text=None),
    "no finish_reason": choice(finish_reason=None),
}


@pytest.mark.parametrize("name", HARMLESS)
async def test_missing_details_do_not_change_the_output(scorer: Scorer, name: str) -> None:
    answer, _ = await _answer(scorer, HARMLESS[name])
    assert _output(answer) == await _alone(scorer)


UNREADABLE = {
    "no scores": (choice(prompt_logprobs=None), "no prompt_logprobs"),
    "scores of too few": (choice(prompt_logprobs=[None]), "no prompt_logprobs"),
    "scores of other tokens": (
        rows(lambda entry: [entry.update({f"t{key}": entry.pop(key)}) for key in list(entry)]),
        "has no entry for token",
    ),
    "no ids": (choice(2, token_ids=None), "no token_ids"),
    "ids that are none": (choice(2, token_ids=[True]), "no token_ids"),
    "text without ids": (choice(2, token_ids=[]), "new text without its tokens"),
    "more than requested": (choice(2, token_ids=[5] * 30), "30 new tokens where 1 were requested"),
}


@pytest.mark.parametrize("name", UNREADABLE)
async def test_unusable_responses_raise(scorer: Scorer, name: str) -> None:
    change, match = UNREADABLE[name]
    with pytest.raises(APIResponseValidationError, match=match):
        await _answer(scorer, change)


async def test_a_target_that_returns_no_new_token_ends_the_answer(scorer: Scorer) -> None:
    answer, request_count = await _answer(scorer, choice(2, token_ids=[], text="", finish_reason="length"))
    text, ids, finish = _output(answer)
    alone = await _alone(scorer)
    assert finish == "length"
    assert ids
    assert ids == alone[1][: len(ids)]
    assert alone[0].startswith(text)
    assert request_count < 10


async def test_a_rate_limit_error_midway_is_raised(scorer: Scorer) -> None:
    def change(number: int, *_: Any) -> Any:
        return (429, {"error": {"message": "slow down"}}) if number == 3 else None

    with pytest.raises(RateLimitError, match="slow down"):
        await _answer(scorer, change)


async def test_a_target_that_refuses_a_longer_draft_continues_alone(scorer: Scorer) -> None:
    def change(number: int, request: Any, _: Any) -> Any:
        full = number > 2 and request.get("prompt_logprobs")
        return (400, {"error": {"message": "the context is full"}}) if full else None

    answer, request_count = await _answer(scorer, change)
    assert _output(answer) == await _alone(scorer)
    assert request_count == 4
    assert "the rest was decoded by the target alone: it refused a draft" in answer.meta.strategy_reason
    assert "the context is full" in answer.meta.strategy_reason


@pytest.mark.parametrize("stop", ["\n", "Return", "urn", ["ion of", "\n    R"]])
async def test_a_stop_string_begun_in_the_rounds_ends_the_text_of_the_target_alone(
    scorer: Scorer, monkeypatch: Any, stop: Any
) -> None:
    for given_up_after in range(1, 5):
        monkeypatch.setattr(draft_length, "_MIN_ROUNDS", given_up_after)
        monkeypatch.setattr(draft_length, "target_alone_is_faster", lambda *_, **__: True)
        answer, _ = await _answer(scorer, lambda *_: None, depth=None, stop=stop, max_tokens=30)
        assert _output(answer) == await _alone(scorer, count=30, stop=stop)


async def test_a_prompt_that_ends_amid_a_character_gives_the_targets_output(scorer: Scorer) -> None:
    whole = (await scorer.score("s = '\U0001f642日", 0, 1))["ids"]
    for size in range(4, len(whole) + 1):
        answer, _ = await _answer(scorer, lambda *_: None, prompt=whole[:size], max_tokens=8)
        assert _output(answer) == await _alone(scorer, whole[:size], 8)


async def test_sub_calls_do_not_send_the_idempotency_key(scorer: Scorer) -> None:
    with OpenAIServer() as server:
        server.script(*[vllm(scorer)] * 60)
        async with _client(server) as client:
            await client.completions.create(
                model="far/m", prompt=PROMPT, max_tokens=8, temperature=0,
                extra_headers={"Idempotency-Key": "k", "x-mine": "1"},
                strategy=Strategy(kind="remote", draft=DRAFT, depth=2),
            )  # fmt: skip
    assert len(server.requests) > 2
    assert all("idempotency-key" not in request.headers for request in server.requests)
    assert {request.headers["x-mine"] for request in server.requests} == {"1"}


async def test_chunks_of_a_stream_have_one_id(scorer: Scorer) -> None:
    count = 0

    def change(number: int, request: Any, choice: Any) -> Any:
        nonlocal count
        count = number
        body = {"id": f"cmpl-{number}", "object": "text_completion", "created": number, "model": "m"}
        return 200, {**body, "choices": [choice]}

    with OpenAIServer() as server:
        server.script(*[vllm(scorer, change)] * 60)
        async with _client(server) as client:
            stream = await client.completions.create(
                model="far/m", prompt=PROMPT, max_tokens=8, temperature=0, stream=True,
                strategy=Strategy(kind="remote", draft=DRAFT, depth=2),
            )  # fmt: skip
            chunks = [chunk async for chunk in stream]
    assert count > 2
    assert {chunk.id for chunk in chunks} == {"cmpl-1"}


async def test_a_stream_of_the_target_without_a_finish_reason_is_an_error(
    scorer: Scorer, monkeypatch: Any
) -> None:
    monkeypatch.setattr(draft_length, "_MIN_ROUNDS", 1)
    monkeypatch.setattr(draft_length, "target_alone_is_faster", lambda *_, **__: True)
    choice = {"index": 0, "text": "x", "finish_reason": None, "token_ids": [87]}
    chunk = {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
    cut = events(b"data: " + json.dumps(chunk).encode() + b"\n\n", b"data: [DONE]\n\n")
    scored = vllm(scorer)

    async def target(received: Any, wire: Any) -> None:
        await (cut if received.json.get("stream") else scored)(received, wire)

    with OpenAIServer() as server:
        server.script(*[target] * 60)
        async with _client(server) as client:
            stream = await client.completions.create(
                model="far/m", prompt=PROMPT, max_tokens=40, temperature=0, stream=True,
                strategy=Strategy(kind="remote", draft=DRAFT),
            )  # fmt: skip
            with pytest.raises(APIResponseValidationError, match="ended without a finish reason"):
                async for _ in stream:
                    pass
    assert sum(bool(request.json.get("stream")) for request in server.requests) == 1


def _echo(tokens: list[int], values: list[float | None], new: int) -> Completion:
    logprobs = {"token_ids": tokens, "tokens": ["t"] * len(tokens), "token_logprobs": values}
    choice = {"index": 0, "text": "t" * len(tokens), "logprobs": logprobs, "finish_reason": "length"}
    usage = {"prompt_tokens": 1, "completion_tokens": new, "total_tokens": 1 + new}
    body = {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
    return Completion.construct(**body, usage=usage)


def test_an_echo_longer_than_the_request_decides_no_draft_token() -> None:
    sure = [None, -0.01, -0.01, -0.01, -0.01]
    seen = parse_echo(_echo([1, 2, 3, 4, 5], sure, 1), ScoringRequest((1, 2), "tt", (3,), "t"))
    assert seen.draft_tokens == ()  # token 4 is between the draft and the new token
    seen = parse_echo(_echo([1, 2, 3, 4], sure[:4], 1), ScoringRequest((1, 2), "tt"))
    assert seen.prompt == (1, 2, 3)
    seen = parse_echo(
        _echo([1, 2, 3, 4], [None, -0.01, math.nan, -0.01], 1), ScoringRequest((1, 2), "tt", (3,), "t")
    )
    assert [scored.is_greedy for scored in seen.draft_tokens] == [None]


async def test_a_draft_with_more_text_than_tokens_gives_the_targets_output(
    scorer: Scorer, monkeypatch: Any
) -> None:
    """A draft server that omits the id of the last token, so that the ids cover less than the text."""
    from specclient.call.strategies.remote.draft_client import DraftClient

    proposed = DraftClient.propose

    async def shorter(self: DraftClient, before: Any, depth: int) -> Any:
        ids, text = await proposed(self, before, depth)
        return ids[:-1], text

    monkeypatch.setattr(DraftClient, "propose", shorter)
    with OpenAIServer() as server:
        server.script(*[together(scorer)] * 100)
        async with _client(server, "echo") as client:
            answer = await client.completions.create(
                model="far/m", prompt=PROMPT, max_tokens=MOST, temperature=0,
                strategy=Strategy(kind="remote", draft=DRAFT, depth=3),
            )  # fmt: skip
    assert answer.choices[0].text == (await _alone(scorer))[0]
