"""A bill compared with the ledger: differences of a cent are found among many calls, with a likely cause."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from ledger_fixtures import build_call

from specclient.errors import ConfigurationError
from specclient.ledger.ledger import Ledger
from specclient.reports.reconcile import BillLine, KeyNames, Reconciliation, reconcile
from specclient.reports.vendor_bill import BilledAmount, VendorBill
from specclient.types.usage import Cost, Usage

START = datetime(2026, 11, 1, tzinfo=UTC)
DAY = START.date()
CENT = Decimal("0.01")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger(str(tmp_path / "ledger.db"), keep=200_000)) as made:
        yield made


def _submit(
    ledger: Ledger, number: int, dollars: str | None, *, estimated: bool = False, **values: Any
) -> None:
    cost = Cost(None if dollars is None else Decimal(dollars), source="x", estimated=estimated)
    defaults = {"started_at": START, "route": "openai/gpt-5", "served_model": "gpt-5-2025-08-07"}
    usage = Usage(prompt=10, completion=10)
    ledger.submit(build_call(f"c{number}", cost=cost, usage=usage, **(defaults | values)))


def _compared(ledger: Ledger, *amounts: tuple[str, str], days: tuple[date, ...] = (DAY,)) -> Reconciliation:
    billed = tuple(BilledAmount(days[0], model, Decimal(dollars)) for model, dollars in amounts)
    return reconcile(ledger, VendorBill("openai", days, billed), "openai", tolerance=Decimal("0.005"))


def test_a_cent_is_found_among_a_hundred_thousand_calls(ledger: Ledger) -> None:
    days = tuple(DAY + timedelta(days=k) for k in range(10))
    models = [f"gpt-5-{name}" for name in ("a", "b", "c", "d")]
    billed: dict[tuple[date, str], Decimal] = {}
    for number in range(100_000):
        day, model = days[number % 10], models[number // 10 % 4]
        dollars = Decimal(number % 997 + 1).scaleb(-6)
        at = datetime(day.year, day.month, day.day, number % 24, tzinfo=UTC)
        _submit(ledger, number, str(dollars), route=f"openai/{model}", served_model=model, started_at=at)
        billed[day, model] = billed.get((day, model), Decimal(0)) + dollars
    planted = {(days[3], models[1]): CENT, (days[7], models[2]): -CENT}
    amounts = tuple(
        BilledAmount(day, model, dollars + planted.get((day, model), 0))
        for (day, model), dollars in billed.items()
    )
    found = reconcile(ledger, VendorBill("openai", days, amounts), "openai", tolerance=Decimal("0.005"))
    assert len(found.lines) == 40
    assert sum(line.calls for line in found.lines) == 100_000
    assert {(line.day, line.model): line.difference for line in found.differing} == planted
    assert found.billed == found.booked


def test_amounts_of_a_model_and_its_snapshot_are_added_up(ledger: Ledger) -> None:
    _submit(ledger, 1, "1")
    _submit(ledger, 2, "2", served_model=None)
    _submit(ledger, 3, "9", route="anthropic/claude-opus-5", served_model="claude-opus-5")
    _submit(ledger, 4, "9", started_at=START - timedelta(seconds=1))
    _submit(ledger, 5, "9", started_at=START + timedelta(days=1))
    found = _compared(ledger, ("gpt-5-2025-08-07", "0.5"), ("gpt-5", "2.5"))
    assert found.lines == (BillLine(DAY, "gpt-5", Decimal(3), Decimal(3), 2),)
    assert found.differing == ()


def test_a_bill_without_models_is_compared_by_day(ledger: Ledger) -> None:
    _submit(ledger, 1, "1")
    _submit(ledger, 2, "2", route="openai/gpt-4.1", served_model="gpt-4.1")
    assert _compared(ledger, ("", "3")).lines == (BillLine(DAY, "", Decimal(3), Decimal(3), 2),)


@pytest.mark.parametrize(
    ("calls", "billed", "cause"),
    [
        ([], "1", "no call in this ledger"),
        ([("1", {}), (None, {})], "2", "1 call is unpriced in the ledger"),
        ([("1", {})], "0.5", "billed at 0.50 of the booked price: another service tier, or a batch"),
        ([("1", {"estimated": True})], "1.1", "the ledger's tokens or price are estimated"),
        ([("1", {})], "1.3", "calls that are not in this ledger, or a higher price"),
        ([("1", {})], "0.9", "calls that the vendor has not billed, or a lower price"),
        ([("0.01", {})] * 200, "2.009", "less than $0.0001 a call: the vendor may round"),
    ],
)
def test_the_likely_cause(ledger: Ledger, calls: list[Any], billed: str, cause: str) -> None:
    for number, (dollars, more) in enumerate(calls):
        _submit(ledger, number, dollars, **more)
    (line,) = _compared(ledger, ("gpt-5", billed)).differing
    assert line.cause.startswith(cause)


def test_a_model_that_is_not_billed_is_a_difference(ledger: Ledger) -> None:
    _submit(ledger, 1, "1", route="openai/gpt-4.1", served_model="gpt-4.1")
    gone, extra = _compared(ledger, ("gpt-5", "0.5")).differing
    assert (gone.model, gone.billed, gone.difference) == ("gpt-4.1", None, -1)
    assert gone.cause.startswith("not billed")
    assert (extra.model, extra.booked, extra.difference) == ("gpt-5", None, Decimal("0.5"))


def test_keys_are_compared_by_a_tag_of_the_calls(ledger: Ledger) -> None:
    for number, team in enumerate(["search", "search", "mail", None]):
        _submit(ledger, number, "1", tags={} if team is None else {"team": team})
    amounts = [("gpt-5", "2.01", "key_1"), ("gpt-5", "1", "mail"), ("gpt-5", "0.5", "key_3")]
    billed = tuple(BilledAmount(DAY, model, Decimal(dollars), key) for model, dollars, key in amounts)
    bill = VendorBill("openai", (DAY,), billed)
    keys = KeyNames("team", {"key_1": "search"})
    found = reconcile(ledger, bill, "openai", tolerance=Decimal("0.005"), keys=keys)
    assert [(line.key, line.billed, line.booked, line.calls) for line in found.lines] == [
        ("", None, 1, 1), ("key_3", Decimal("0.5"), None, 0), ("mail", 1, 1, 1),
        ("search", Decimal("2.01"), 2, 2),
    ]  # fmt: skip
    assert {line.key for line in found.differing} == {"", "key_3", "search"}


def test_a_bill_without_keys_cannot_be_compared_by_key(ledger: Ledger) -> None:
    bill = VendorBill("openai", (DAY,), (BilledAmount(DAY, "gpt-5", CENT),))
    with pytest.raises(ConfigurationError, match="names no keys"):
        reconcile(ledger, bill, "openai", tolerance=CENT, keys=KeyNames("team"))


def test_days_that_the_bill_does_not_cover_are_left_out(ledger: Ledger) -> None:
    for number in range(3):
        _submit(ledger, number, "1", started_at=START + timedelta(days=number))
    found = _compared(ledger, ("gpt-5", "1"), days=(DAY, DAY + timedelta(days=2)))
    assert [(line.day, line.booked) for line in found.lines] == [(DAY, 1), (DAY + timedelta(days=2), 1)]
