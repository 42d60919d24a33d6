"""Scores of answers are stored beside the calls, once each, and found again by any process."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from specclient.ledger.ledger import Ledger
from specclient.types.call_score import CallScore
from specclient.types.route import Decision

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
AT = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgresql"])
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "ledger.sqlite3")
    url: str = request.getfixturevalue("postgres_url")
    return url


def test_scores_are_stored_once_and_read_by_time(setting: str) -> None:
    ledger, other = Ledger(setting), Ledger(setting)
    assert ledger.scores(LONG_AGO, 10) == []
    given = [
        CallScore(f"c{n}", "a/m", None if n else "code", n / 4, scored_at=AT + timedelta(seconds=n))
        for n in range(4)
    ]
    for score in (*given[::-1], given[0]):
        ledger.submit_score(score)
    assert ledger.flush(30)
    other.submit_score(given[1])
    assert other.flush(30)
    assert other.scores(LONG_AGO, 10) == given
    assert other.scores(LONG_AGO, 2) == given[2:], "the newest"
    assert other.scores(AT + timedelta(seconds=3), 10) == given[3:]
    assert ledger.prune(AT + timedelta(seconds=2)) == 0
    assert other.scores(LONG_AGO, 10) == given[2:]
    ledger.close()
    other.close()


def test_a_score_of_any_route_is_stored(setting: str) -> None:
    ledger = Ledger(setting)
    ledger.submit_score(CallScore("c", "a/m\0\ud800", "code", 0.5))
    assert ledger.flush(30)
    (found,) = ledger.scores(LONG_AGO, 10)
    assert (found.route, found.score) == ("a/m?", 0.5)
    ledger.close()


def test_a_call_is_found_with_its_route_and_task(setting: str, make_call) -> None:
    decision = Decision("a/m", "a", "m", task="code")
    plain = replace(make_call("plain"), route=decision)
    failed = replace(make_call("failed"), route=decision, status="error")
    first = replace(make_call("try-1"), route=decision, status="error", parent="whole")
    second = replace(make_call("try-2"), route=Decision("b/m", "b", "m"), parent="whole", purpose="failover")
    draft = replace(make_call("draft"), route=decision, parent="pair", purpose="draft")
    ledger = Ledger(setting)
    for call in (plain, failed, first, second, draft):
        ledger.submit(call)
    for reader in (ledger, Ledger(setting)):
        since = plain.started_at - timedelta(days=1)
        assert reader.answered("plain", since) == ("a/m", None), "a named model has no task"
        assert reader.answered("whole", since) == ("b/m", None)
        for unknown in ("failed", "try-1", "pair", "nothing"):
            assert reader.answered(unknown, since) is None
        assert ledger.flush(30)
        reader.close()


def test_scores_wait_while_the_ledger_cannot_be_written(tmp_path: Path, caplog) -> None:
    folder = tmp_path / "missing"
    folder.touch()
    ledger = Ledger(str(folder / "ledger.sqlite3"), retry_s=0.01)
    ledger.submit_score(CallScore("c", "a/m", None, 1.0))
    assert not ledger.flush(5)
    assert "cannot open the ledger" in caplog.text
    folder.unlink()
    assert ledger.flush(5)
    assert [score.call_id for score in ledger.scores(LONG_AGO, 10)] == ["c"]
    ledger.close()


def test_a_ledger_that_is_off_has_no_scores() -> None:
    ledger = Ledger("off")
    ledger.submit_score(CallScore("c", "a/m", None, 1.0))
    assert (ledger.scores(LONG_AGO, 10), ledger.answered("c", LONG_AGO)) == ([], None)
