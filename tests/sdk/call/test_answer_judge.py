"""The answer judge: a sample of routed answers is scored in the background, within a budget for the day."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from failover_servers import ASK, Kit, answering, kit, status
from loopback_server import Behaviour

from specclient.call.answer_judge import judged_score
from specclient.call.request_params import draft_request
from specclient.types import inference_methods
from specclient.types.call_score import CallScore
from specclient.types.policy import Policy
from specclient.types.request import PerCallOptions, Request

pytestmark = pytest.mark.anyio
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
PICTURE = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "what is it?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        ],
    }
]


@asynccontextmanager
async def judged(folder: Path, *judgements: Behaviour, price: float = 1, **judge: Any) -> AsyncIterator[Kit]:
    """A kit whose first server answers, and whose second one judges."""
    tables: dict[str, Any] = {
        "judge": {"model": "s1/judge", "share": 1.0, **judge},
        "prices": {"s0/*": {"input": 1, "output": 1}, "s1/*": {"input": price, "output": price}},
    }
    async with kit(folder, routes=["s0/m"], settings=tables) as made:
        made.servers[0].script(*[answering("Paris, of course.")] * 12)
        made.servers[1].script(*judgements)
        yield made


async def scores(made: Kit) -> list[CallScore]:
    """Wait for the judgements; return what is stored."""
    while made.client.core.shared.judgements:
        await asyncio.sleep(0.005)
    ledger = made.client.ledger
    assert await asyncio.to_thread(ledger.flush, 30)
    return ledger.scores(LONG_AGO, 100)


async def ask(made: Kit, **more: Any) -> Any:
    return await made.client.chat.completions.create(**{"model": "auto", "messages": ASK, **more})


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_is_scored_as_feedback_of_the_judge(tmp_path: Path, stream: bool) -> None:
    async with judged(tmp_path, answering("It is right, so: 8"), weight=0.25) as made:
        answer = await ask(made, stream=stream)
        if stream:
            async for _ in answer:
                pass
        (score,) = await scores(made)
        assert (score.call_id, score.route, score.giver) == (answer.meta.id, "s0/m", "judge")
        assert (score.score, score.weight) == (0.8, 0.25)
        learned = made.client.core.shared.qualities.of("s0/m", None, None)
        assert learned is not None
        assert learned.scores == 0.25
        (asked,) = (request.json for request in made.servers[1].requests)
        assert ASK[0]["content"] in asked["messages"][1]["content"]
        assert "Paris, of course." in asked["messages"][1]["content"]
        rows = {row.route: row for row in await made.rows()}
        assert rows["s1/judge"].tags == {"quality_judge": "1"}
        assert rows["s0/m"].tags == {}
        assert (rows["s1/judge"].cost_nano or 0) > 0
        assert answer.meta.cost.nano == rows["s0/m"].cost_nano, "the judge is not a part of the call's cost"


async def test_a_slow_or_failing_judge_neither_delays_nor_fails_a_call(tmp_path: Path, caplog) -> None:
    behaviours = [
        answering("9", after_s=1.0),
        status(500),
        answering("good"),
        answering("7 of 10"),
        status(404),
    ]
    async with judged(tmp_path, *behaviours) as made:
        begun = time.monotonic()
        for _ in behaviours:
            assert (await ask(made)).choices[0].message.content == "Paris, of course."
        assert made.client.core.shared.judgements
        waited = time.monotonic() - begun
        assert sorted(each.score for each in await scores(made)) == [0.7, 0.9]
        assert time.monotonic() - begun >= 1.0 > waited
    assert caplog.text.count("answers go on unjudged") == 1
    assert "could not be judged" not in caplog.text


async def test_judging_stops_when_its_budget_of_the_day_is_used(tmp_path: Path) -> None:
    """A judgement may cost $0.0512 and more; the five words of one cost less."""
    async with judged(
        tmp_path, *[answering("one two three four 5")] * 9, price=100, usd_per_day="0.1", max_tokens=512
    ) as made:
        for _ in range(9):
            await ask(made)
            await scores(made)
        spent = sum(row.cost_nano or 0 for row in await made.rows() if row.tags)
        assert 0 < len(await scores(made)) < 9
        assert len(made.servers[1].requests) == len(await scores(made))
        assert 0 < spent <= 100_000_000


async def test_a_call_with_the_judges_tag_is_judged_and_not_counted_in_its_budget(tmp_path: Path) -> None:
    """A tag is the caller's to write, so it neither uses the judge's dollars up nor avoids a judgement."""
    async with judged(tmp_path, answering("9"), answering("8")) as made:
        for tags in ({"quality_judge": "1"}, {}):
            await ask(made, tags=tags)
            await scores(made)
        assert [each.score for each in await scores(made)] == [0.9, 0.8]
        (account,) = made.client.core.shared.budgets.standings()
        judgements = [row for row in await made.rows() if row.route == "s1/judge"]
        assert account.calls == len(judgements) == 2
        assert account.spent == sum(row.cost_nano or 0 for row in judgements) > 0


@pytest.mark.parametrize("by_judge", [False, True])
def test_requests_to_a_draft_count_where_their_call_counts(by_judge: bool) -> None:
    options = PerCallOptions(tags={"quality_judge": "1"}, by_judge=by_judge)
    request = Request(inference_methods.CHAT, "s1/judge", {"messages": ASK}, options=options)
    assert draft_request(request, "s1/draft").options.by_judge is by_judge


async def test_a_judge_without_a_price_is_not_called(tmp_path: Path, caplog) -> None:
    async with kit(
        tmp_path, routes=["s0/m"], settings={"judge": {"model": "s1/j", "share": 1}, "prices": {}}
    ) as made:
        made.servers[0].script(answering("x"))
        await ask(made)
        assert await scores(made) == []
        assert not made.servers[1].requests
    assert "the judge s1/j is not asked: " in caplog.text


@pytest.mark.parametrize(
    "call",
    [
        {"policy": Policy(allow=["s0/"])},
        {"policy": Policy(deny=["s1/"])},
        {"policy": Policy(local_only=True)},
        {"messages": PICTURE},
        {"model": "s0/m"},
    ],
    ids=["allow", "deny", "local_only", "picture", "named"],
)
async def test_what_may_not_go_to_the_judge_is_not_judged(tmp_path: Path, call: dict[str, Any]) -> None:
    async with judged(tmp_path, answering("9")) as made:
        await ask(made, **call)
        assert await scores(made) == []
        assert not made.servers[1].requests


async def test_only_the_configured_share_is_judged(tmp_path: Path) -> None:
    async with judged(tmp_path, *[answering("9")] * 12, share=0.5) as made:
        made.client.pipeline._judge._dice.seed(3)
        for _ in range(12):
            await ask(made)
            await scores(made)
        assert 2 < len(await scores(made)) < 10


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("8", 0.8), ("Correct.\n\n**10**", 1.0), ("Score: 7.5.", 0.75), ("0", 0.0), ("8/10", 0.8),
        ("Score: **8** / 10.", 0.8), ("7.5 out of 10", 0.75), ("5 (of 10)", 0.5), ("10/10", 1.0),
        ("12/10", None), ("8 or so", None), ("11", None), ("-3", None), ("", None), ("fine", None),
        ("1.2.3", None),
    ],
)  # fmt: skip
async def test_the_score_is_the_number_at_the_end(text: str, score: float | None) -> None:
    assert judged_score(text) == score


@pytest.mark.parametrize("copied", [False, True])
async def test_a_judgement_in_progress_ends_with_the_client_and_is_recorded(
    tmp_path: Path, copied: bool
) -> None:
    async with judged(tmp_path, answering("7", after_s=5.0)) as made:
        client = made.client.with_options(timeout=60) if copied else made.client
        await client.chat.completions.create(model="auto", messages=ASK)
        while not made.servers[1].requests:
            await asyncio.sleep(0.005)
        began = time.monotonic()
        await made.client.close()
        assert time.monotonic() - began < 2
        assert not made.client.core.shared.judgements
        rows = {row.route: row.status for row in await made.rows()}
        assert rows == {"s0/m": "ok", "s1/judge": "cancelled"}
        budgets = made.client.core.shared.budgets
        assert budgets is not None
        (account,) = budgets.standings()
        assert (account.reserved, account.calls, account.assumed) == (0, 1, 1)
