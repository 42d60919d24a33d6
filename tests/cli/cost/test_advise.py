"""``specclient cost advise``: the table and JSON, from a ledger and the candidates of a configuration."""

from __future__ import annotations

import json
import os
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from ledger_fixtures import build_call

from specclient.ledger.ledger import Ledger
from specclient.types.usage import Cost, Usage


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record two calls of a large model, one of them 40 days ago, and configure a smaller candidate."""
    config = tmp_path / "advise.toml"
    config.write_text(
        'candidates = ["openai/small", "openai/worse"]\n'
        '[prices."openai/large"]\ninput = 10\noutput = 20\n'
        '[prices."openai/small"]\ninput = 1\noutput = 2\n'
        '[prices."openai/worse"]\ninput = 0.1\noutput = 0.2\n'
        '[quality]\n"openai/large" = 0.5\n"openai/small" = 0.5\n"openai/worse" = 0.4\n'
    )
    monkeypatch.setenv("SPECCLIENT_CONFIG", str(config))
    now = datetime.now(UTC)
    with closing(Ledger(os.environ["SPECCLIENT_LEDGER"])) as ledger:
        for number, days in enumerate((1, 40)):
            ledger.submit(
                build_call(
                    str(number),
                    "openai/large",
                    started_at=now - timedelta(days=days),
                    usage=Usage(100_000, 10_000),
                    cost=Cost(Decimal("1.2"), source="x"),
                )
            )


@pytest.mark.usefixtures("calls")
def test_the_cheaper_model_of_the_same_quality_is_advised(run: Any) -> None:
    code, out, err = run("cost", "advise")
    assert code == 0, err
    text = " ".join(out.split())
    assert "$1.08 $1.20 1 openai/large use openai/small" in text
    assert "worse" not in text
    code, out, _ = run("cost", "advise", "--since", "60d", "--json")
    (found,) = json.loads(out)
    assert (found["calls"], found["saved"], found["cost"]) == (2, "2.160000000", "2.400000000")


def test_an_empty_ledger_has_no_advice(run: Any) -> None:
    code, out, _ = run("cost", "advise")
    assert code == 0
    assert "No calls yet" in out
    assert json.loads(run("cost", "advise", "--json")[1]) == []
