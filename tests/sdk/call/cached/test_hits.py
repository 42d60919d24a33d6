"""The records of calls that the cache answered: the ledger, budgets, routing and permits."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
from cache_upstream import ASK, MESSAGES, NumberedUpstream
from gateway_server import upstream_settings

from specclient import AsyncOpenAI, Budget, CacheOptions, NotFoundError
from specclient.types.inference_methods import CHAT
from specclient.types.request import PerCallOptions, Request

pytestmark = pytest.mark.anyio


async def test_a_hit_is_a_row_of_cost_0_that_states_what_it_saved(client):
    for stream in (False, True):
        for _ in range(3):
            answer = await client.chat.completions.create(
                **ASK, stream=stream, tags={"team": "red"}, session="s"
            )
            if stream:
                assert [chunk async for chunk in answer]
            else:
                hit = answer.meta
    assert (hit.cost.total, hit.cost.source) == (Decimal(0), "response cache")
    assert hit.saved == Decimal("0.000022")  # 3 tokens at $2 and 2 at $8, per million
    assert (hit.usage.prompt, hit.usage.completion) == (0, 0)
    assert (hit.route.chosen, hit.served_model, hit.counts) == ("mine/m-large", "m-large", {"tool_calls": 0})
    client.ledger.flush()
    rows = client.ledger.rows()
    assert [row.cached for row in rows] == [False, True, True] * 2
    assert [row.cost_nano for row in rows] == [22_000, 0, 0] * 2
    assert [row.saved_nano for row in rows] == [None, 22_000, 22_000] * 2
    assert {(row.session, row.tags["team"], row.status) for row in rows} == {("s", "red", "ok")}
    report = await client.costs.report("model")
    total = report.total
    assert (total.calls, total.cached_calls, total.cost, total.cache_saved) == (
        6, 4, Decimal("0.000044"), Decimal("0.000088"),
    )  # fmt: skip
    assert report.to_json()["total"]["cache_saved"] == "0.000088000"


async def test_what_an_unpriced_answer_saved_is_unknown(client):
    for _ in range(2):
        answer = await client.chat.completions.create(**{**ASK, "model": "mine/unpriced"})
    assert (answer.meta.cost.total, answer.meta.saved) == (Decimal(0), None)


async def test_a_replay_that_the_caller_leaves_is_recorded_as_cancelled(client):
    stream = await client.chat.completions.create(**ASK, stream=True)
    assert [chunk async for chunk in stream]
    stream = await client.chat.completions.create(**ASK, stream=True)
    assert stream.meta.status == "open"
    await stream.close()
    assert stream.meta.status == "cancelled"
    client.ledger.flush()
    assert [row.status for row in client.ledger.rows()] == ["ok", "cancelled"]


async def test_hits_are_not_charged_to_budgets(upstream, tables):
    config = upstream_settings(upstream, **tables)
    budget = Budget(name="all", tokens=40)
    async with AsyncOpenAI(config=config, budgets=[budget]) as client:
        for _ in range(20):
            await client.chat.completions.create(**ASK, max_tokens=9)
        (standing,) = client.core.shared.ensure_budgets().standings()
    assert len(upstream.requests) == 1
    assert standing.spent == 5


def learned(client: AsyncOpenAI) -> int:
    """Return the number of calls that the router has learned from."""
    estimates = client.core.shared.estimates
    estimates.load_history()
    estimates.of("mine/m-large")
    return estimates._routes["mine/m-large"].calls


async def test_hits_teach_the_router_nothing(client):
    await client.chat.completions.create(**ASK)
    assert learned(client) == 1
    for _ in range(5):
        await client.chat.completions.create(**ASK)
    assert learned(client) == 1
    client.ledger.flush()
    assert len(client.ledger.rows()) == 6
    async with AsyncOpenAI(config=client.settings) as later:  # which reads the ledger's rows
        assert learned(later) == 1


async def test_a_routed_call_is_answered_without_a_decision(client, upstream):
    first = await client.chat.completions.create(**{**ASK, "model": "auto"})
    second = await client.chat.completions.create(**{**ASK, "model": "auto"})
    assert second == first
    assert second.meta.route.chosen == first.meta.route.chosen
    assert "response cache" in second.meta.route.reason
    assert len(upstream.requests) == 1
    # The model by its name is another call, although it gave the answer.
    await client.chat.completions.create(**{**ASK, "model": first.meta.route.chosen})
    assert len(upstream.requests) == 2


async def test_a_call_of_the_same_model_elsewhere_is_not_answered(client, upstream, tables):
    await client.chat.completions.create(**ASK)
    with NumberedUpstream() as elsewhere:
        async with AsyncOpenAI(config=upstream_settings(elsewhere, **tables)) as other:
            assert not (await other.chat.completions.create(**ASK)).meta.cached
        assert len(elsewhere.requests) == 1


async def test_copies_of_a_client_share_cache_and_calls_in_flight(slow_client, slow):
    copy = slow_client.with_options(timeout=30)
    answers = await asyncio.gather(
        slow_client.chat.completions.create(**ASK), copy.chat.completions.create(**ASK)
    )
    assert answers[0] == answers[1]
    assert len(slow.requests) == 1


class NoPermit:
    """Permits nothing."""

    def check(self, provider: str, model: str) -> None:
        raise NotFoundError(f"{provider}/{model} may not be used")

    def usable(self, routes: tuple[str, ...]) -> tuple[str, ...]:
        return ()


async def test_an_answer_is_given_to_those_alone_who_may_make_the_call(client, upstream):
    await client.chat.completions.create(**ASK)
    options = PerCallOptions(cache=CacheOptions(), permit=NoPermit())
    request = Request(CHAT, ASK["model"], {"messages": MESSAGES, "temperature": 0}, options=options)
    with pytest.raises(NotFoundError, match="may not be used"):
        await client.pipeline.execute(request)
    assert len(upstream.requests) == 1
