"""Forecasts from ledger rows: seconds linear in the answer, and nothing that was not measured."""

from __future__ import annotations

import dataclasses

import pytest
from finished_calls import call, rows
from hypothesis import given
from hypothesis import strategies as st

from specclient.routing.learn.ledger_forecast import LedgerForecast, expected_length
from specclient.routing.learn.ledger_forecast import forecast as forecast_of
from specclient.types.usage import Speculation


def forecast(seen, max_tokens=None, prior=None):
    return forecast_of(seen, length=expected_length(seen, max_tokens), prior=prior)


def test_latency_is_ttft_plus_time_per_answer_token():
    seen = rows(call(tokens=100, ttft_s=0.5, latency_s=2.5))  # 20 ms per token
    assert forecast(seen) == LedgerForecast(completion_tokens=100, ttft_s=0.5, latency_s=2.5, evidence=1)
    assert forecast(seen, max_tokens=50).latency_s == pytest.approx(1.5)
    assert forecast(seen, max_tokens=1000).completion_tokens == 100


def test_an_unstreamed_call_uses_the_ttft_of_streamed_calls():
    seen = rows(call(tokens=100, ttft_s=0.5, latency_s=2.5), call(tokens=200, latency_s=4.5))
    assert forecast(seen).latency_s == pytest.approx(0.5 + 150 * 0.02)
    alone = forecast(rows(call(tokens=200, latency_s=4.0)))
    assert (alone.ttft_s, alone.latency_s) == (None, 4.0)


def test_one_slow_call_does_not_change_the_forecast():
    seen = rows(*(call(latency_s=s) for s in (1.0, 1.0, 1.0, 60.0)))
    assert forecast(seen).latency_s == 1.0


def test_engine_seconds_and_acceptance_come_from_the_calls_that_report_them():
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
def test_a_forecast_is_never_negative_and_max_tokens_only_shortens_it(calls, limit):
    made = forecast(rows(*calls), max_tokens=limit)
    figures = [value for value in dataclasses.astuple(made) if value is not None]
    assert all(value >= 0 for value in figures)
    longer = forecast(rows(*calls))
    if made.latency_s is not None:
        assert made.latency_s <= longer.latency_s
