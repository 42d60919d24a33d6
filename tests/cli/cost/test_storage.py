"""``specclient cost storage``: one row a day, by the bytes beyond the free ones."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from loopback_server import OpenAIServer, reply

from specclient.ledger.ledger import Ledger
from specclient.ledger.row import LedgerRow

GB = 2**30
JSON = {"content-type": "application/json"}


def page(sizes: Sequence[Any], *, more: bool = False) -> Any:
    stores = [
        {"id": f"vs_{number}", "object": "vector_store", "status": "completed", "usage_bytes": size}
        for number, size in enumerate(sizes)
    ]
    return reply(200, {"object": "list", "data": stores, "has_more": more}, JSON)


@pytest.fixture
def config(tmp_path: Path, openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "specclient.toml"
    table = f'base_url = "{openai_server.base_url}"\napi_key = "k"\n'
    names = {"openai": "openai", "mine": "together"}
    tables = [f'[providers.{name}]\n{table}price_provider = "{vendor}"\n' for name, vendor in names.items()]
    file.write_text("".join(tables))
    monkeypatch.setenv("SPECCLIENT_CONFIG", str(file))
    return file


def rows() -> list[LedgerRow]:
    with closing(Ledger(os.environ["SPECCLIENT_LEDGER"])) as ledger:
        return ledger.rows()


def test_a_day_is_booked_once_and_the_free_gigabyte_of_the_account_is_taken_off(
    run: Any, openai_server: OpenAIServer, config: Path
) -> None:
    openai_server.script(page([GB, GB // 2], more=True), page([GB]), page([9 * GB]))
    code, out, _ = run("cost", "storage", "--tag", "team=x")
    text = " ".join(out.split())
    assert code == 0
    assert "3 vector stores of 2.500 GB, of which 1 GB is free; ~$0.1500 for the day" in text
    assert "https://developers.openai.com/api/docs/pricing" in text
    queries = [received.query for received in openai_server.requests]
    assert queries == ["limit=100", "limit=100&after=vs_1"]
    run("cost", "storage")
    (row,) = rows()
    assert (row.cost, row.operation, row.cost_estimated) == (Decimal("0.15"), "storage", True)
    assert row.tags == {"team": "x"}


@pytest.mark.parametrize("size", [-1, "x", None, 10**16])
def test_an_unknown_size_is_unpriced(run: Any, openai_server: OpenAIServer, config: Path, size: Any) -> None:
    openai_server.script(page([size]))
    found = json.loads(run("cost", "storage", "--json")[1])
    assert (found["bytes"], found["cost"]) == (None, None)
    assert rows()[0].cost is None


def test_a_vendor_without_a_price_is_unpriced_until_the_configuration_has_one(
    run: Any, openai_server: OpenAIServer, config: Path
) -> None:
    openai_server.script(page([GB]), page([GB]))
    found = json.loads(run("cost", "storage", "mine", "--json")[1])
    assert found["cost"] is None
    assert '[prices."mine/vector_stores".units]' in found["source"]
    config.write_text(f'{config.read_text()}[prices."mine/*"]\nunits = {{storage_gb_day = 0.2}}\n')
    assert json.loads(run("cost", "storage", "mine", "--json")[1])["cost"] == "0.2"


def test_an_answer_that_is_no_list_is_refused(run: Any, openai_server: OpenAIServer, config: Path) -> None:
    openai_server.script(reply(200, {"object": "x"}, JSON))
    code, _, error = run("cost", "storage")
    assert code == 3
    assert "has no list 'data'" in " ".join(error.split())
