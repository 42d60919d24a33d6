"""Remote verification: the output equals the target's greedy output token for token, for each server API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from typing import Any

import anyio
import pytest
from gateway_server import Served
from loopback_server import OpenAIServer, reply
from remote_servers import DRAFT, PROMPTS, TARGET, Scorer, drafting, fireworks, sglang, tgi, together
from specclient_local.api.backend import LocalBackend

from specclient import (
    APIResponseValidationError,
    AsyncOpenAI,
    InternalServerError,
    OpenAI,
    Settings,
    Strategy,
    UnsupportedParameterError,
)
from specclient.call.strategies.remote import draft_length
from specclient.config import PriceSettings

pytestmark = pytest.mark.anyio

MODEL = f"far/local/{TARGET}"
IDS = {"return_token_ids": True}
PRICES = {MODEL: PriceSettings(input=Decimal("0.1"), output=Decimal("0.4"))}


def remote(depth: int | None = None, draft: str = DRAFT) -> Strategy:
    return Strategy(kind="remote", draft=draft, depth=depth)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served(Settings.model_validate({"local": {"threads": 1}}), ledger="off") as running:
        yield running


def _client(
    base_url: str,
    form: str | None = "prompt_logprobs",
    *,
    kind: Any = AsyncOpenAI,
    ledger: str = "off",
    **providers: Any,
) -> Any:
    known = {} if form is None else {"capabilities": {"verification": form}}
    settings = {
        "providers": {"far": {"base_url": base_url, **known}, **providers},
        "prices": PRICES,
        "local": {"threads": 1, "device_cost_per_hour": 1},
    }
    return kind(config=Settings.model_validate(settings), ledger=ledger, max_retries=0)


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[AsyncOpenAI]:
    """One client for most tests, which run in separate event loops; the draft is loaded once."""
    made = _client(served.base_url)
    yield made
    anyio.run(made.close)


@pytest.fixture
async def recorded(served: Served, tmp_path: Any) -> AsyncIterator[AsyncOpenAI]:
    async with _client(served.base_url, ledger=str(tmp_path / "l.db")) as made:
        yield made


async def _alone(client: AsyncOpenAI, prompt: Any, **params: Any) -> Any:
    return await client.completions.create(
        model=MODEL, prompt=prompt, temperature=0, extra_body=IDS, **params
    )


_REFERENCES: dict[tuple[str, int], Any] = {}


async def _reference(client: AsyncOpenAI, prompt: str, max_tokens: int) -> Any:
    """Return the target's own answer; each is requested once."""
    if (prompt, max_tokens) not in _REFERENCES:
        _REFERENCES[prompt, max_tokens] = await _alone(client, prompt, max_tokens=max_tokens)
    return _REFERENCES[prompt, max_tokens]


def _same(answer: Any, reference: Any) -> None:
    mine, theirs = answer.choices[0], reference.choices[0]
    assert mine.token_ids == theirs.token_ids
    assert (mine.text, mine.finish_reason) == (theirs.text, theirs.finish_reason)
    assert answer.usage.completion_tokens == reference.usage.completion_tokens
    assert answer.usage.prompt_tokens == reference.usage.prompt_tokens


@pytest.mark.parametrize("depth", [1, 3, 5, None])
async def test_the_output_is_the_targets_greedy_output_token_for_token(
    client: AsyncOpenAI, depth: int | None
) -> None:
    accepted = drafted = 0
    for prompt in PROMPTS:
        reference = await _reference(client, prompt, 16)
        answer = await _alone(client, prompt, max_tokens=16, strategy=remote(depth))
        _same(answer, reference)
        counts = answer.meta.speculation
        assert counts.method == "remote"
        if counts.steps:
            assert 0 <= counts.accepted <= counts.drafted
            assert counts.acceptance_rate == counts.accepted / counts.drafted
            assert counts.mean_accepted_length == 1 + counts.accepted / counts.steps
            accepted, drafted = accepted + counts.accepted, drafted + counts.drafted
    assert drafted
    assert accepted / drafted > 0.15  # a lower acceptance rate would be a fault of the loop


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("depth", [1, 2, 3, 5, 8, None])
async def test_long_outputs_are_the_targets_greedy_output(client: AsyncOpenAI, depth: int | None) -> None:
    for prompt in [begin + more for begin in PROMPTS for more in ("", "\n", "    # ", "é", "return")]:
        for stop in (None, "\n\n", ["return", ":"]):
            reference = await _alone(client, prompt, max_tokens=96, stop=stop)
            answer = await _alone(client, prompt, max_tokens=96, stop=stop, strategy=remote(depth))
            _same(answer, reference)


async def test_a_draft_model_equal_to_the_target_is_always_accepted(client: AsyncOpenAI) -> None:
    answer = await _alone(client, PROMPTS[0], max_tokens=30, strategy=remote(4, draft=f"local/{TARGET}"))
    counts = answer.meta.speculation
    assert counts.acceptance_rate == 1.0
    assert counts.mean_accepted_length > 4
    assert set(counts.per_position) == {1.0}
    _same(answer, await _alone(client, PROMPTS[0], max_tokens=30))


@pytest.mark.parametrize("stop", ["\n", ["return", "):"], "if ", ["e", "el"]])
@pytest.mark.parametrize("depth", [5, None])
async def test_stop_strings_end_the_output_where_they_end_the_targets(
    client: AsyncOpenAI, stop: Any, depth: int | None
) -> None:
    for prompt in PROMPTS[:2]:
        reference = await _alone(client, prompt, max_tokens=24, stop=stop)
        answer = await _alone(client, prompt, max_tokens=24, stop=stop, strategy=remote(depth))
        _same(answer, reference)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, None])
async def test_max_tokens_limits_the_output(client: AsyncOpenAI, limit: int | None) -> None:
    more = {} if limit is None else {"max_tokens": limit}  # the API's default is 16
    for depth in (3, None):
        answer = await _alone(client, PROMPTS[1], **more, strategy=remote(depth))
        _same(answer, await _alone(client, PROMPTS[1], **more))
        assert answer.usage.completion_tokens == (limit or 16)


async def test_the_prompt_can_be_token_ids(client: AsyncOpenAI) -> None:
    first = await _alone(client, PROMPTS[3], max_tokens=24)
    ids = first.choices[0].prompt_token_ids
    _same(await _alone(client, ids, max_tokens=24, strategy=remote(3)), first)


async def test_a_stream_yields_text_as_it_is_verified(client: AsyncOpenAI) -> None:
    reference = await _alone(client, PROMPTS[0], max_tokens=32)
    stream = await _alone(
        client, PROMPTS[0], max_tokens=32, strategy=remote(4), stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = [chunk async for chunk in stream]
    texts = [chunk.choices[0].text for chunk in chunks if chunk.choices]
    assert "".join(texts) == reference.choices[0].text
    assert len([text for text in texts if text]) > 5
    ids = [token for chunk in chunks for choice in chunk.choices for token in choice.token_ids]
    assert ids == reference.choices[0].token_ids
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]].count("length") == 1
    assert chunks[-1].usage.completion_tokens == 32
    meta = stream.meta
    assert (meta.status, meta.speculation.method, meta.strategy) == ("ok", "remote", "remote")
    assert meta.ttft_s is not None
    assert meta.ttft_s < meta.latency_s


async def test_after_giving_up_a_stream_yields_the_targets_own_tokens(
    client: AsyncOpenAI, monkeypatch: Any
) -> None:
    monkeypatch.setattr(draft_length, "target_alone_is_faster", lambda *_, **__: True)
    for stop in (None, "return", "\n\n"):
        ask: dict[str, Any] = {"max_tokens": 60, "stop": stop}
        reference = await _alone(client, PROMPTS[3], **ask)
        stream = await _alone(client, PROMPTS[3], **ask, strategy=remote(), stream=True)
        chunks = [chunk async for chunk in stream]
        choices = [choice for chunk in chunks for choice in chunk.choices]
        assert "".join(choice.text for choice in choices) == reference.choices[0].text
        assert [token for choice in choices for token in choice.token_ids] == reference.choices[0].token_ids
        assert choices[-1].finish_reason == reference.choices[0].finish_reason
        if stop is None:
            assert "gave up after 3 rounds" in stream.meta.strategy_reason
            assert len([choice for choice in choices if choice.text]) > 20
        whole = await _alone(client, PROMPTS[3], **ask, strategy=remote())
        _same(whole, reference)


async def test_every_sub_call_is_recorded_and_the_call_costs_their_sum(recorded: AsyncOpenAI) -> None:
    answer = await _alone(recorded, PROMPTS[0], max_tokens=20, strategy=remote(4), tags={"run": "1"})
    meta = answer.meta
    rows = recorded.ledger.rows()
    assert len(rows) == len(meta.parts) > 6
    assert {row.id for row in rows} == {part.id for part in meta.parts}
    assert meta.id not in {row.id for row in rows}
    assert sum(row.cost_nano for row in rows) == meta.cost.nano
    assert sum(meta.cost.by_kind.values()) == meta.cost.total
    assert meta.cost.by_kind.keys() == {"input", "output", "engine"}
    assert {part.parent for part in meta.parts} == {meta.id}
    assert {part.strategy for part in meta.parts} == {"remote"}
    assert sum(row.prompt_tokens for row in rows) == meta.usage.prompt
    assert all(row.tags == {"run": "1"} for row in rows)
    assert "draft tokens accepted in" in meta.strategy_reason


def test_the_synchronous_client_verifies_drafts(served: Served) -> None:
    with _client(served.base_url, kind=OpenAI) as client:
        ask = {"model": MODEL, "prompt": PROMPTS[0], "max_tokens": 16, "temperature": 0}
        alone = client.completions.create(**ask)
        stream = client.completions.create(**ask, strategy=remote(3), stream=True)
        assert "".join(chunk.choices[0].text for chunk in stream) == alone.choices[0].text
        assert client.completions.create(**ask, strategy=remote(3)).choices[0].text == alone.choices[0].text


async def test_auto_verifies_only_if_the_endpoint_is_known_to_return_scores(served: Served) -> None:
    auto = Strategy(draft=DRAFT, depth=3)
    async with _client(served.base_url) as client:
        answer = await _alone(client, PROMPTS[0], max_tokens=8, strategy=auto)
        assert answer.meta.strategy == "remote"
        warm = await client.completions.create(model=MODEL, prompt="a", max_tokens=4, strategy=auto)
        assert warm.meta.strategy == "direct"
        assert "pass temperature=0" in warm.meta.strategy_reason
    async with _client(served.base_url, None) as client:
        answer = await _alone(client, PROMPTS[0], max_tokens=8, strategy=auto)
        assert (answer.meta.strategy, answer.meta.parts) == ("direct", ())


async def test_the_local_engine_can_be_the_target(client: AsyncOpenAI) -> None:
    ask: dict[str, Any] = {
        "model": f"local/{TARGET}",
        "prompt": PROMPTS[1],
        "max_tokens": 20,
        "temperature": 0,
    }
    alone = await client.completions.create(**ask)
    verified = await client.completions.create(**ask, strategy=remote(4))
    assert verified.choices[0].text == alone.choices[0].text
    assert verified.meta.speculation.accepted > 5
    predicted = await client.completions.create(
        **ask,
        strategy="prediction",
        extra_body={"prediction": {"type": "content", "content": alone.choices[0].text}},
    )
    assert predicted.choices[0].text == alone.choices[0].text
    assert predicted.meta.speculation.method == "prediction"
    assert predicted.meta.speculation.predicted_accepted > 10
    auto = await client.completions.create(**ask, strategy=Strategy(draft=DRAFT))
    assert auto.meta.strategy == "direct"
    assert "drafts by itself" in auto.meta.strategy_reason


REFUSED = [
    ({"temperature": 0.7}, "temperature"),
    ({"n": 2}, "n"),
    ({"logprobs": 1}, "logprobs"),
    ({"presence_penalty": 0.1}, "presence_penalty"),
    ({"logit_bias": {"5": 1}}, "logit_bias"),
    ({"echo": True}, "echo"),
    ({"extra_body": {"guided_regex": "a"}}, "guided_regex"),
    ({"prompt": ["a", "b"]}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"strategy": "remote"}, "strategy"),
]


@pytest.mark.parametrize(("changed", "param"), REFUSED)
async def test_parameters_that_cannot_be_verified_exactly_raise(
    recorded: AsyncOpenAI, changed: dict[str, Any], param: str
) -> None:
    ask = {"model": MODEL, "prompt": "a", "max_tokens": 4, "temperature": 0, "strategy": remote(2), **changed}
    with pytest.raises(UnsupportedParameterError, match="strategy 'remote' cannot be used") as caught:
        await recorded.completions.create(**ask)
    assert caught.value.param == param
    assert recorded.ledger.rows() == []


async def test_chats_and_servers_without_known_scores_raise(served: Served) -> None:
    async with _client(served.base_url) as client:
        with pytest.raises(UnsupportedParameterError, match=r"set template under \[providers\.far\]"):
            await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "a"}], temperature=0, strategy=remote()
            )
    async with _client(served.base_url, None) as client:
        with pytest.raises(UnsupportedParameterError, match="'far' is not known to return"):
            await _alone(client, "a", max_tokens=4, strategy=remote())


@pytest.fixture(scope="module")
def backend() -> Iterator[LocalBackend]:
    made = LocalBackend({"threads": 1})
    yield made
    anyio.run(made.aclose)


@pytest.fixture(scope="module")
def scorer(backend: LocalBackend) -> Scorer:
    return Scorer(backend)


FORMS = {
    "sglang": ("sglang", sglang),
    "fireworks": ("echo_last", fireworks),
    "fireworks, text without echo": ("echo_last", lambda s: fireworks(s, echoes_text=False)),
    "together": ("echo", together),
    "tgi": ("tgi", tgi),
}


@pytest.mark.parametrize("name", FORMS)
async def test_the_score_formats_of_other_servers(client: AsyncOpenAI, scorer: Scorer, name: str) -> None:
    form, behaviour = FORMS[name]
    accepted = 0
    with OpenAIServer() as server:
        server.script(*[behaviour(scorer)] * 2000)
        async with _client(server.base_url, form) as far:
            for prompt, depth in zip((PROMPTS[0], PROMPTS[3], PROMPTS[1]), (4, 3, None), strict=True):
                reference = await _reference(client, prompt, 20)
                answer = await far.completions.create(
                    model=MODEL, prompt=prompt, max_tokens=20, temperature=0, strategy=remote(depth)
                )
                assert answer.choices[0].text == reference.choices[0].text
                assert answer.choices[0].finish_reason == reference.choices[0].finish_reason
                accepted += answer.meta.speculation.accepted or 0
                assert all(part.usage.prompt is not None for part in answer.meta.parts)
    assert accepted > 10


async def test_our_own_server_can_be_verified_by_echo(served: Served) -> None:
    async with _client(served.base_url, "echo") as client:
        for prompt in PROMPTS[:4]:
            answer = await _alone(client, prompt, max_tokens=20, strategy=remote(4))
            _same(answer, await _alone(client, prompt, max_tokens=20))


async def test_a_draft_with_another_tokenizer_raises_and_auto_uses_the_target_alone(
    client: AsyncOpenAI, tmp_path_factory: Any
) -> None:

    from tiny_models import write_checkpoint

    folder = write_checkpoint(tmp_path_factory.mktemp("other"))
    with pytest.raises(UnsupportedParameterError, match="different tokenizers"):
        await _alone(client, PROMPTS[0], max_tokens=8, strategy=remote(3, draft=f"local/{folder}"))
    auto = await _alone(client, PROMPTS[0], max_tokens=8, strategy=Strategy(draft=f"local/{folder}"))
    _same(auto, await _alone(client, PROMPTS[0], max_tokens=8))
    stream = await _alone(
        client, PROMPTS[0], max_tokens=8, strategy=Strategy(draft=f"local/{folder}"), stream=True
    )
    assert "".join([chunk.choices[0].text async for chunk in stream]) == auto.choices[0].text
    assert "decoded by the target alone" in auto.meta.strategy_reason


@pytest.mark.parametrize("failing_at", [0, 2, 3, 5])
async def test_after_a_failed_draft_the_target_continues_alone(
    client: AsyncOpenAI, backend: LocalBackend, served: Served, failing_at: int
) -> None:
    out_of_order = reply(500, {"error": {"message": "out of order"}})
    reference = await _alone(client, PROMPTS[0], max_tokens=24)
    with OpenAIServer() as near:
        near.script(*[drafting(backend)] * failing_at, *[out_of_order] * 50)
        async with _client(served.base_url, near={"base_url": near.base_url}) as other:
            answer = await _alone(other, PROMPTS[0], max_tokens=24, strategy=remote(3, draft="near/d"))
    _same(answer, reference)
    assert "failed (InternalServerError)" in answer.meta.strategy_reason
    assert [part.status for part in answer.meta.parts].count("error") == 1


async def test_a_target_that_fails_midway_raises_and_keeps_the_rows_of_earlier_sub_calls(
    scorer: Scorer, tmp_path: Any
) -> None:
    with OpenAIServer() as server:
        server.script(*[sglang(scorer)] * 3, reply(500, {"error": {"message": "gone"}}))
        async with _client(server.base_url, "sglang", ledger=str(tmp_path / "l.db")) as client:
            with pytest.raises(InternalServerError, match="gone"):
                await client.completions.create(
                    model=MODEL, prompt=PROMPTS[0], max_tokens=40, temperature=0, strategy=remote(2)
                )
            rows = client.ledger.rows()
    assert [row.status for row in rows].count("error") == 1
    assert len([row for row in rows if row.status == "ok"]) >= 6


async def test_a_server_that_omits_the_declared_scores_raises(openai_server: OpenAIServer) -> None:
    for form, what in (
        ("prompt_logprobs", "no token_ids"),
        ("echo", "no token_ids and token_logprobs"),
        ("echo_last", "no token_ids and token_logprobs"),
    ):
        async with _client(openai_server.base_url, form) as client:
            with pytest.raises(APIResponseValidationError, match=what):
                await _alone(client, PROMPTS[0], max_tokens=8, strategy=remote(2))


async def test_closing_a_stream_stops_the_rounds(client: AsyncOpenAI, served: Served) -> None:
    stream = await _alone(client, PROMPTS[0], max_tokens=200, strategy=remote(3), stream=True)
    seen = [await anext(aiter(stream)) for _ in range(3)]
    await stream.close()
    assert all(chunk.choices for chunk in seen)
    assert stream.meta.status == "cancelled"
    assert len(stream.meta.parts) < 30
