"""The saved price catalogue: validation, atomic writes, use, and the fallback to the installed one."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from specclient import ConfigurationError
from specclient.config import Settings
from specclient.prices import catalogue
from specclient.prices.catalogue import save_catalogue, saved_catalogue
from specclient.prices.prices import Prices
from specclient.types.usage import Usage

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
NEW: list[dict[str, Any]] = [
    {
        "id": "openai",
        "name": "OpenAI",
        "api_pattern": "https://api\\.openai\\.com",
        "model_match": {"starts_with": "gpt-"},
        "models": [
            {
                "id": "gpt-next",
                "match": {"starts_with": "gpt-next"},
                "prices": {
                    "input_mtok": 0.15,
                    "output_mtok": {"base": 3, "tiers": [{"start": 100, "price": 6}]},
                },
            }
        ],
    }
]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "deep" / "prices.json"
    monkeypatch.setenv("SPECCLIENT_PRICES", str(file))
    return file


def content(providers: Any = NEW) -> bytes:
    return json.dumps(providers).encode()


def cost(model: str = "gpt-next", prompt: int = 100) -> Any:
    usage = Usage(prompt=prompt, completion=10)
    return Prices(Settings()).price(usage, "openai", model, price_provider="openai", at=AT)


def test_a_saved_catalogue_is_used_until_it_is_deleted(path: Path) -> None:
    assert cost().total is None
    copy = save_catalogue(content(), fetched=AT, env=os.environ)
    assert (copy.path, copy.fetched, copy.models) == (path, AT, 1)
    assert saved_catalogue(os.environ) == copy
    priced = cost()
    assert priced.total == Decimal("0.000045")  # 100 at $0.15, 10 at $3: exact, although JSON has floats
    assert priced.source == "genai-prices (fetched 2026-11-21): openai/gpt-next on 2026-11-21"
    assert cost(prompt=101).by_kind["output"] == Decimal("0.00006")
    path.unlink()
    assert cost().total is None
    assert cost("gpt-4.1").source.startswith("genai-prices: openai/gpt-4.1")


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"<html>",
        b"{}",
        b"[]",
        b"[1]",
        b"null",
        content([{**NEW[0], "models": []}]),
        content([{"id": "x"}]),
        content([{**NEW[0], "models": [{**NEW[0]["models"][0], "prices": {"input_mtok": "cheap"}}]}]),
        b"[" * 100_000,
    ],
)
def test_an_invalid_catalogue_does_not_replace_the_saved_one(path: Path, bad: bytes) -> None:
    save_catalogue(content(), fetched=AT, env=os.environ)
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="not a price catalogue"):
        save_catalogue(bad, fetched=AT, env=os.environ)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["prices.json"]


def test_the_error_of_an_unwritable_catalogue_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"cannot write .*SPECCLIENT_PRICES"):
        save_catalogue(
            content(), fetched=AT, env={"SPECCLIENT_PRICES": str(tmp_path / "file" / "prices.json")}
        )
    with pytest.raises(ConfigurationError, match="SPECCLIENT_PRICES is 'off'"):
        save_catalogue(content(), fetched=AT, env={"SPECCLIENT_PRICES": "off"})


@pytest.mark.parametrize("text", ["", "{}", '{"package": 1}', "[[[["])
def test_a_damaged_file_is_logged_once_and_the_installed_catalogue_is_used(
    path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    path.write_text(text)
    caplog.set_level(logging.WARNING, logger="specclient")
    for _ in range(2):
        assert cost("gpt-4.1").total
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) <= 1
    assert all("specclient cost update-prices" in each for each in messages)
    assert saved_catalogue(os.environ) is None


def test_a_catalogue_saved_by_another_package_version_is_ignored(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_catalogue(content(), fetched=AT, env=os.environ)
    saved = json.loads(path.read_text())
    path.write_text(json.dumps({**saved, "package": "0.0.1"}))
    assert saved_catalogue(os.environ) is None
    assert cost("gpt-4.1").source.startswith("genai-prices: ")


def test_the_default_catalogue_is_in_the_users_data_folder(clean_home: Path) -> None:
    copy = save_catalogue(content(), fetched=AT, env={})
    assert copy.path.name == "prices.json"
    assert clean_home in copy.path.parents
    assert cost().total is not None


def test_the_private_parser_of_genai_prices_that_we_call_exists() -> None:
    """The library has no public function for data in memory, so a new version may remove the one called."""
    assert catalogue._providers(NEW)[0].models[0].id == "gpt-next"
