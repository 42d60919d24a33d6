"""Forecasts follow the calls that finished; where there were none they say so."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.costs.ledger import Ledger
from specclient.costs.row import Row
from specclient.errors import LedgerError
from specclient.routing.estimates import COMPLETION_TOKENS, MEMORY, PRIORS, WINDOW, Estimates, Forecast
from specclient.routing.forecasts import expected_length
from specclient.routing.forecasts import forecast as forecast_of
from specclient.routing.policy import named
from specclient.routing.sketch import ERROR
from specclient.types.call import Call
from specclient.types.usage import Speculation, Usage

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def about(value):
    """As near as a sketch tells it."""
    return pytest.approx(value, rel=2.1 * ERROR)


def call(id="c", route="x/y", tokens=100, **values):  # noqa: A002
    provider, _, model = route.partition("/")
    defaults = {
        "started_at": NOW,
        "operation": "chat",
        "model": route,
        "status": "ok",
        "usage": Usage(prompt=10, completion=tokens),
        "latency_s": 2.0,
    }
    return Call(id=id, route=named(route, provider, model), **(defaults | values))


def rows(*calls):
    return [Row.of(c) for c in calls]


def forecast(seen, max_tokens=None, prior=None):
    return forecast_of(seen, length=expected_length(seen, max_tokens), prior=prior)


def estimates(*calls, **options):
    made = Estimates(now=lambda: NOW, **options)
    for c in calls:
        made.observe(c)
    return made


def test_seconds_grow_with_the_answer_from_the_time_of_the_first_token():
    seen = rows(call(tokens=100, ttft_s=0.5, latency_s=2.5))  # 20 ms a token
    assert forecast(seen) == Forecast(completion_tokens=100, ttft_s=0.5, latency_s=2.5, evidence=1)
    assert forecast(seen, max_tokens=50).latency_s == pytest.approx(1.5)
    assert forecast(seen, max_tokens=1000).completion_tokens == 100


def test_a_call_that_was_not_streamed_borrows_the_first_token_of_those_that_were():
    seen = rows(call(tokens=100, ttft_s=0.5, latency_s=2.5), call(tokens=200, latency_s=4.5))
    assert forecast(seen).latency_s == pytest.approx(0.5 + 150 * 0.02)
    alone = forecast(rows(call(tokens=200, latency_s=4.0)))
    assert (alone.ttft_s, alone.latency_s) == (None, 4.0)


def test_one_slow_call_does_not_decide():
    seen = rows(*(call(latency_s=s) for s in (1.0, 1.0, 1.0, 60.0)))
    assert forecast(seen).latency_s == 1.0


def test_engine_seconds_and_acceptance_come_from_the_calls_that_know_them():
    seen = rows(
        call(tokens=100, engine_s=1.0, speculation=Speculation(drafted=10, accepted=8)),
        call(tokens=100, engine_s=3.0, speculation=Speculation(drafted=30, accepted=12)),
        call(tokens=100),
    )
    made = forecast(seen, max_tokens=50)
    assert made.engine_s == pytest.approx(1.0)
    assert made.acceptance_rate == 0.5
    assert made.evidence == 3
    assert forecast(rows(call())).engine_s is forecast(rows(call())).acceptance_rate is None


def test_without_calls_only_the_bundled_pair_has_a_prior():
    made = estimates()
    assert made.predict("openai/gpt-4.1") == Forecast(completion_tokens=COMPLETION_TOKENS)
    prior = PRIORS["local/demo"]
    local = made.predict("local/demo", max_tokens=100)
    assert local.engine_s == local.latency_s == pytest.approx(prior.ttft_s + 100 * prior.token_s)
    assert local.evidence == 0


def test_the_first_call_replaces_the_prior():
    made = estimates(call(route="local/demo", tokens=10, latency_s=9.0, engine_s=8.0)).predict("local/demo")
    assert (made.completion_tokens, made.engine_s, made.evidence) == (10, about(8.0), 1)
    assert made.latency_s == about(8.0), (
        "the engine's own seconds: loading its weights is not the next call's"
    )


def test_candidates_are_compared_for_the_same_answer():
    made = estimates(
        call("a", route="x/short", tokens=10, latency_s=1.0),
        call("b", route="x/long", tokens=1000, latency_s=10.0),
    )
    short, long, unknown = made.compare(["x/short", "x/long", "x/unknown"])
    assert short.completion_tokens == long.completion_tokens == unknown.completion_tokens
    assert 10 <= (length := short.completion_tokens) <= 1000
    assert (short.latency_s, long.latency_s) == (about(length * 0.1), about(length * 0.01))
    assert {f.completion_tokens for f in made.compare(["x/short", "x/long"], max_tokens=7)} == {7}


@pytest.mark.parametrize(
    "useless", [{"status": "error"}, {"status": "cancelled"}, {"usage": Usage()}, {"tokens": 0}]
)
def test_calls_that_say_nothing_of_the_next_are_no_evidence(useless):
    assert estimates(call(**useless)).predict("x/y").evidence == 0


def test_only_the_newest_calls_of_a_route_count():
    made = estimates(call("old", latency_s=99.0), *(call(f"c{n}", latency_s=1.0) for n in range(WINDOW)))
    newest = made.predict("x/y")
    assert (newest.completion_tokens, newest.ttft_s) == (about(100), None)
    assert (newest.latency_s, newest.evidence) == (about(1.0), WINDOW)


def test_routes_are_told_apart():
    made = estimates(call(route="x/y", latency_s=1.0), call(route="x/z", latency_s=5.0))
    assert (made.predict("x/y").latency_s, made.predict("x/z").latency_s) == (about(1.0), about(5.0))


def test_earlier_calls_are_read_from_the_ledger_once_and_newer_ones_count_once(tmp_path):
    ledger = Ledger(str(tmp_path / "ledger.sqlite3"))
    ledger.submit(call("long ago", started_at=NOW - MEMORY - timedelta(days=1), latency_s=50.0))
    ledger.submit(call("yesterday", started_at=NOW - timedelta(days=1), latency_s=3.0))
    both = call("both", latency_s=1.0)
    ledger.submit(both)
    made = estimates(both, history=ledger)
    known = made.predict("x/y")
    assert (known.latency_s, known.evidence) == (about(1.0), 2), "what was seen today counts more"
    ledger.submit(call("by another process", latency_s=90.0))
    assert made.predict("x/y").evidence == 2
    ledger.close()


def test_a_ledger_that_cannot_be_read_costs_a_warning_only(caplog):
    class Broken:
        def rows(self, since=None, until=None, *, limit=None):
            raise LedgerError("cannot open the ledger /x; set SPECCLIENT_LEDGER")

    made = estimates(call(), history=Broken())
    assert made.predict("x/y").evidence == 1
    made.predict("x/y")
    (warning,) = caplog.records
    assert "routing starts without earlier calls: cannot open the ledger /x" in warning.getMessage()


@given(
    st.lists(
        st.builds(
            call,
            tokens=st.integers(1, 10**6),
            latency_s=st.floats(0, 1e4),
            ttft_s=st.none() | st.floats(0, 1e4),
            engine_s=st.none() | st.floats(0, 1e4),
        ),
        max_size=8,
    ),
    st.none() | st.integers(0, 10**6),
)
def test_a_forecast_is_never_negative_and_grows_with_the_limit(calls, limit):
    made = forecast(rows(*calls), max_tokens=limit)
    figures = [value for value in dataclasses.astuple(made) if value is not None]
    assert all(value >= 0 for value in figures)
    longer = forecast(rows(*calls))
    if made.latency_s is not None:
        assert made.latency_s <= longer.latency_s
