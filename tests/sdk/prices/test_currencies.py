"""Prices in other currencies are converted exactly, at the rate and date of the configuration."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from specclient.config import Settings, load
from specclient.errors import ConfigurationError
from specclient.prices.prices import Prices
from specclient.types.usage import Cost, Usage

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)

CONFIGURATION = """
[currencies.CNY]
usd = 0.1405
on = 2026-11-01

[prices."mine/*"]
currency = "CNY"
input = 2
output = 8
per_call = 0.01
tiers.batch = {input = 1, output = 4}
tiers.flex = {currency = "USD", input = 1, output = 4}
"""


def _settings(folder: Path, text: str = CONFIGURATION) -> Settings:
    (folder / "specclient.toml").write_text(text)
    return load(folder / "specclient.toml")


def _price(settings: Settings, tier: str | None = None) -> Cost:
    usage = Usage(prompt=1_000_000, completion=500_000, traffic=tier)
    return Prices(settings).price(usage, "mine", "m", at=AT)


def test_costs_are_exact_dollars_and_the_source_has_both(tmp_path: Path) -> None:
    found = _price(_settings(tmp_path))
    assert found.by_kind == {
        "input": Decimal("0.281"),
        "output": Decimal("0.562"),
        "request": Decimal("0.001405"),
    }
    assert found.total == Decimal("0.844405")
    assert found.source == (
        '[prices."mine/*"] in the configuration: 2 and 8 CNY at $0.1405 for one on 2026-11-01'
    )


def test_a_tier_has_the_tables_currency_or_its_own(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    assert _price(settings, "batch").total == Decimal("0.4215")
    assert _price(settings, "flex").total == Decimal(3)


def test_a_currency_without_a_rate_is_refused(tmp_path: Path) -> None:
    text = CONFIGURATION.replace("currencies.CNY", "currencies.EUR")
    with pytest.raises(
        ConfigurationError, match=r"the price of mine/\* is in CNY.*add \[currencies.CNY\] with usd"
    ):
        _settings(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new"), [("usd = 0.1405", "usd = 0"), ("on = 2026-11-01", ""), ('"CNY"', '"yuan"')]
)
def test_invalid_rates_and_codes_are_refused(tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises(ConfigurationError):
        _settings(tmp_path, CONFIGURATION.replace(old, new))
