"""Estimates of a batch's lines: at the price of the service tier that each asks for."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from specclient.batch.budget import BatchBudget
from specclient.client.core import ClientCore
from specclient.config import Settings
from specclient.types.inference_methods import CHAT
from specclient.types.request import Request

TIERS = {"flex": {"input": 1, "output": 2}, "batch": {"input": "0.5", "output": 1}}
SETTINGS = {
    "ledger": "off",
    "providers": {"mine": {"base_url": "https://mine.example/v1", "api_key": "k"}},
    "prices": {"mine/m": {"input": 2, "output": 4, "tiers": TIERS}},
}


def estimate(asked: str | None, tier: str | None = None) -> Decimal:
    core = ClientCore({"config": Settings.model_validate(SETTINGS)})
    given: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1000}
    params = given if asked is None else {**given, "service_tier": asked}
    found = BatchBudget(Decimal(1), Decimal(0), core, tier=tier).estimate(Request(CHAT, "mine/m", params))
    assert found is not None
    return found


def test_a_line_is_estimated_at_the_price_of_the_tier_it_asks_for() -> None:
    assert estimate("flex") == estimate(None) / 2
    assert estimate("default") == estimate(None)


def test_lines_of_a_job_are_estimated_at_the_batch_price() -> None:
    assert estimate("flex", tier="batch") == estimate(None, tier="batch") == estimate(None) / 4
