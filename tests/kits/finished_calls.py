"""Finished calls with few figures, and estimators that have learned from them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from specclient.ledger.row import LedgerRow
from specclient.routing.choose.decisions import named_decision
from specclient.routing.learn.estimator import Estimator
from specclient.routing.learn.quantile_sketch import ERROR
from specclient.types.call import Call
from specclient.types.usage import Usage

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def about(value):
    """Match a value within a sketch's relative error."""
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
    return Call(id=id, route=named_decision(route, provider, model), **(defaults | values))


def rows(*calls):
    return [LedgerRow.of(c) for c in calls]


def estimates(*calls, **options):
    made = Estimator(now=lambda: NOW, **options)
    for c in calls:
        made.observe(c)
    return made
