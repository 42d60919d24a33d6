"""Each change is found with its exact saving, and only where it would have saved money."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from ledger_fixtures import AT, build_call

from specclient.config import Settings
from specclient.ledger.row import LedgerRow
from specclient.prices.prices import Prices
from specclient.reports.advice import Advice, CallPrices, advise
from specclient.types.usage import Cost, Usage

SETTINGS = Settings.model_validate(
    {
        "prices": {
            "openai/gpt-large": {"input": 10, "output": 20, "tiers": {"batch": {"input": 5, "output": 10}}},
            "openai/gpt-small": {"input": 1, "output": 2},
            "openai/gpt-kept": {"input": 10, "output": 20, "cached_input": 1},
            "anthropic/written": {"input": 10, "output": 20, "cached_input": 1, "cache_write": 12},
        }
    }
)
PRICES = Prices(SETTINGS)


def _row(route: str = "openai/gpt-large", minutes: float = 0.0, **values: Any) -> LedgerRow:
    """Return the row of a call of 1,000 and 100 tokens, or of ``usage``, at its price."""
    provider, _, model = route.partition("/")
    usage = values.pop("usage", Usage(1000, 100))
    at = AT + timedelta(minutes=minutes)
    cost = values.pop("cost", None) or PRICES.price(usage, provider, model, at=at)
    return LedgerRow.of(build_call(route=route, started_at=at, usage=usage, cost=cost, **values))


def _advice(rows: Sequence[LedgerRow], **alternatives: Sequence[str]) -> list[Advice]:
    prices = CallPrices(PRICES, lambda _: None)
    return list(advise(rows, prices, lambda route: alternatives.get(route.partition("/")[2], ())))


def test_a_job_is_cheaper_as_a_batch() -> None:
    rows = [_row(minutes=number / 2) for number in range(100)]
    (found,) = _advice(rows)
    assert (found.route, found.change, found.calls) == ("openai/gpt-large", "send them as a batch file", 100)
    assert (found.cost, found.saved) == (Decimal("1.2"), Decimal("0.6"))


@pytest.mark.parametrize(
    "rows",
    [
        [_row(minutes=number / 2) for number in range(99)],
        [_row(minutes=number) for number in range(118)],  # at most 60 in an hour
        [_row(minutes=number / 2, streamed=True) for number in range(100)],
        [_row(minutes=number / 2, session="s") for number in range(100)],
        [_row("openai/gpt-small", minutes=number / 2) for number in range(100)],  # has no such price
    ],
    ids=["few", "spread", "streamed", "session", "no tier"],
)
def test_calls_that_are_no_job_are_left(rows: list[LedgerRow]) -> None:
    assert _advice(rows) == []


def test_another_model_is_advised_if_it_is_cheaper() -> None:
    rows = [_row(), _row()]
    (found,) = _advice(rows, **{"gpt-large": ["openai/gpt-kept", "openai/gpt-small", "openai/unpriced"]})
    assert found.change == "use openai/gpt-small"
    assert (found.cost, found.saved) == (Decimal("0.024"), Decimal("0.0216"))
    assert _advice([_row("openai/gpt-small")], **{"gpt-small": ["openai/gpt-large"]}) == []


def test_a_local_pair_is_priced_by_its_measured_cost() -> None:
    cost = Cost(Decimal("0.0011"), source="engine")
    measured = [_row("local/big", cost=cost, usage=Usage(100, 10)) for _ in range(20)]
    (found,) = _advice([*measured, _row()], **{"gpt-large": ["local/big"]})
    assert (found.change, found.saved) == ("use local/big", Decimal("0.012") - Decimal("0.011"))
    assert found.assumption.startswith("at its measured cost per token")
    assert _advice([*measured[1:], _row()], **{"gpt-large": ["local/big"]}) == []


@pytest.mark.parametrize(
    ("route", "word", "after"),
    [
        # 2,000 and 2,500 tokens; the second reads 2,000 of them from the cache. 100 tokens of output each.
        ("openai/gpt-kept", "unchanged", 2000 * 10 + (500 * 10 + 2000 * 1)),
        ("anthropic/written", "cache_control", 2000 * 12 + (500 * 12 + 2000 * 1)),
    ],
)
def test_repeated_prompts_of_a_session_are_cheaper_from_the_cache(route: str, word: str, after: int) -> None:
    rows = [
        _row(route, 0, session="a", usage=Usage(2000, 100)),
        _row(route, 1, session="b", usage=Usage(2000, 100)),
        _row(route, 4, session="a", usage=Usage(2500, 100)),
        _row(route, 40, session="a", usage=Usage(3000, 100)),  # no longer in the cache
    ]
    (found,) = _advice(rows)
    assert word in found.change
    assert (found.calls, found.cost) == (2, Decimal(4500 * 10 + 200 * 20).scaleb(-6))
    assert found.saved == Decimal(4500 * 10 - after).scaleb(-6)


def test_what_the_cache_has_read_already_is_no_saving() -> None:
    usages = Usage(2000, 100), Usage(2500, 100, cached=2000)
    rows = [_row("openai/gpt-kept", at, session="a", usage=usage) for at, usage in enumerate(usages)]
    assert _advice(rows) == []


def test_rejected_predictions_are_told_if_most_are() -> None:
    def row(rejected: int) -> LedgerRow:
        usage = Usage(1000, 100 + rejected, accepted_prediction=30, rejected_prediction=rejected)
        return _row("openai/gpt-small", usage=usage)

    (found,) = _advice([row(70)])
    assert found.change == "send no prediction: 70% of the predicted tokens were rejected"
    assert found.saved == Decimal(70 * 2).scaleb(-6)
    assert _advice([row(20)]) == []


def test_failed_calls_that_were_billed_and_dearer_tiers_are_told() -> None:
    usage = Usage(1000, 100)
    dear = Cost(Decimal("0.02"), source="x, service tier priority")
    rows = [_row("openai/gpt-small", status="cancelled"), _row(cost=dear, usage=usage)]
    tier, failed = _advice(rows)
    assert (tier.change, tier.saved) == ("omit service_tier='priority'", Decimal("0.008"))
    assert (failed.saved, failed.cost) == (Decimal("0.0012"), Decimal("0.0012"))


def test_a_call_whose_cost_does_not_follow_from_its_tokens_is_left_out() -> None:
    rows = [_row(cost=Cost(Decimal("0.013"), source="with a search")) for _ in range(100)]
    assert _advice(rows, **{"gpt-large": ["openai/gpt-small"]}) == []


def test_the_largest_savings_come_first_and_unpriced_calls_are_ignored() -> None:
    rows = [_row("openai/gpt-small", status="error"), _row("openai/gpt-large", status="error")]
    rows.append(_row(cost=Cost(None, source="unpriced")))
    found = _advice(rows)
    assert [each.route for each in found] == ["openai/gpt-large", "openai/gpt-small"]
    prices = CallPrices(PRICES, lambda _: None)
    assert len(advise(rows, prices, lambda _: (), most=1)) == 1
