"""Savings by speculation: each states its assumption, and is None without a basis of comparison."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from specclient.errors import ConfigurationError
from specclient.ledger.row import LedgerRow
from specclient.reports.savings import MIN_BASELINE_CALLS, savings

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def row(number=0, route="openai/gpt-4.1", **values):
    provider, _, _ = route.partition("/")
    facts = {
        "id": f"c{number}",
        "started_at": AT,
        "operation": "chat",
        "provider": provider,
        "model": route,
        "route": route,
        "status": "ok",
        "completion_tokens": 100,
        "cost_nano": 800,
        "cost_by_kind": {"output": 800},
        "latency_s": 2.0,
    }
    return LedgerRow(**(facts | values))


def predicted(number=0, **values):
    """A call with 100 answer tokens and 25 rejected predicted tokens, which are billed."""
    facts = {
        "completion_tokens": 125,
        "predicted_accepted": 60,
        "predicted_rejected": 25,
        "cost_nano": 1000,
        "cost_by_kind": {"output": 800, "rejected_prediction": 200},
        "latency_s": 1.0,
        "method": "prediction",
    }
    return row(number, **(facts | values))


def plain(count=MIN_BASELINE_CALLS, **values):
    return [row(f"plain{i}", **values) for i in range(count)]


def drafted(number=0, **values):
    """A call of the engine: 25 passes accepted 75 drafted tokens, so 4 tokens per pass."""
    facts = {
        "route": "local/demo",
        "method": "draft",
        "drafted": 100,
        "accepted": 75,
        "steps": 25,
        "engine_s": 1.0,
        "latency_s": 1.5,
        "cost_nano": 140,
        "cost_by_kind": {"engine": 100, "electricity": 40},
    }
    return row(number, **(facts | values))


def test_a_prediction_is_compared_with_its_routes_plain_calls():
    (saving,) = savings([predicted(1), predicted(2), *plain()])
    assert (saving.group, saving.calls, saving.cost_calls, saving.latency_calls) == (
        "openai/gpt-4.1",
        2,
        2,
        2,
    )
    assert (saving.cost_nano, saving.alone_nano, saving.saved) == (2000, 1600, Decimal("-4E-7"))
    assert "without the rejected prediction" in saving.cost_assumption
    assert (saving.latency_s, saving.alone_s, saving.speedup, saving.saved_s) == (2.0, 4.0, 2.0, 2.0)
    assert "50 tokens/s, the median of 3 calls of openai/gpt-4.1" in saving.latency_assumption


def test_too_few_plain_calls_give_no_time_savings():
    (saving,) = savings([predicted(), *plain(MIN_BASELINE_CALLS - 1), *plain(9, route="openai/other")])
    assert saving.alone_s is saving.latency_s is saving.speedup is saving.saved_s is None
    assert "fewer than 3 calls of openai/gpt-4.1" in saving.latency_assumption
    assert saving.alone_nano == 800, "the cost comparison needs no history"


def test_failed_and_empty_calls_are_not_used_for_comparison():
    broken = [*plain(5, status="error"), *plain(5, completion_tokens=None), *plain(5, completion_tokens=0)]
    (saving,) = savings([predicted(), *broken])
    assert saving.alone_s is None


def test_server_side_speculation_does_not_change_the_cost():
    (saving,) = savings([row(drafted=10, accepted=5, steps=5)])
    assert saving.saved == 0
    assert "billed by the token" in saving.cost_assumption
    assert (saving.acceptance_rate, saving.mean_accepted_length) == (0.5, 2.0)


def test_an_engine_is_compared_with_its_plain_decoding():
    history = plain(route="local/demo", method="plain", drafted=0, accepted=0, steps=100, engine_s=3.0)
    (saving,) = savings([drafted(), *history])
    assert (saving.latency_s, saving.alone_s) == (1.0, 3.0), "engine seconds, without queueing"
    assert (saving.cost_nano, saving.alone_nano) == (140, 420)
    assert "33.3 tokens/s, the median of 3 calls of local/demo" in saving.latency_assumption
    assert saving.cost_assumption == "billed by the second: in proportion to the seconds"


def test_without_history_an_engines_passes_give_an_upper_bound():
    (saving,) = savings([drafted()])
    assert (saving.alone_s, saving.alone_nano) == (4.0, 560)
    assert "an upper bound of the savings" in saving.latency_assumption


def test_a_cost_per_second_without_a_speed_is_not_compared():
    (saving,) = savings([drafted(engine_s=None, steps=None)])
    assert saving.alone_nano is saving.alone_s is None
    assert "own speed is unknown" in saving.cost_assumption


@pytest.mark.parametrize(
    ("facts", "assumption"),
    [
        ({"cost_nano": None, "cost_by_kind": {}}, "cost is unknown"),
        ({"cost_by_kind": {"reported": 1000}}, "one sum"),
        ({"status": "cancelled"}, "failed or was cancelled"),
        ({"completion_tokens": None}, "tokens are unknown"),
    ],
    ids=["unpriced", "one sum", "cancelled", "uncounted"],
)
def test_a_call_without_the_needed_figures_is_not_compared(facts, assumption):
    (saving,) = savings([predicted(**facts), *plain()])
    assert saving.cost_nano is saving.alone_nano is saving.saved is None
    assert assumption in saving.cost_assumption
    assert saving.calls == 1


def test_a_group_sums_only_comparable_calls_and_says_so():
    (saving,) = savings([predicted(1), predicted(2, cost_nano=None), *plain()])
    assert (saving.calls, saving.cost_calls, saving.cost_nano) == (2, 1, 1000)
    assert "1 without: its cost is unknown" in saving.cost_assumption


def test_the_parts_of_a_strategy_are_one_call():
    whole = {"parent": "w", "strategy": "prediction"}
    draft = row("d", route="mine/small", cost_nano=50, cost_by_kind={"output": 50}, latency_s=0.5, **whole)
    target = predicted("t", started_at=AT + timedelta(seconds=0.6), latency_s=0.9, **whole)
    (saving,) = savings([target, *plain(), draft])
    assert (saving.group, saving.calls) == ("openai/gpt-4.1+mine/small", 1)
    assert (saving.cost_nano, saving.alone_nano) == (1050, 800)
    assert saving.latency_s == pytest.approx(1.5), "from the first start to the last end"
    assert saving.alone_s == 2.0
    (by_strategy,) = savings([target, draft], by="strategy")
    assert by_strategy.group == "prediction"


@pytest.mark.parametrize("strategy", ["remote", "prefill"])
def test_strategies_whose_parts_lack_the_answers_length_are_not_compared(strategy):
    whole = {"parent": "w", "strategy": strategy}
    rounds = [row(i, started_at=AT + timedelta(seconds=i), **whole) for i in range(4)]
    (saving,) = savings([*rounds, *plain()])
    assert saving.calls == 1
    assert saving.alone_nano is saving.alone_s is None
    assert f"the parts of {strategy} do not say" in saving.cost_assumption


def test_plain_calls_and_retries_have_no_savings():
    assert savings([*plain(), row(drafted=0, accepted=0), row("r", parent="c0", purpose="retry")]) == ()


def test_savings_convert_to_json_values():
    (saving,) = savings([predicted()])
    reported = saving.to_dict()
    assert (reported["saved"], reported["speedup"], reported["group"]) == (
        "-0.000000200",
        None,
        "openai/gpt-4.1",
    )


def test_an_unknown_grouping_is_named():
    with pytest.raises(ConfigurationError, match="'colour'; use 'pair' or 'strategy'"):
        savings([], "colour")  # type: ignore[arg-type]


def test_an_engine_is_compared_with_its_target_under_any_route():
    pair = "bundled/target+bundled/draft"
    calls = [drafted(pair=pair), *plain(route="local/demo-target", pair="bundled/target", engine_s=4.0)]
    (found,) = savings(calls)
    assert found.group == pair
    assert found.alone_s == pytest.approx(4.0)
    assert "calls of bundled/target without speculation" in found.latency_assumption
    (other,) = savings([drafted(pair="bundled/other+bundled/draft"), *calls[1:]])
    assert "an upper bound of the savings" in other.latency_assumption
