"""The price cache: rates of models already looked up, stored per edition of the catalogue."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from specclient.config import ANY_VENDOR, Settings
from specclient.prices import cache, catalogue_file
from specclient.prices import catalogue as prices_catalogue
from specclient.prices.cache import CACHE_FILE, MAX_ENTRIES, find_price
from specclient.prices.prices import Prices
from specclient.types.usage import Usage

NOW = datetime(2026, 11, 1, tzinfo=UTC)
USAGE = Usage(prompt=1_000, completion=100, cached=10, reasoning=5)
#: Models with fixed prices, one with dated or tiered prices, and an unknown name.
MODELS = [
    ("openai", "gpt-4.1"),
    ("openai", "gpt-4.1-mini-2025-04-14"),
    ("google", "gemini-2.5-pro"),
    (ANY_VENDOR, "gpt-4.1-nano"),
    ("openai", "nobody-knows-me"),
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    cache._cache.cache_clear()
    return tmp_path / "specclient" / CACHE_FILE


def clear_process_cache() -> None:
    """Clear the cache in memory, as in a new process."""
    cache._cache.cache_clear()


def cost(vendor: str, model: str) -> Any:
    made = Prices(Settings()).price(USAGE, "mine", model, price_provider=vendor, at=NOW)
    return made.total, made.by_kind, made.source


@pytest.mark.parametrize(("vendor", "model"), MODELS)
def test_a_cached_price_equals_that_of_the_catalogue(
    vendor: str, model: str, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    first = cost(vendor, model)
    dated = find_price(vendor, model)
    clear_process_cache()
    if dated is None or dated.listed is None:
        monkeypatch.setattr(prices_catalogue, "find_model", None)  # a look-up would raise
        assert f"{vendor} {model}" in json.loads(home.read_text())["seen"]
    assert cost(vendor, model) == first
    assert (first[0] is None) == (model == "nobody-knows-me")


def test_a_price_with_tiers_is_not_cached() -> None:
    found = find_price("google", "gemini-2.5-pro")
    assert found is not None
    assert found.fixed_rates is None
    assert found.rates(NOW, 1_000) != found.rates(NOW, 300_000)


def test_another_edition_of_the_catalogue_invalidates_the_cache(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cost("openai", "gpt-4.1")
    cache_content = json.loads(home.read_text())
    cache_content["seen"]["openai gpt-4.1"]["rates"]["input"] = "77"
    home.write_text(json.dumps(cache_content))
    clear_process_cache()
    assert cost("openai", "gpt-4.1")[1]["input"] > first[1]["input"]
    home.write_text(json.dumps({**cache_content, "edition": "0.0.1"}))
    clear_process_cache()
    assert cost("openai", "gpt-4.1") == first
    before = catalogue_file.edition({})
    (home.parent / "prices.json").write_text("{}")
    assert catalogue_file.edition({}) != before == catalogue_file.edition({"SPECCLIENT_PRICES": "off"})


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        '{"edition": null}',
        '{"edition": "E", "seen": {"openai gpt-4.1": {"rates": {"input": "abc"}}}}',
        '{"edition": "E", "seen": {"openai gpt-4.1": {"vendor": "x"}}}',
        '{"edition": "E", "seen": 7}',
    ],
)
def test_a_damaged_cache_file_is_rewritten(home: Path, damage: str) -> None:
    first = cost("openai", "gpt-4.1")
    edition = json.loads(home.read_text())["edition"]
    home.write_text(damage.replace('"E"', json.dumps(edition)))
    clear_process_cache()
    assert cost("openai", "gpt-4.1") == first
    assert "openai gpt-4.1" in json.loads(home.read_text())["seen"]


def test_prices_are_found_if_the_cache_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(blocked))
    assert cost("openai", "gpt-4.1")[0] is not None


def test_the_cache_file_is_limited_in_size(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices_catalogue, "find_model", lambda vendor, name: None)
    monkeypatch.setattr(cache, "write_atomically", lambda path, text: path.write_text(text))
    for number in range(MAX_ENTRIES + 3):
        find_price("openai", f"m{number}")
    names = list(json.loads(home.read_text())["seen"])
    assert (len(names), names[0], names[-1]) == (MAX_ENTRIES, "openai m3", f"openai m{MAX_ENTRIES + 2}")


def test_a_model_with_a_configured_price_needs_no_catalogue() -> None:
    table = {"openai/gpt-4.1": {"input": "1", "output": "2"}}
    prices = Prices(Settings.model_validate({"prices": table}))
    assert prices.is_loaded("openai", "gpt-4.1", "openai")
    assert not prices.is_loaded("openai", "gpt-4.1-mini", "openai")
    prices.load("gpt-4.1-mini", "openai")
    assert prices.is_loaded("openai", "gpt-4.1-mini", "openai")
