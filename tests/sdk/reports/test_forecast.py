"""Forecasts of a month and unusual days, from ledgers whose days are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from ledger_fixtures import build_call

from specclient.ledger.ledger import Ledger
from specclient.reports import anomalies
from specclient.reports.anomalies import Anomaly, find_alarms, find_anomalies
from specclient.reports.forecast import Forecast, forecast_month
from specclient.types.usage import Cost, Usage

#: A Wednesday.
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
Add = Callable[..., None]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger(str(tmp_path / "ledger.db"))) as made:
        yield made


@pytest.fixture
def add(ledger: Ledger) -> Add:
    """Return a function that records a call of so many dollars."""
    number = 0

    def add(at: datetime, dollars: float | str, **values: Any) -> None:
        nonlocal number
        number += 1
        cost = Cost(Decimal(str(dollars)), source="x")
        ledger.submit(build_call(f"c{number}", started_at=at, cost=cost, usage=Usage(1, 1), **values))

    return add


def _noon(days_ago: int) -> datetime:
    return NOW - timedelta(days=days_ago)


def _hour_before(days_ago: int) -> datetime:
    """Return a time in the span of 24 hours that ended so many days ago."""
    return NOW - timedelta(days=days_ago, hours=1)


def test_equal_days_have_a_certain_forecast(ledger: Ledger, add: Add) -> None:
    for day in range(1, 29):
        add(_noon(day), 2)
    add(NOW - timedelta(hours=1), 1)
    found = forecast_month(ledger, now=NOW)
    # 17 days of November, today's dollar, and 12.5 days that are left
    assert found == Forecast("2026-11", Decimal(35), *[Decimal(60)] * 3, 28, 12.5)


def test_days_of_the_week_differ(ledger: Ledger, add: Add) -> None:
    for day in range(1, 29):
        at = _noon(day)
        add(at, 0.5 if at.weekday() >= 5 else 10)
    found = forecast_month(ledger, now=NOW)
    # until the 30th: half of today, 8 working days and 4 of a weekend
    assert found.likely - found.spent == Decimal("87")
    assert found.low == found.likely == found.high


def test_the_interval_covers_nine_months_in_ten(tmp_path: Path) -> None:
    import random

    rng, inside = random.Random(0), 0
    for month in range(80):
        days = [rng.gauss(100, 15) for _ in range(28 + 13)]
        with closing(Ledger(str(tmp_path / f"{month}.db"))) as ledger:
            for place, dollars in enumerate(days[:28]):
                cost = Cost(Decimal(f"{dollars:.6f}"), source="x")
                ledger.submit(
                    build_call(f"{place}", started_at=_noon(place + 1), cost=cost, usage=Usage(1, 1))
                )
            found = forecast_month(ledger, now=NOW.replace(hour=0))
        rest = sum(days[28:])
        inside += found.low - found.spent <= rest <= found.high - found.spent
    assert 64 <= inside <= 79


def test_a_young_ledger_counts_its_own_days_alone(ledger: Ledger, add: Add) -> None:
    assert forecast_month(ledger, now=NOW) == Forecast("2026-11", *[Decimal(0)] * 4, 0, 12.5)
    for day in (1, 2, 3):
        add(_noon(day), day)
    found = forecast_month(ledger, now=NOW)
    assert (found.days, found.spent, found.likely) == (3, 6, 6 + Decimal("12.5") * 2)
    assert found.low < found.likely < found.high


def test_a_month_ends_at_midnight_in_utc(ledger: Ledger) -> None:
    last = datetime(2026, 12, 31, 23, tzinfo=UTC)
    assert forecast_month(ledger, now=last).left == pytest.approx(1 / 24)
    assert forecast_month(ledger, now=last.astimezone().replace(microsecond=1)).month == "2026-12"


def test_an_expensive_day_of_one_model_is_found(ledger: Ledger, add: Add) -> None:
    for day in range(1, 29):
        add(_hour_before(day), 3 + day % 2 / 10)
        add(_hour_before(day), 100 + day, route="openai/gpt-5")
    add(NOW - timedelta(hours=2), 20)
    add(NOW - timedelta(hours=2), 110, route="openai/gpt-5")
    (found,) = find_anomalies(ledger, ["model"], now=NOW)
    assert (found.group, found.cost) == (("openai/gpt-4.1",), 20)
    assert found.usual == pytest.approx(Decimal("3.05"), abs=Decimal("0.06"))
    assert found.to_json(["model"])["model"] == "openai/gpt-4.1"
    assert find_anomalies(ledger, ["model"], now=NOW, least=Decimal(17)) == []
    assert find_anomalies(ledger, [], now=NOW) == []


def test_a_new_group_is_compared_with_nothing(ledger: Ledger, add: Add) -> None:
    for day in range(1, 29):
        add(_hour_before(day), 3, tags={"team": "a"})
    add(NOW - timedelta(hours=2), 2, tags={"team": "b"})
    add(NOW - timedelta(hours=2), 3, tags={"team": "a"})
    assert find_anomalies(ledger, ["tag:team"], now=NOW) == [
        Anomaly(("b",), Decimal(2), Decimal(0), Decimal(0))
    ]


def test_an_expensive_monday_is_usual_if_mondays_are(ledger: Ledger, add: Add) -> None:
    for day in range(1, 29):
        add(_hour_before(day), 50 if _noon(day).weekday() == NOW.weekday() else 1)
    add(NOW - timedelta(hours=2), 50)
    assert find_anomalies(ledger, [], now=NOW) == []


def test_a_day_within_five_deviations_is_usual(ledger: Ledger, add: Add) -> None:
    """Weeks of 10, 40, 70 and 100 dollars a day deviate by $44 from their median of $55."""
    for day in range(1, 29):
        add(_hour_before(day), 10 + 30 * ((day - 1) // 7))
    add(NOW - timedelta(hours=2), 150)
    assert find_anomalies(ledger, [], now=NOW) == []
    add(NOW - timedelta(hours=2), 150)
    assert [each.usual for each in find_anomalies(ledger, [], now=NOW)] == [55]


def test_a_day_less_than_half_above_the_usual_cost_is_usual(ledger: Ledger, add: Add) -> None:
    for day in range(1, 29):
        add(_hour_before(day), 100)
    add(NOW - timedelta(hours=2), 149)
    assert find_anomalies(ledger, [], now=NOW) == []
    add(NOW - timedelta(hours=2), 2)
    assert [each.cost for each in find_anomalies(ledger, [], now=NOW)] == [151]


def test_days_before_the_first_call_do_not_count(ledger: Ledger, add: Add) -> None:
    for day in range(1, 11):
        add(_hour_before(day), 10)
    add(NOW - timedelta(hours=2), 14)
    assert find_anomalies(ledger, [], now=NOW) == []
    add(NOW - timedelta(hours=2), 2)
    assert [each.usual for each in find_anomalies(ledger, [], now=NOW)] == [10]


def test_the_largest_excess_is_first_and_a_day_ends_at_its_hour(ledger: Ledger, add: Add) -> None:
    for day in range(29):
        for name, dollars in (("a", 5), ("b", 9)):
            at = NOW - timedelta(days=day + 1)  # the first moment of a span
            add(at, dollars * (10 if day == 0 else 1), tags={"team": name})
    assert [each.group for each in find_anomalies(ledger, ["tag:team"], now=NOW)] == [("b",), ("a",)]
    assert [each.group for each in find_alarms(ledger, now=NOW)["tag"]] == [("team=b",), ("team=a",)]


def test_nothing_is_unusual_in_the_first_week(ledger: Ledger, add: Add) -> None:
    for day in range(1, 6):
        add(_hour_before(day), 1)
    add(NOW - timedelta(hours=2), 100)
    assert find_anomalies(ledger, [], now=NOW) == []


def test_alarms_compare_models_keys_and_tags(ledger: Ledger, add: Add) -> None:
    for day in range(1, 29):
        add(_hour_before(day), 3, tags={"key": "ci", "team": "a", "run": f"r{day}"})
        add(_hour_before(day), 3, tags={"key": "app", "team": "b"})
    add(NOW - timedelta(hours=2), 40, tags={"key": "ci", "team": "a", "run": "r0"})
    add(NOW - timedelta(hours=2), 3, tags={"key": "app", "team": "b"})
    found = find_alarms(ledger, now=NOW)
    names = {by: [(each.group, each.cost, each.usual) for each in group] for by, group in found.items()}
    assert names == {
        "model": [(("openai/gpt-4.1",), Decimal(43), Decimal(6))],
        "key": [(("ci",), Decimal(40), Decimal(3))],
        "tag": [(("run=r0",), Decimal(40), Decimal(0)), (("team=a",), Decimal(40), Decimal(3))],
    }
    assert find_alarms(ledger, now=NOW, least=Decimal(60)) == {"model": [], "key": [], "tag": []}


def test_tags_that_are_ids_raise_no_alarm(ledger: Ledger, add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anomalies, "MOST_VALUES", 20)
    for day in range(1, 29):
        add(_hour_before(day), 3, tags={"run": f"r{day}", "team": "a"})
    for run in ("r0", "r28"):
        add(NOW - timedelta(hours=2), 40, tags={"run": run, "team": "a"})
    assert [each.group for each in find_alarms(ledger, now=NOW)["tag"]] == [("team=a",)]


def test_a_new_key_of_an_old_ledger_raises_an_alarm(ledger: Ledger, add: Add) -> None:
    for day in range(1, 29):
        add(_hour_before(day), 90)
    for day in range(1, 4):
        add(_hour_before(day), 1, tags={"key": "new"})
    add(NOW - timedelta(hours=2), 30, tags={"key": "new"})
    assert [(each.group, each.usual) for each in find_alarms(ledger, now=NOW)["key"]] == [(("new",), 0)]


def test_alarms_are_silent_in_the_first_week(ledger: Ledger, add: Add) -> None:
    add(_hour_before(3), 1, tags={"team": "a"})
    add(NOW - timedelta(hours=2), 100, tags={"team": "a"})
    assert find_alarms(ledger, now=NOW) == {"model": [], "key": [], "tag": []}
