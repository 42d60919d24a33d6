"""``specclient cost reconcile``: the table, the exit code, and what it says about unusable files."""

from __future__ import annotations

import json
import os
import re
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from ledger_fixtures import build_call

from specclient.ledger.ledger import Ledger
from specclient.types.usage import Cost, Usage


@pytest.fixture
def bill(tmp_path: Path) -> Path:
    """Return the path of a bill of $1.00, of a day with a call for $1.25 in the ledger."""
    at = datetime(2026, 11, 1, 12, tzinfo=UTC)
    call = build_call(
        route="openai/gpt-5", started_at=at, cost=Cost(Decimal("1.25"), source="x"), usage=Usage(1, 1)
    )
    with closing(Ledger(os.environ["SPECCLIENT_LEDGER"])) as ledger:
        ledger.submit(call)
    path = tmp_path / "costs.csv"
    path.write_text('start_time,amount_value,line_item\n1793491200,1.00,"gpt-5-2025-08-07, input"\n')
    return path


def test_a_difference_is_shown_with_its_cause_and_exits_with_1(run: Any, bill: Path) -> None:
    code, out, _ = run("cost", "reconcile", str(bill))
    assert code == 1
    text = " ".join(out.split())
    assert (
        "2026-11-01 gpt-5 1.0000 1.2500 -0.2500 calls that the vendor has not billed, or a lower price"
        in text
    )
    assert (
        "openai, 2026-11-01: billed $1.0000, in the ledger $1.2500; 1 line differs, by $-0.2500 in all "
        "(tolerance $0.005)." in text
    )


def test_a_difference_within_the_tolerance_exits_with_0(run: Any, bill: Path) -> None:
    code, out, _ = run("cost", "reconcile", str(bill), "--tolerance", "0.25")
    assert code == 0
    assert "no difference (tolerance $0.25)." in " ".join(out.split())
    assert "1.2500" in run("cost", "reconcile", str(bill), "--tolerance", "0.25", "--all")[1]


def test_json_has_exact_amounts(run: Any, bill: Path) -> None:
    code, out, _ = run("cost", "reconcile", str(bill), "--json")
    found = json.loads(out)
    assert (code, found["billed"], found["booked"], found["difference"]) == (
        1,
        "1.00",
        "1.250000000",
        "-0.250000000",
    )
    assert found["lines"][0]["model"] == "gpt-5"


@pytest.mark.parametrize(
    ("content", "options", "status", "message"),
    [
        (
            "date,cost\n2026-11-01,1\n",
            [],
            2,
            "does not tell whose bill it is; name the provider by --provider",
        ),
        ("nothing", [], 3, "has no column with the day"),
        (None, [], 3, "cannot read .*missing.csv"),
        ("date,cost\n", ["--tolerance", "-1"], 2, "is not in the range"),
    ],
)
def test_unusable_arguments_are_one_line(
    run: Any, tmp_path: Path, content: str | None, options: list[str], status: int, message: str
) -> None:
    path = tmp_path / ("missing.csv" if content is None else "costs.csv")
    if content is not None:
        path.write_text(content)
    code, out, err = run("cost", "reconcile", str(path), *options)
    assert code == status
    assert out == ""
    assert re.search(message, " ".join(err.split()))
