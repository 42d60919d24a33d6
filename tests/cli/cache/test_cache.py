"""``specclient cache``: what is kept, what it saved, and its removal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from loopback_server import OpenAIServer

from specclient import OpenAI

ASK = {
    "model": "mine/m-large",
    "messages": [{"role": "user", "content": "x"}],
    "temperature": 0,
    "cache": True,
}


@pytest.fixture
def used(hosted: OpenAIServer, in_empty_folder: Path) -> Path:
    """Two kept answers, of which one has answered two calls; the file that keeps them."""
    store = in_empty_folder / "answers.sqlite3"
    file = in_empty_folder / "specclient.toml"
    file.write_text(f'{file.read_text()}\n[cache]\nstore = "{store}"\nmax_entries = 50\n')
    with OpenAI() as client:
        for _ in range(3):
            client.chat.completions.create(**ASK)
        client.chat.completions.create(**ASK, max_tokens=3)
    assert len(hosted.requests) == 2
    return store


def test_statistics_are_shown_as_a_table(run, used: Path) -> None:
    code, out, err = run("cache", "stats")
    assert (code, err) == (0, "")
    cells = {line.split("  ")[0].strip(): line.split("  ")[-1].strip() for line in out.splitlines()}
    assert cells["used by"] == "calls that ask for it"
    assert cells["answers"] == "2 of at most 50"
    assert cells["calls answered"] == "2"
    assert cells["saved"] == "$0.00016"
    assert str(used) in out.replace("\n", "")


def test_statistics_are_shown_as_json(run, used: Path) -> None:
    code, out, _ = run("cache", "stats", "--json")
    values = json.loads(out)
    assert code == 0
    assert (values["store"], values["enabled"], values["entries"]) == (str(used), False, 2)
    assert (values["cached_calls"], values["saved"]) == (2, "0.000160000")
    assert values["bytes"] > 400
    assert values["oldest"] <= values["newest"]
    assert (values["max_entries"], values["max_bytes"], values["max_age_s"]) == (50, 2**28, 604800.0)


def test_the_cost_report_has_what_the_cache_saved(run, used: Path) -> None:
    code, out, _ = run("cost", "report", "--by", "model", "--format", "markdown")
    assert code == 0
    assert "from cache" in out
    assert "cache saved" in out
    assert "$0.00016" in out
    total = json.loads(run("cost", "report", "--json")[1])["total"]
    assert (total["cached_calls"], total["cache_saved"], total["cost"]) == (2, "0.000160000", "0.000160000")


def test_clearing_asks_first(run, used: Path) -> None:
    code, _, err = run("cache", "clear")
    assert code == 2
    assert "this would remove 2 answers" in err
    code, out, _ = run("cache", "clear", "--yes")
    assert code == 0
    assert "Removed 2 answers from" in out
    assert json.loads(run("cache", "stats", "--json")[1])["entries"] == 0
    assert "keeps no answers" in run("cache", "clear")[1]


def test_a_cache_that_was_never_used_is_empty(run, hosted: OpenAIServer, clean_home: Path) -> None:
    values = json.loads(run("cache", "stats", "--json")[1])
    assert (values["entries"], values["oldest"], values["saved"]) == (0, None, "0.000000000")
    assert values["store"] == str(clean_home / "specclient" / "cache.sqlite3")
    assert not Path(values["store"]).exists()


def test_a_store_that_cannot_be_used_is_an_error_of_the_configuration(
    run, in_empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = in_empty_folder / "cache.sqlite3"
    file.write_bytes(b"garbage" * 1000)
    monkeypatch.setenv("SPECCLIENT_CACHE", str(file))
    code, _, err = run("cache", "stats")
    assert code == 3
    assert "file is not a database" in err
    monkeypatch.setenv("SPECCLIENT_CACHE", "postgresql://me:hunter2@127.0.0.1:1/db")
    code, _, err = run("cache", "clear", "--yes")
    assert code == 3
    assert "hunter2" not in err
    assert "hunter2" not in run("config", "show", "cache")[1]
