"""Fine-tuning jobs and containers are booked once, at a price with a source, or as unpriced."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from loopback_server import OpenAIServer, reply

from specclient import Budget, OpenAI, Provider, Settings
from specclient.ledger.ledger import Ledger
from specclient.ledger.row import LedgerRow

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


def job(status: str = "succeeded", trained: Any = 2_000_000, **given: Any) -> dict[str, Any]:
    return {
        "id": "ftjob-1", "object": "fine_tuning.job", "created_at": 1_795_000_000,
        "finished_at": 1_795_000_900, "model": "gpt-4.1-mini-2025-04-14", "status": status,
        "trained_tokens": trained, "result_files": [],
        "hyperparameters": {}, "organization_id": "o", "seed": 1, "training_file": "f", **given,
    }  # fmt: skip


def client_of(server: OpenAIServer, folder: Path, *, prices: Any = None, budgets: Any = None) -> OpenAI:
    mine = Provider(name="mine", base_url=server.base_url, key="k", price_provider="openai")
    config = Settings.model_validate({"default_provider": "mine", "prices": prices or {}})
    return OpenAI(providers=[mine], ledger=str(folder / "l.sqlite3"), config=config, budgets=budgets)


def rows(folder: Path) -> list[LedgerRow]:
    ledger = Ledger(str(folder / "l.sqlite3"))
    try:
        return ledger.rows()
    finally:
        ledger.close()


def test_a_training_is_one_row_by_its_tokens_however_often_it_is_read(
    server: OpenAIServer, tmp_path: Path
) -> None:
    page = {"object": "list", "data": [job()], "has_more": False}
    server.script(
        reply(200, job("running", None), JSON), reply(200, job(), JSON), reply(200, page, JSON),
        reply(200, job(), JSON),
    )  # fmt: skip
    with client_of(server, tmp_path) as client:
        client.fine_tuning.jobs.retrieve("ftjob-1")
        assert not rows(tmp_path)
        client.fine_tuning.jobs.retrieve("ftjob-1")
        list(client.fine_tuning.jobs.list())
    with client_of(server, tmp_path) as client:  # as after a restart
        client.fine_tuning.jobs.retrieve("ftjob-1")
        total = client.costs.report("operation").total
    (row,) = rows(tmp_path)
    assert (row.cost, row.operation, row.model) == (
        Decimal(10),
        "fine_tuning",
        "mine/gpt-4.1-mini-2025-04-14",
    )
    assert row.started_at.timestamp() == 1_795_000_900
    assert (total.cost, total.latency_p50_s) == (Decimal(10), None)


@pytest.mark.parametrize(
    ("given", "cost", "status"),
    [
        ({"trained": None, "method": {"type": "reinforcement"}}, None, "ok"),
        ({"trained": -5}, None, "ok"),
        ({"model": "gpt-99"}, None, "ok"),
        ({"status": "cancelled", "trained": 1_000_000}, Decimal(5), "cancelled"),
    ],
)
def test_what_is_not_known_is_unpriced(
    server: OpenAIServer, tmp_path: Path, given: Any, cost: Any, status: str
) -> None:
    server.script(reply(200, job(**given), JSON))
    with client_of(server, tmp_path) as client:
        client.fine_tuning.jobs.retrieve("ftjob-1")
    (row,) = rows(tmp_path)
    assert (row.cost, row.status) == (cost, status)


def test_a_job_that_failed_before_it_trained_is_not_booked(server: OpenAIServer, tmp_path: Path) -> None:
    server.script(reply(200, job("failed", None), JSON))
    with client_of(server, tmp_path) as client:
        client.fine_tuning.jobs.retrieve("ftjob-1")
    assert not rows(tmp_path)


def test_the_configuration_prices_a_training_and_a_budget_counts_it_once(
    server: OpenAIServer, tmp_path: Path
) -> None:
    prices = {"mine/gpt-99": {"units": {"trained_token": "0.000001"}}}
    server.script(*[reply(200, job(model="gpt-99"), JSON)] * 2)
    for _ in range(2):
        with client_of(server, tmp_path, prices=prices, budgets=[Budget(name="b", usd=9)]) as client:
            client.fine_tuning.jobs.retrieve("ftjob-1")
            budgets = client.core.shared.budgets
            assert budgets is not None
            (status,) = budgets.standings()
    assert (status.spent, status.calls) == (2 * 10**9, 1)
    assert [row.cost for row in rows(tmp_path)] == [Decimal(2)]


def test_an_old_training_is_charged_to_the_day_on_which_it_ended(
    server: OpenAIServer, tmp_path: Path
) -> None:
    server.script(reply(200, job(finished_at=1_700_000_000), JSON))
    with client_of(server, tmp_path, budgets=[Budget(name="b", usd=1, period="day")]) as client:
        client.fine_tuning.jobs.retrieve("ftjob-1")
        budgets = client.core.shared.budgets
        assert budgets is not None
        budgets.flush()
        assert [each.spent for each in budgets.standings()] == [0]
    with closing(sqlite3.connect(tmp_path / "l.sqlite3")) as database:
        found = database.execute("SELECT period, nano, calls FROM budget_spend").fetchall()
    assert found == [("2023-11-14", 10 * 10**9, 1)]


def test_a_container_in_streamed_bytes_is_booked_with_the_memory_that_the_answer_states(
    server: OpenAIServer, tmp_path: Path
) -> None:
    made = {"id": "cntr-1", "object": "container", "created_at": 1_795_000_000, "memory_limit": "4g"}
    server.script(reply(200, made, JSON), reply(200, b"no JSON", JSON))
    with client_of(server, tmp_path) as client:
        for _ in range(2):
            with client.containers.with_streaming_response.create(name="x") as response:
                response.read()
    assert [row.cost for row in rows(tmp_path)] == [Decimal("0.12")]
