"""``specclient cost forecast`` and ``specclient cost anomalies``: texts, JSON, exit codes and the webhook."""

from __future__ import annotations

import json
import os
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from ledger_fixtures import build_call
from loopback_server import OpenAIServer, reply

from specclient.ledger.ledger import Ledger
from specclient.types.usage import Cost, Usage


def _spend(*spans: tuple[timedelta, int]) -> None:
    with closing(Ledger(os.environ["SPECCLIENT_LEDGER"])) as ledger:
        for number, (ago, dollars) in enumerate(spans):
            cost = Cost(Decimal(dollars), source="x")
            at = datetime.now(UTC) - ago
            ledger.submit(build_call(f"c{number}", started_at=at, cost=cost, usage=Usage(1, 1)))


def _month(last_day: int) -> None:
    days = [(timedelta(days=day, hours=12), 2) for day in range(1, 29)]
    _spend(*days, (timedelta(hours=2), last_day))


def test_a_forecast_is_a_sentence_and_exits_with_1_above_the_limit(run: Any) -> None:
    _month(2)
    code, out, _ = run("cost", "forecast")
    assert code == 0
    assert f"{datetime.now(UTC):%Y-%m}: $" in out
    assert "Based on 28 days before today." in " ".join(out.split())
    assert run("cost", "forecast", "--limit", "1")[0] == 1
    assert run("cost", "forecast", "--limit", "10000")[0] == 0
    found = json.loads(run("cost", "forecast", "--json")[1])
    assert Decimal(found["low"]) <= Decimal(found["likely"]) <= Decimal(found["high"])


def test_a_forecast_without_calls_says_what_is_missing(run: Any) -> None:
    code, out, _ = run("cost", "forecast")
    assert code == 0
    text = " ".join(out.split())
    assert "A forecast needs calls of a complete day, and " in text
    assert text.endswith(" has none before today.")


def test_an_anomaly_is_shown_and_sent(run: Any, openai_server: OpenAIServer) -> None:
    _month(50)
    openai_server.script(reply(204, b""))
    code, out, _ = run("cost", "anomalies", "--webhook", f"{openai_server.base_url}/hook")
    assert code == 1
    assert "openai/gpt-4.1 $50.00 $2.00 $0.00" in " ".join(out.split())
    (sent,) = openai_server.requests
    (found,) = json.loads(sent.body)["anomalies"]
    assert (found["model"], Decimal(found["cost"]), Decimal(found["usual"])) == ("openai/gpt-4.1", 50, 2)
    assert json.loads(run("cost", "anomalies", "--json")[1])["anomalies"] == [found]


def test_keys_and_tags_are_compared_by_default(run: Any) -> None:
    now = datetime.now(UTC)
    with closing(Ledger(os.environ["SPECCLIENT_LEDGER"])) as ledger:
        for number in range(29):
            cost = Cost(Decimal(50 if number == 0 else 2), source="x")
            at = now - timedelta(days=number, hours=2)
            tags = {"key": "ci", "team": "a"}
            ledger.submit(build_call(f"c{number}", started_at=at, cost=cost, usage=Usage(1, 1), tags=tags))
    code, out, _ = run("cost", "anomalies")
    assert code == 1
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [
        ["model", "openai/gpt-4.1", "$50.00"],
        ["key", "ci", "$50.00"],
        ["tag", "team=a", "$50.00"],
    ]
    found = json.loads(run("cost", "anomalies", "--json")[1])
    assert [next(iter(each)) for each in found["anomalies"]] == found["by"] == ["model", "key", "tag"]
    assert run("cost", "anomalies", "--by", "tag:team")[0] == 1


def test_nothing_unusual_exits_with_0_and_sends_nothing(run: Any, openai_server: OpenAIServer) -> None:
    _month(2)
    code, out, _ = run("cost", "anomalies", "--webhook", f"{openai_server.base_url}/hook")
    assert code == 0
    assert "Nothing cost unusually much in the last 24 hours." in out
    assert not openai_server.requests


def test_a_failing_webhook_is_an_error_without_its_secret(run: Any, openai_server: OpenAIServer) -> None:
    _month(50)
    openai_server.script(reply(500, b""))
    code, _, err = run("cost", "anomalies", "--webhook", f"{openai_server.base_url}/hook?token=sk-secret")
    assert code == 1
    assert "answered 500" in err
    assert "sk-secret" not in err


@pytest.mark.parametrize("url", ["hooks.example/spending", "ftp://hooks.example/", "https://"])
def test_a_webhook_that_is_no_address_is_refused_before_anything_is_found(run, url: str) -> None:
    code, _, err = run("cost", "anomalies", "--webhook", url)
    assert code == 2
    assert "write https://HOST/PATH" in err
