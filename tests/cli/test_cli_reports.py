"""``specclient cost``, ``route`` and ``models``: the same facts as tables, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import os
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest
from servers import OpenAIServer, hang, reply

from specclient import BadRequestError, OpenAI


@pytest.fixture
def spent(hosted: OpenAIServer) -> OpenAIServer:
    """Three calls by two teams, one of them failed, and one without a price."""
    hosted.script(
        reply(200, _body(100, 50)), reply(200, _body(10, 5)), reply(400, {"error": {"message": "no"}})
    )
    with OpenAI() as client:
        for model, team in (("m-large", "a"), ("m-small", "b"), ("m-small", "b"), ("m-free", "b")):
            ask = {"model": f"mine/{model}", "messages": [{"role": "user", "content": "x"}]}
            with suppress(BadRequestError):
                client.chat.completions.create(**ask, tags={"team": team})
    return hosted


def _body(prompt: int, completion: int) -> dict:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {"id": "x", "choices": [{"index": 0, "message": {"content": "hi"}}], "usage": usage}


def test_cost_report_table(run, spent) -> None:
    code, out, err = run("cost", "report")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split()[:4] == ["provider", "model", "calls", "failed"]
    assert lines[1].split()[:4] == ["mine", "mine/m-large", "1", "0"]
    assert lines[1].split()[-1] == "$0.0006"
    assert "total" in lines[4]
    assert lines[4].split()[-1] == "$0.00063"
    assert "1 call has no known price" in lines[5]
    assert "\x1b" not in out


def test_cost_report_json(run, spent) -> None:
    _, out, _ = run("cost", "report", "--by", "tag:team", "--json")
    told = json.loads(out)
    assert set(told) == {"by", "lines", "total", "ledger"}
    assert told["by"] == ["tag:team"]
    assert [(line["tag:team"], line["calls"], line["errors"]) for line in told["lines"]] == [
        ("a", 1, 0),
        ("b", 3, 1),
    ]
    assert sum(Decimal(line["cost"]) for line in told["lines"]) == Decimal(told["total"]["cost"])
    assert Decimal(told["total"]["cost"]) == Decimal("0.00063")
    assert told["total"]["unpriced"] == 1
    assert told["ledger"] == os.environ["SPECCLIENT_LEDGER"]


def test_cost_report_csv(run, spent) -> None:
    _, out, _ = run("cost", "report", "--by", "model", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["model"], row["cost_nano"]) for row in rows][:2] == [
        ("mine/m-large", "600000"),
        ("mine/m-small", "30000"),
    ]
    assert run("cost", "report", "--csv", "--json")[0] == 2


def test_cost_report_narrowed(run, spent) -> None:
    _, out, _ = run("cost", "report", "--tag", "team=b", "--json")
    assert json.loads(out)["total"]["calls"] == 3
    _, out, _ = run("cost", "report", "--since", "1h", "--json")
    assert json.loads(out)["total"]["calls"] == 4
    _, out, _ = run("cost", "report", "--until", "1h", "--json")
    assert json.loads(out) == json.loads(out) | {"lines": []}
    assert "matches" in run("cost", "report", "--until", "1h")[1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--by", "colour"], ["'colour'", "provider", "tag:NAME"]),
        (["--since", "yesterday"], ["'yesterday'", "7d"]),
        (["--tag", "team"], ["NAME=VALUE"]),
    ],
    ids=str,
)
def test_cost_report_refuses(run, words, told) -> None:
    code, out, err = run("cost", "report", *words)
    assert (code, out) == (2, "")
    assert all(word in err for word in told)


def test_empty_ledger_tells_how_to_begin(run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run("cost", "report")
    assert code == 0
    assert "No calls yet" in out
    assert "specclient complete" in out
    assert not Path(os.environ["SPECCLIENT_LEDGER"]).exists(), "reading makes no file"
    monkeypatch.setenv("SPECCLIENT_LEDGER", "off")
    assert "ledger is off" in run("cost", "report")[1]
    assert json.loads(run("cost", "report", "--json")[1])["ledger"] == "off"


def test_ledger_that_is_no_database(run, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"no database" * 100)
    monkeypatch.setenv("SPECCLIENT_LEDGER", str(broken))
    code, out, err = run("cost", "report")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert str(broken) in err
    assert "SPECCLIENT_LEDGER" in err
    assert broken.read_bytes() == b"no database" * 100, "nothing is lost"


def test_route_explain_names_every_candidate_and_sends_nothing(run, spent) -> None:
    asked = len(spent.requests)
    code, out, _ = run("route", "explain", "hello", "--minimize", "cost", "--max-tokens", "10")
    assert code == 0
    assert len(spent.requests) == asked
    heading, large, small = out.splitlines()
    assert heading.split() == ["route", "verdict", "cost", "latency", "accepted", "calls"]
    assert large.split()[:2] == ["mine/m-large", "left"]
    assert "the chosen" in large
    assert small.split()[:2] == ["mine/m-small", "chosen"]
    assert "cheapest" in small


def test_route_explain_json(run, spent) -> None:
    _, out, _ = run("route", "explain", "hello", "--policy", "cheap", "--json")
    told = json.loads(out)
    assert told["chosen"] == "mine/m-small"
    assert [c["route"] for c in told["candidates"]] == ["mine/m-large", "mine/m-small"]
    assert set(told["candidates"][0]) == {
        "route", "cost", "latency_s", "acceptance_rate", "evidence", "verdict", "reason",
    }  # fmt: skip
    assert Decimal(told["candidates"][0]["cost"]) > Decimal(told["candidates"][1]["cost"])
    assert told["candidates"][0]["evidence"] == 1


def test_route_explain_without_a_route(run, hosted) -> None:
    code, out, err = run("route", "explain", "hello", "--max-cost", "0")
    assert (code, err.count("\n")) == (4, 1)
    assert out.count("refused") == 2
    assert "exceeds max_cost_usd 0" in out
    code, out, _ = run("route", "explain", "hello", "--max-cost", "0", "--json")
    assert (code, json.loads(out)["chosen"]) == (4, None)


def test_default_candidates_without_a_key_are_unavailable(run) -> None:
    _, out, _ = run("route", "explain", "hello")
    assert out.count("no key: set OPENAI_API_KEY") == 2


def test_models_tell_keys_by_name_only(run, hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "gsk-very-secret")
    code, out, _ = run("models")
    assert code == 0
    assert "gsk-very-secret" not in out
    told = {line.split()[0]: line for line in out.splitlines() if line}
    assert " set " in told["groq"]
    assert "not set" in told["openai"]
    assert "OPENAI_API_KEY" in told["openai"]
    assert "not needed" in told["mine"]
    assert "draft" in told["local/demo"].split()
    assert "plain" in told["local/demo-target"].split()
    _, out, _ = run("models", "--json")
    assert "gsk-very-secret" not in out
    values = json.loads(out)
    assert set(values) == {"local", "unavailable", "providers"}
    assert {m["model"] for m in values["local"]} == {"local/demo", "local/demo-target"}
    assert next(p for p in values["providers"] if p["name"] == "groq")["key"] == "set"
    assert not hosted.requests


def test_models_check_asks_who_can_be_asked(run, hosted, in_empty_folder) -> None:
    (in_empty_folder / "specclient.toml").write_text(
        f'[providers.mine]\nbase_url = "{hosted.base_url}"\n'
        f'[providers.refusing]\nbase_url = "{hosted.base_url}"\n'
        '[providers.gone]\nbase_url = "http://127.0.0.1:9/v1"\n'
    )
    code, out, _ = run("models", "--check", "--json")
    told = {p["name"]: p["check"] for p in json.loads(out)["providers"]}
    assert code == 0
    assert told["mine"] == told["refusing"] == "reachable, 2 models"
    assert told["gone"] == "unreachable"
    assert told["openai"] is None
    hosted.script(reply(401, {"error": {"message": "who?"}}), reply(401, {"error": {"message": "who?"}}))
    assert "answers 401" in run("models", "--check")[1]


def test_models_check_waits_no_longer_than_it_says(run, hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specclient_cli.models.CHECK_S", 0.2)
    hosted.script(*[hang] * 3)
    _, out, _ = run("models", "--check", "--json")
    assert "no answer within 0.2 s" in [p["check"] for p in json.loads(out)["providers"]]


def test_models_list(run, hosted) -> None:
    assert run("models", "list", "mine") == (0, "mine/m-large\nmine/m-small\n", "")
    assert [m["id"] for m in json.loads(run("models", "list", "mine", "--json")[1])] == ["m-large", "m-small"]
    assert run("models", "list", "local")[1] == "local/demo\nlocal/demo-target\n"
    code, _, err = run("models", "list", "nobody")
    assert (code, err.count("\n")) == (1, 1)
    assert "'nobody'" in err
    code, _, err = run("models", "list", "openai")
    assert code == 3
    assert "OPENAI_API_KEY" in err
