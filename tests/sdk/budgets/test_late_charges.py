"""Budgets of batch jobs: reserved as a whole, charged as they are read, and never held for ever."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from specclient import AsyncOpenAI, Budget, BudgetExceededError, Settings
from specclient.budgets.accounts import BudgetStatus
from specclient.budgets.late_charges import JOB_LEASE_S, JobBounds, LateCharges
from specclient.types.call import Call
from specclient.types.inference_methods import CHAT
from specclient.types.request import PerCallOptions, Request
from specclient.types.route import Decision
from specclient.types.usage import Cost

pytestmark = pytest.mark.anyio


def client_of(folder: Path, *budgets: Budget) -> AsyncOpenAI:
    config = Settings.model_validate({"prices": {"mine/m": {"input": 1, "output": 10}}})
    return AsyncOpenAI(ledger=str(folder / "l.sqlite3"), budgets=list(budgets), config=config)


def bounds(late: LateCharges, models: Sequence[str] = ("m",), **tags: str) -> JobBounds:
    """Return the bounds of a job of lines with at most 1,000 tokens of an answer each."""
    job = JobBounds({})
    for model in models:
        params = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1000}
        request = Request(CHAT, f"mine/{model}", params, options=PerCallOptions(tags=tags))
        route = Decision(chosen=f"mine/{model}", provider="mine", model=model)
        line = late.line_bound(request, route, None)
        if line is not None:
            job.add(line)
    return job


def status(client: AsyncOpenAI) -> BudgetStatus:
    budgets = client.core.shared.budgets
    assert budgets is not None
    budgets.flush()
    return budgets.standings()[0]


async def test_a_job_that_nobody_reads_counts_as_spent_and_is_refunded_when_it_is_read(
    tmp_path: Path,
) -> None:
    async with client_of(tmp_path, Budget(name="b", usd=1)) as client:
        late = client.core.pipeline.late_charges
        assert late is not None
        await late.hold("job", bounds(late, ["m", "m"]))
        held = status(client)
        assert held.reserved >= 2 * 10_000_000
        budgets = client.core.shared.budgets
        assert budgets is not None
        budgets.now = lambda: datetime.now(UTC) + timedelta(seconds=JOB_LEASE_S + 1)
        lapsed = status(client)
        assert (lapsed.spent, lapsed.reserved) == (held.reserved, 0)
        late.release("job")
        late.release("job")
        assert (status(client).spent, status(client).reserved, status(client).calls) == (0, 0, 0)


async def test_budgets_that_do_not_count_a_job_reserve_nothing(tmp_path: Path) -> None:
    budgets = [Budget(name="b", usd=1, tag="team=x"), Budget(name="soft", usd=1, mode="soft")]
    async with client_of(tmp_path, *budgets) as client:
        late = client.core.pipeline.late_charges
        assert late is not None
        assert bounds(late, team="y").held == {}
        assert [each.budget.name for each in bounds(late, team="x").held] == ["b"]


async def test_a_strict_budget_refuses_a_job_with_a_line_of_unknown_price(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_of(tmp_path, Budget(name="b", usd=1, unpriced="refuse")) as client:
        late = client.core.pipeline.late_charges
        assert late is not None
        with pytest.raises(BudgetExceededError, match="no price is known for mine/odd"):
            await late.hold("job", bounds(late, ["m", "odd"]))
        assert status(client).reserved == 0
    async with client_of(tmp_path, Budget(name="lenient", usd=1)) as client:
        late = client.core.pipeline.late_charges
        assert late is not None
        with caplog.at_level(logging.WARNING, "specclient"):
            await late.hold("job", bounds(late, ["m", "odd"]))
        assert "budget 'lenient' counts calls of mine/odd as $0" in caplog.text
        late.release("job")
        assert status(client).reserved == 0


async def test_a_job_fits_into_what_is_left_or_is_refused_as_a_whole(tmp_path: Path) -> None:
    async with client_of(tmp_path, Budget(name="b", usd="0.025")) as client:
        late = client.core.pipeline.late_charges
        assert late is not None
        with pytest.raises(BudgetExceededError, match=r"this batch job \(3 lines\) of mine/m may take"):
            await late.hold("three", bounds(late, ["m"] * 3))
        await late.hold("two", bounds(late, ["m"] * 2))
        with pytest.raises(BudgetExceededError):
            await late.hold("one", bounds(late))
        late.release("two")
        await late.hold("one", bounds(late))


async def test_a_slow_database_charges_later_and_delays_the_reader_by_the_patience_alone(
    tmp_path: Path,
) -> None:
    async with client_of(tmp_path, Budget(name="b", usd=1)) as client:
        late, budgets = client.core.pipeline.late_charges, client.core.shared.budgets
        assert late is not None
        assert budgets is not None
        status(client)  # makes the database
        budgets.patience_s = 0.05
        route = Decision(chosen="mine/m", provider="mine", model="m")
        call = Call(
            id="c", started_at=datetime.now(UTC), operation="object", model="mine/m", route=route,
            status="ok", cost=Cost(Decimal("0.5")),
        )  # fmt: skip
        with closing(sqlite3.connect(tmp_path / "l.sqlite3", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            begun = time.monotonic()
            await late.charge("output", [(0, call)])
            assert time.monotonic() - begun < 1
            other.execute("ROLLBACK")
        assert status(client).spent == 500_000_000
