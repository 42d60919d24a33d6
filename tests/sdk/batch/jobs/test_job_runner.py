"""Batch jobs of vendors: sent once, collected after restarts, and every line booked once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from batch_vendor import BatchVendor

from specclient import APIConnectionError, AsyncOpenAI, Budget, ConfigurationError, OpenAI, Provider, Settings
from specclient.batch import BatchSummary, run_jobs
from specclient.batch.jobs import vendor_apis
from specclient.ledger.ledger import Ledger
from specclient.ledger.row import LedgerRow

HALF = Decimal("0.001125")


@pytest.fixture
def vendor() -> Iterator[BatchVendor]:
    with BatchVendor() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def options(vendor: BatchVendor, folder: Path, kind: str = "openai") -> dict[str, Any]:
    mine = Provider(name="mine", base_url=vendor.base_url, key="k", dialect=kind, price_provider=kind)
    settings = Settings.model_validate({"default_provider": "mine"})
    return {"providers": [mine], "ledger": str(folder / "l.sqlite3"), "config": settings, "max_retries": 0}


def run(
    vendor: BatchVendor, folder: Path, *, kind: str = "openai", model: str | None = "mine/gpt-5", **given: Any
) -> BatchSummary:
    async def inner() -> BatchSummary:
        async with AsyncOpenAI(**options(vendor, folder, kind)) as client:
            return await run_jobs(
                folder / "in.jsonl", folder / "out.jsonl", client=client, model=model, poll_s=0.01, **given
            )

    return asyncio.run(inner())


def write(folder: Path, prompts: list[Any]) -> None:
    lines = [{"prompt": each} if isinstance(each, str) else each for each in prompts]
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def rows(folder: Path) -> list[LedgerRow]:
    ledger = Ledger(str(folder / "l.sqlite3"))
    try:
        return ledger.rows()
    finally:
        ledger.close()


@pytest.mark.parametrize(
    ("kind", "model", "cost"), [("openai", "gpt-5", HALF), ("anthropic", "claude-sonnet-4-5", 2 * HALF)]
)
def test_lines_are_answered_and_booked_at_the_batch_price(
    vendor: BatchVendor, folder: Path, kind: str, model: str, cost: Decimal
) -> None:
    body = {"messages": [{"role": "user", "content": "own"}], "model": "x"}
    openai = {"custom_id": "mine", "method": "POST", "url": "/v1/chat/completions", "body": body}
    write(folder, ["a", {"id": 7, "prompt": "b"}, openai, "expire", 5])
    summary = run(vendor, folder, kind=kind, model=f"mine/{model}", tags={"team": "x"})
    assert (summary.answered, summary.failed, summary.cost) == (3, 2, 3 * cost)
    found = records(folder)
    assert {each["id"]: each["output"] for each in found if each.get("output")} == {1: "A", 7: "B"}
    (own,) = [each for each in found if each.get("custom_id") == "mine"]
    assert own["response"]["body"]["choices"][0]["message"]["content"] == "OWN"
    assert {Decimal(each["cost"]) for each in found if each.get("cost")} == {cost}
    booked = [row for row in rows(folder) if row.status == "ok"]
    assert [(row.cost, row.tier, row.tags) for row in booked] == [
        (cost, "batch", {"team": "x", "batch": "batch_0"})
    ] * 3
    assert not (folder / "out.jsonl.jobs").exists()


def test_a_stopped_run_leaves_the_job_to_a_later_one(vendor: BatchVendor, folder: Path) -> None:
    write(folder, ["a", "fail", "b"])
    vendor.looks = 3

    async def stopped() -> BatchSummary:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, stop.set)
        async with AsyncOpenAI(**options(vendor, folder)) as client:
            return await run_jobs(
                folder / "in.jsonl",
                folder / "out.jsonl",
                client=client,
                model="mine/gpt-5",
                poll_s=9,
                stop=stop,
            )

    assert "run it again to collect them" in (asyncio.run(stopped()).stopped or "")
    write(folder, ["a", "fail", "b", "c"])  # a new line, in a job of its own
    summary = run(vendor, folder)
    assert (summary.answered, summary.failed, summary.cost) == (3, 1, 3 * HALF)
    assert len(vendor.jobs) == 2
    assert [len(lines) for lines in vendor.lines.values()] == [3, 1]
    assert sorted(row.cost or 0 for row in rows(folder)) == [0, HALF, HALF, HALF]


def test_failed_lines_are_sent_again_and_answered_ones_are_not(vendor: BatchVendor, folder: Path) -> None:
    write(folder, ["a", "fail"])
    run(vendor, folder)
    summary = run(vendor, folder)
    assert (summary.skipped, summary.answered, summary.failed) == (1, 0, 1)
    assert [len(lines) for lines in vendor.lines.values()] == [2, 1]
    assert run(vendor, folder, retry_failed=False).failed_before == 1
    assert len(vendor.jobs) == 2


@pytest.mark.parametrize(("kind", "model"), [("openai", "gpt-5"), ("anthropic", "claude-sonnet-4-5")])
def test_a_job_whose_creation_was_not_answered_is_found_and_not_created_again(
    vendor: BatchVendor, folder: Path, kind: str, model: str
) -> None:
    write(folder, ["a", "b"])
    vendor.lose_answer = True
    with pytest.raises(APIConnectionError):
        run(vendor, folder, kind=kind, model=f"mine/{model}")
    vendor.lose_answer = False
    assert run(vendor, folder, kind=kind, model=f"mine/{model}").answered == 2
    assert len(vendor.jobs) == 1


def test_a_job_that_was_noted_but_never_created_is_sent(vendor: BatchVendor, folder: Path) -> None:
    write(folder, ["a"])
    noted = {
        "job": "ab",
        "provider": "mine",
        "noted": "2026-11-27T00:00:00+00:00",
        "reserved": "0",
        "lines": [[1, "plain", 1]],
    }
    (folder / "out.jsonl.jobs").write_text(json.dumps(noted) + '\n{"created": "a')
    assert run(vendor, folder).answered == 1
    assert len(vendor.jobs) == 1


def test_results_that_were_partly_written_before_a_crash_are_written_once(
    vendor: BatchVendor, folder: Path
) -> None:
    write(folder, ["a", "b", "c"])

    class Killed(Exception):
        pass

    def kill(summary: BatchSummary) -> None:
        if summary.answered == 2:
            raise Killed

    with pytest.raises(Killed):
        run(vendor, folder, watch=kill)
    assert len(records(folder)) == 2
    summary = run(vendor, folder)
    assert (summary.answered, summary.cost) == (1, 3 * HALF)
    assert sorted(each["output"] for each in records(folder)) == ["A", "B", "C"]
    assert [row.cost for row in rows(folder)] == [HALF] * 3
    with OpenAI(**options(vendor, folder)) as client:
        client.files.content("batch_0-out")
    assert len(rows(folder)) == 3, "the output, read as a file, was booked again"


def test_jobs_are_split_at_the_vendors_limits_and_by_method(
    vendor: BatchVendor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendor_apis._OpenAIJobs, "most_lines", 2)
    models = ["mine/gpt-5", "mine/gpt-5", "mine/gpt-5", "mine/gpt-4.1"]
    write(folder, [{"prompt": "a", "model": each} for each in models])
    assert run(vendor, folder, model=None).answered == 4
    assert sorted(len(lines) for lines in vendor.lines.values()) == [1, 1, 2]


def test_no_line_is_sent_beyond_the_limit_of_dollars(vendor: BatchVendor, folder: Path) -> None:
    write(folder, [{"prompt": "a", "max_tokens": 1000}] * 4)
    summary = run(vendor, folder, max_cost="0.0151")  # a line of 1,000 tokens costs at most half a cent
    assert "remaining lines were not sent" in (summary.stopped or "")
    assert [len(lines) for lines in vendor.lines.values()] == [3]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "auto"}, "a batch job needs a named model"),
        ({"model": "local/demo"}, "knows no batch API of provider 'local'"),
        ({"model": "gemini/gemini-2.5-pro"}, "knows no batch API of provider 'gemini'"),
        ({"model": "mine/unheard", "max_cost": 1}, "no price is known for mine/unheard"),
    ],
)
def test_what_cannot_be_a_job_is_refused_before_anything_is_sent(
    vendor: BatchVendor, folder: Path, given: dict[str, Any], message: str
) -> None:
    write(folder, ["a"])
    with pytest.raises(ConfigurationError, match=message):
        run(vendor, folder, **given)
    assert not vendor.requests


def test_a_damaged_log_is_refused_and_kept(vendor: BatchVendor, folder: Path) -> None:
    write(folder, ["a"])
    log = folder / "out.jsonl.jobs"
    log.write_text("{}\n")
    with pytest.raises(ConfigurationError, match=r"line 1 of .*out.jsonl.jobs is not of a log"):
        run(vendor, folder)
    assert log.read_text() == "{}\n"


def budgeted(vendor: BatchVendor, folder: Path, limit: str, **given: Any) -> tuple[BatchSummary, Any]:
    """Run the file within a budget; return the summary, and the budget's status after it."""

    async def inner() -> tuple[BatchSummary, Any]:
        budget = Budget(name="b", usd=limit, **given)
        async with AsyncOpenAI(**options(vendor, folder), budgets=[budget]) as client:
            summary = await run_jobs(
                folder / "in.jsonl",
                folder / "out.jsonl",
                client=client,
                model="mine/gpt-5",
                poll_s=0.01,
                tags={"team": "x"},
            )
            budgets = client.core.shared.budgets
            assert budgets is not None
            budgets.flush()
            return summary, budgets.standings()[0]

    return asyncio.run(inner())


def test_lines_are_charged_to_budgets_of_their_tags_once(vendor: BatchVendor, folder: Path) -> None:
    write(folder, [{"prompt": "a", "max_tokens": 100}, {"prompt": "b"}, "expire"])
    summary, status = budgeted(vendor, folder, "5", tag="team=x")
    assert summary.answered == 2
    assert (status.spent, status.reserved, status.calls) == (2_250_000, 0, 2)
    with OpenAI(**options(vendor, folder), budgets=[Budget(name="b", usd=5, tag="team=x")]) as client:
        client.files.content("batch_0-out")
        assert client.core.shared.budgets is not None
        assert client.core.shared.budgets.standings()[0].spent == 2_250_000, "charged again by another reader"


def test_a_job_that_may_exceed_a_hard_budget_is_not_sent(vendor: BatchVendor, folder: Path) -> None:
    write(folder, [{"prompt": "a", "max_tokens": 100}] * 2)
    summary, status = budgeted(vendor, folder, "0.0005")
    assert "budget 'b' refuses" in (summary.stopped or "")
    assert "this batch job (2 lines) of mine/gpt-5 may take" in (summary.stopped or "")
    assert (status.spent, status.reserved) == (0, 0)
    assert not vendor.jobs
    assert not (folder / "out.jsonl.jobs").exists()


def test_a_job_is_held_at_the_price_of_the_batch_tier(vendor: BatchVendor, folder: Path) -> None:
    """At the standard price its two lines may cost $0.0021."""
    write(folder, [{"prompt": "a", "max_tokens": 100}] * 2)
    summary, status = budgeted(vendor, folder, "0.0015")
    assert (summary.stopped, summary.answered) == (None, 2)
    assert (status.spent, status.calls) == (2_250_000, 2)


def test_lines_without_a_limit_are_sent_with_the_one_that_is_reserved(
    vendor: BatchVendor, folder: Path
) -> None:
    write(folder, ["a"])
    budgeted(vendor, folder, "5")
    ((line,),) = vendor.lines.values()
    assert line["body"]["max_completion_tokens"] == 4096


def test_a_killed_run_keeps_its_reservation_until_a_later_one_has_charged_the_lines(
    vendor: BatchVendor, folder: Path
) -> None:
    write(folder, [{"prompt": "a", "max_tokens": 100}])
    vendor.looks = 10**6

    async def stopped() -> Any:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.2, stop.set)
        async with AsyncOpenAI(**options(vendor, folder), budgets=[Budget(name="b", usd=5)]) as client:
            await run_jobs(
                folder / "in.jsonl",
                folder / "out.jsonl",
                client=client,
                model="mine/gpt-5",
                poll_s=9,
                stop=stop,
            )
            assert client.core.shared.budgets is not None
            return client.core.shared.budgets.standings()[0]

    status = asyncio.run(stopped())
    assert status.reserved > 0
    vendor.looks = 0
    _, status = budgeted(vendor, folder, "5")
    assert (status.spent, status.reserved, status.calls) == (1_125_000, 0, 1)
