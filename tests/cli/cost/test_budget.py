"""``specclient cost budget``: the state of every budget as table, JSON and exit code."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from loopback_server import OpenAIServer

from specclient import BudgetExceededError, OpenAI

BUDGETS = """
[budgets.all]
usd = 0.0002
period = "month"
[budgets.team]
tokens = 100
tag = "team=*"
mode = "soft"
"""


@pytest.fixture
def spent(hosted: OpenAIServer, in_empty_folder: Path) -> OpenAIServer:
    """Two calls by two teams, each of 4 + 9 tokens and $0.00008, and a third that is refused."""
    file = in_empty_folder / "specclient.toml"
    file.write_text(file.read_text() + BUDGETS)
    ask = {"model": "mine/m-large", "messages": [{"role": "user", "content": "x"}], "max_tokens": 9}
    with OpenAI() as client:
        for team in "ab":
            client.chat.completions.create(**ask, tags={"team": team})
        with pytest.raises(BudgetExceededError):
            client.chat.completions.create(**ask)
    return hosted


def test_budgets_are_shown_as_a_table(run, spent) -> None:
    code, out, err = run("cost", "budget")
    assert (code, err) == (0, "")
    now = datetime.now(UTC)
    following = f"{now.year + now.month // 12}-{now.month % 12 + 1:02}-01 00:00"
    lines = [line.split() for line in out.splitlines()]
    titles = "budget counts mode period limit spent held left used resets (UTC)"
    assert lines[0] == titles.split()
    row = f"all all calls hard {now:%Y-%m} $0.0002 $0.00016 $0.00 $0.00004 80% {following}"
    assert lines[1] == row.split()
    row = "team (team={}) team=* soft total 100 tokens 13 tokens 0 tokens 87 tokens 13% –"
    assert lines[2:] == [row.format(team).split() for team in "ab"]


def test_budgets_are_printed_as_json(run, spent) -> None:
    _, out, _ = run("cost", "budget", "--json")
    first, second, _ = json.loads(out)["budgets"]
    assert (first["limit"], first["spent"], first["left"]) == ("0.000200000", "0.000160000", "0.000040000")
    assert (first["percent"], first["exceeded"], first["unit"], first["counts"]) == (80, False, "usd", {})
    assert datetime.fromisoformat(first["resets_at"]).day == 1
    assert (second["subject"], second["spent"], second["resets_at"]) == ("team=a", 13, None)
    assert second["counts"] == {"tag": "team=*"}


@pytest.mark.parametrize(
    ("check", "code"), [(["--check"], 0), (["--check", "80"], 1), (["--check", "81"], 0)]
)
def test_check_fails_from_the_given_percentage(run, spent, check: list[str], code: int) -> None:
    assert run("cost", "budget", *check)[0] == code
    assert run("cost", "budget", "--json", *check)[0] == code


def test_an_exceeded_budget_fails_the_check(run, spent, in_empty_folder: Path) -> None:
    file = in_empty_folder / "specclient.toml"
    file.write_text(file.read_text().replace("usd = 0.0002", "usd = 0.00016"))
    assert run("cost", "budget", "--check")[0] == 1
    assert run("cost", "budget")[0] == 0


def test_without_budgets_the_command_says_so(run, hosted) -> None:
    code, out, err = run("cost", "budget", "--check")
    assert (code, err) == (0, "")
    assert "No budgets in" in out


def test_budgets_without_a_ledger_are_an_error(run, spent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECCLIENT_LEDGER", "off")
    code, _, err = run("cost", "budget", "--check")
    assert code == 3
    assert "every process counts its budgets alone" in err
