"""``specclient cost savings``: sums of the response cache, prompt caches and speculation."""

from __future__ import annotations

import json
import os
from contextlib import closing
from decimal import Decimal

import pytest
from ledger_fixtures import build_call

from specclient.config import Settings
from specclient.ledger.ledger import Ledger
from specclient.prices.prices import Prices
from specclient.types.usage import Cost, Usage

PRICES = Prices(
    Settings.model_validate(
        {"prices": {"a/m": {"input": 10, "cached_input": 1, "cache_write": "12.5", "output": 20}}}
    )
)


def priced(usage: Usage) -> Cost:
    return PRICES.price(usage, "a", "m", at=build_call().started_at)


@pytest.fixture
def calls() -> None:
    """Record a call that reads from a prompt cache, one that writes to it, one from the response cache."""
    read = Usage(prompt=1_000_000, completion=0, cached=900_000)
    written = Usage(prompt=100_000, completion=0, cache_write=100_000)
    with closing(Ledger(os.environ["SPECCLIENT_LEDGER"])) as ledger:
        ledger.submit(build_call("read", "a/m", usage=read, cost=priced(read)))
        ledger.submit(build_call("written", "a/m", usage=written, cost=priced(written)))
        ledger.submit(build_call("plain", "b/n", usage=Usage(prompt=5, completion=5), cost=Cost(Decimal(1))))
        ledger.submit(build_call("hit", "b/n", cached=True, saved=Decimal("0.25"), cost=Cost(Decimal(0))))


@pytest.mark.usefixtures("calls")
def test_each_cache_has_its_sum(run) -> None:
    code, out, err = run("cost", "savings", "--json")
    assert (code, err) == (0, "")
    values = json.loads(out)
    saved = {each["what"]: (each["calls"], each["saved"]) for each in values["saved"]}
    prompt = Decimal("8.1") - Decimal("0.25")  # read at a tenth, less a quarter of a dollar for writing
    assert (saved["response cache"][0], Decimal(saved["response cache"][1])) == (1, Decimal("0.25"))
    assert (saved["prompt caches"][0], Decimal(saved["prompt caches"][1])) == (2, prompt)
    assert saved["speculation"] == (0, None)
    by_model = {each["model"]: each for each in values["lines"]}
    assert Decimal(by_model["a/m"]["prompt_cache"]) == prompt
    assert by_model["a/m"]["response_cache"] is None
    _, out, _ = run("cost", "savings", "--by", "provider")
    assert [line.split()[:4] for line in out.splitlines()[1:3]] == [
        ["response", "cache", "1", "$0.2500"],
        ["prompt", "caches", "2", "$7.8500"],
    ]


def test_writing_alone_costs_more_than_it_saves(run) -> None:
    written = Usage(prompt=100_000, completion=0, cache_write=100_000)
    assert priced(written).cache_saved == Decimal("-0.25")
    with closing(Ledger(os.environ["SPECCLIENT_LEDGER"])) as ledger:
        ledger.submit(build_call("written", "a/m", usage=written, cost=priced(written)))
    assert "-$0.2500" in run("cost", "savings")[1]


def test_without_calls_it_says_so(run) -> None:
    assert "No calls yet" in run("cost", "savings")[1]


def test_a_small_sum_is_not_shown_as_zero(run) -> None:
    with closing(Ledger(os.environ["SPECCLIENT_LEDGER"])) as ledger:
        ledger.submit(build_call("hit", cached=True, saved=Decimal("0.000000062"), cost=Cost(Decimal(0))))
    assert "$0.000000062" in run("cost", "savings")[1]
