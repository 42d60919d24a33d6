"""``specclient feedback``: scores a call of another process, and refuses what it cannot score."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from loopback_server import OpenAIServer

from specclient.ledger.ledger import Ledger


def test_a_call_of_another_process_is_scored(run, hosted: OpenAIServer, monkeypatch) -> None:
    code, _, _ = run("complete", "hello", "-m", "mine/m-small")
    assert code == 0
    _, out, _ = run("cost", "export", "--format", "jsonl")
    row = json.loads(out)
    code, out, err = run("feedback", row["id"], "down")
    assert (code, out.split(), err) == (0, ["Scored", f"{row['id']}:", "0."], "")
    assert run("feedback", row["id"], "0.75")[0] == 0
    import os

    scores = Ledger(os.environ["SPECCLIENT_LEDGER"]).scores(datetime(2020, 1, 1, tzinfo=UTC), 9)
    assert [(each.call_id, each.route, each.score, each.giver) for each in scores] == [
        (row["id"], "mine/m-small", 0.0, "feedback"),
        (row["id"], "mine/m-small", 0.75, "feedback"),
    ]
    monkeypatch.setenv("SPECCLIENT_LEDGER", "off")
    code, _, err = run("feedback", row["id"], "up")
    assert code == 3
    assert "the ledger is off" in err


@pytest.mark.parametrize("score", ["1.5", "nan", "good", "-1"])
def test_other_scores_are_wrong_usage(run, score: str) -> None:
    code, _, err = run("feedback", "--", "c", score)
    assert code == 2
    assert f"{score!r} is not a score: write up, down, or a number from 0 to 1." in " ".join(err.split())


def test_an_unknown_call_is_named(run) -> None:
    code, _, err = run("feedback", "nothing", "up")
    assert code == 3
    assert "no answered call 'nothing'" in err
