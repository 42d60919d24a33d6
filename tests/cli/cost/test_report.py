"""``specclient cost``, ``route`` and ``models``: equal figures as tables, JSON and CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest
from loopback_server import OpenAIServer, hang, reply
from pseudo_terminal import Terminal

from specclient import BadRequestError, OpenAI
from specclient.types.route import Candidate


@pytest.fixture
def spent(hosted: OpenAIServer) -> OpenAIServer:
    """Four calls by two teams: one failed, and one is without a price."""
    hosted.script(
        reply(200, _body(100, 50)), reply(200, _body(10, 5)), reply(400, {"error": {"message": "no"}})
    )
    with OpenAI() as client:
        for model, team in (("m-large", "a"), ("m-small", "b"), ("m-small", "b"), ("m-free", "b")):
            ask = {"model": f"mine/{model}", "messages": ASK}
            with suppress(BadRequestError):
                client.chat.completions.create(**ask, tags={"team": team})
    return hosted


ASK = [{"role": "user", "content": "x"}]


def _body(prompt: int, completion: int, predicted: tuple[int, int] | None = None) -> dict:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    if predicted is not None:
        names = ("accepted_prediction_tokens", "rejected_prediction_tokens")
        usage["completion_tokens_details"] = dict(zip(names, predicted, strict=True))
    return {"id": "x", "choices": [{"index": 0, "message": {"content": "hi"}}], "usage": usage}


def test_cost_report_prints_a_table(run, spent) -> None:
    code, out, err = run("cost", "report")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split()[:4] == ["provider", "model", "calls", "failed"]
    assert lines[1].split()[:4] == ["mine", "mine/m-large", "1", "0"]
    assert lines[1].split()[-1] == "$0.0006"
    assert lines[3].split()[-1] == "unknown", "an unknown cost was shown as $0"
    assert "total" in lines[4]
    assert lines[4].split()[-1] == "$0.00063"
    assert lines[5].split() == ["unpriced", "1", "1", "unknown"], "unpriced calls have no line of their own"
    assert "1 call has no known price" in lines[6]
    assert "\x1b" not in out


def test_cost_report_groups_by_service_tier(run, hosted) -> None:
    hosted.script(
        reply(200, {**_body(100, 50), "service_tier": "default"}), reply(200, _body(100, 50)),
        reply(200, {**_body(100, 50), "service_tier": "priority"}),
    )  # fmt: skip
    with OpenAI() as client:
        for asked in ({}, {"service_tier": "flex"}, {}):
            client.chat.completions.create(model="mine/m-large", messages=ASK, **asked)
    rows = csv.DictReader(io.StringIO(run("cost", "report", "--by", "tier", "--csv")[1]))
    assert sorted((row["tier"], row["calls"]) for row in rows) == [
        ("flex", "1"), ("priority", "1"), ("standard", "1")
    ]  # fmt: skip


def test_cost_report_prints_json(run, spent) -> None:
    _, out, _ = run("cost", "report", "--by", "tag:team", "--json")
    report = json.loads(out)
    assert set(report) == {"by", "lines", "total", "savings", "ledger"}
    assert report["savings"] == []
    assert report["by"] == ["tag:team"]
    assert [(line["tag:team"], line["calls"], line["errors"]) for line in report["lines"]] == [
        ("a", 1, 0),
        ("b", 3, 1),
    ]
    assert sum(Decimal(line["cost"]) for line in report["lines"]) == Decimal(report["total"]["cost"])
    assert Decimal(report["total"]["cost"]) == Decimal("0.00063")
    assert report["total"]["unpriced"] == 1
    assert report["ledger"] == os.environ["SPECCLIENT_LEDGER"]


def test_cost_report_prints_csv(run, spent) -> None:
    _, out, _ = run("cost", "report", "--by", "model", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["model"], row["cost_nano"]) for row in rows][:2] == [
        ("mine/m-large", "600000"),
        ("mine/m-small", "30000"),
    ]
    assert run("cost", "report", "--csv", "--json")[0] == 2


def test_cost_report_prints_markdown(run, spent) -> None:
    _, out, _ = run("cost", "report", "--by", "model", "--format", "markdown")
    head, rule, *rows = [line for line in out.splitlines() if line.startswith("|")]
    assert head.startswith("| model | calls |")
    assert set(rule) <= set("|- :")
    assert len({row.count("|") for row in (head, rule, *rows)}) == 1
    assert rows[0].endswith("| $0.0006 |")
    assert rows[-2].endswith("| **$0.00063** |")
    assert rows[-1].startswith("| unpriced | 1 |")


def test_cost_report_writes_a_file(run, spent, tmp_path) -> None:
    page, table = tmp_path / "costs.html", tmp_path / "costs.txt"
    assert run("cost", "report", "--format", "html", "-o", str(page)) == (0, "", "")
    assert '<data id="cost" value="0.000630000">$0.00063</data>' in page.read_text(encoding="utf-8")
    assert run("cost", "report", "-o", str(table)) == (0, "", "")
    assert table.read_text(encoding="utf-8") == run("cost", "report")[1]
    for path in (tmp_path / "nowhere" / "x", table / "x"):  # a folder that does not exist, a file as a folder
        code, out, err = run("cost", "report", "-o", str(path))
        assert (code, out) == (2, "")
        assert path.parent.name in err
        assert "choose another file with -o" in " ".join(err.split())
    assert sorted(each.name for each in tmp_path.iterdir() if "part" in each.name) == []


@pytest.mark.parametrize("words", [("--csv", "--format", "html"), ("--json", "--csv")], ids=str)
def test_cost_report_refuses_two_formats(run, words) -> None:
    code, _, err = run("cost", "report", *words)
    assert code == 2
    assert all(word.lstrip("-") in err for word in words if word != "--format")


def test_html_is_not_printed_to_a_terminal(spent) -> None:
    terminal = Terminal("cost", "report", "--format", "html")
    assert terminal.wait() == 2
    assert "-o FILE" in terminal.output


def test_cost_report_shows_savings_by_speculation(run, hosted) -> None:
    hosted.script(*(reply(200, _body(10, 100)) for _ in range(3)), reply(200, _body(10, 125, (60, 25))))
    with OpenAI() as client:
        for _ in range(4):
            client.chat.completions.create(model="mine/m-large", messages=ASK)
    _, out, _ = run("cost", "report", "--by", "pair")
    saved = out[out.index("Savings by speculation") :].splitlines()
    assert saved[1].split()[:4] == ["pair", "calls", "saved", "speedup"]
    assert saved[2].split()[:3] == ["mine/m-large", "1", "−$0.0002"]
    assert "without the rejected prediction" in out
    assert "the median of 3 calls of mine/m-large" in out
    (saving,) = json.loads(run("cost", "report", "--by", "strategy", "--json")[1])["savings"]
    assert (saving["cost_nano"], saving["alone_nano"], saving["saved"]) == (
        1_020_000,
        820_000,
        "-0.000200000",
    )


@pytest.mark.parametrize("width", [30, 44, 80, 200])
def test_tables_fit_the_terminals_width(spent, width) -> None:
    terminal = Terminal("cost", "report", width=width)
    assert terminal.wait() == 0
    lines = re.sub(r"\x1b\[[\d;]*m", "", terminal.output).splitlines()
    assert all(len(line) <= width for line in lines)
    assert "$0.00063" in next(line for line in lines if line.startswith("total"))


def test_cost_top_lists_the_most_expensive_groups_and_calls(run, spent) -> None:
    _, out, _ = run("cost", "top", "-n", "1")
    assert out.splitlines()[1].split()[0] == "mine/m-large"
    assert "all 3 groups" in out
    dearest = json.loads(run("cost", "top", "--by", "call", "--json", "-n", "2")[1])
    assert [call["cost"] for call in dearest] == ["0.000600000", "0.000030000"]
    _, out, _ = run("cost", "top", "--by", "call", "-n", "2")
    assert [line.split()[-1] for line in out.splitlines()] == ["cost", "$0.0006", "$0.00003"]
    lines = json.loads(run("cost", "top", "--by", "tag", "--json")[1])["lines"]
    assert [(line["tag"], line["calls"]) for line in lines] == [("team=a", 1), ("team=b", 3)]
    assert "matches" in run("cost", "top", "--until", "2020-01-01")[1]
    code, _, err = run("cost", "top", "--by", "call,model")
    assert code == 2
    assert "only call or tag" in err


def test_cost_tail_prints_the_latest_calls(run, spent) -> None:
    _, out, _ = run("cost", "tail", "-n", "3")
    lines = out.splitlines()
    assert [line.split()[4] for line in lines] == ["mine/m-small", "mine/m-small", "mine/m-free"]
    assert "BadRequestError" in lines[1]
    assert lines[2].split()[1] == "unknown"
    _, out, _ = run("cost", "tail", "--json", "--tag", "team=a")
    assert json.loads(out)["cost"] == "0.000600000"
    assert run("cost", "tail", "-f", "--until", "1h")[0] == 2


def test_cost_tail_follows_other_processes(hosted) -> None:
    terminal = Terminal("cost", "tail", "-f", "--interval", "0.05", "--json", width=4000)
    hosted.script(*(reply(200, _body(10, number)) for number in (1, 2, 3)))
    with OpenAI() as client:
        for number in (1, 2, 3):
            client.chat.completions.create(model="mine/m-small", messages=ASK)
            terminal.read_until(f'"completion_tokens": {number}')
    assert terminal.interrupt() == 130
    assert terminal.output.count('"id"') == 3, "a call was not printed exactly once"


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_cost_export_writes_every_call(run, spent, tmp_path, form) -> None:
    _, out, _ = run("cost", "export", "--format", form)
    read = csv.DictReader(io.StringIO(out)) if form == "csv" else map(json.loads, out.splitlines())
    rows = list(read)
    assert [row["model"] for row in rows] == ["mine/m-large", "mine/m-small", "mine/m-small", "mine/m-free"]
    assert [row["cost"] or "" for row in rows] == ["0.000600000", "0.000030000", "0.000000000", ""]
    assert rows[0]["tags"] == ('{"team":"a"}' if form == "csv" else {"team": "a"})
    file = tmp_path / "calls"
    code, out, err = run("cost", "export", "--format", form, "-o", str(file), "--tag", "team=b")
    assert (code, out, err) == (0, "", f"3 calls written to {file}\n")
    assert len(file.read_text(encoding="utf-8").splitlines()) == 3 + (form == "csv")


def test_cost_prune_deletes_only_with_yes(run, spent) -> None:
    assert "No call" in run("cost", "prune", "--before", "1h")[1]
    code, out, err = run("cost", "prune", "--before", "0m")
    assert (code, out) == (2, "")
    assert "this would delete 4 calls" in err
    assert "--yes" in err
    assert json.loads(run("cost", "report", "--json")[1])["total"]["calls"] == 4
    assert "Deleted 4 calls" in run("cost", "prune", "--before", "0m", "--yes")[1]
    assert json.loads(run("cost", "report", "--json")[1])["total"]["calls"] == 0


def test_cost_report_can_be_filtered(run, spent) -> None:
    _, out, _ = run("cost", "report", "--tag", "team=b", "--json")
    assert json.loads(out)["total"]["calls"] == 3
    _, out, _ = run("cost", "report", "--since", "1h", "--json")
    assert json.loads(out)["total"]["calls"] == 4
    _, out, _ = run("cost", "report", "--until", "1h", "--json")
    assert json.loads(out) == json.loads(out) | {"lines": []}
    assert "matches" in run("cost", "report", "--until", "1h")[1]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--by", "colour"], ["'colour'", "provider", "tag:NAME"]),
        (["--since", "yesterday"], ["'yesterday'", "7d"]),
        (["--tag", "team"], ["NAME=VALUE"]),
    ],
    ids=str,
)
def test_cost_report_names_an_invalid_argument(run, words, named) -> None:
    code, out, err = run("cost", "report", *words)
    assert (code, out) == (2, "")
    assert all(word in err for word in named)


def test_an_empty_ledger_explains_how_to_start(run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run("cost", "report")
    assert code == 0
    assert "No calls yet" in out
    assert "specclient complete" in out
    assert not Path(os.environ["SPECCLIENT_LEDGER"]).exists(), "reading created the ledger"
    monkeypatch.setenv("SPECCLIENT_LEDGER", "off")
    assert "ledger is off" in run("cost", "report")[1]
    assert json.loads(run("cost", "report", "--json")[1])["ledger"] == "off"


def test_a_file_that_is_not_a_ledger_is_an_error_and_is_kept(
    run, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"no database" * 100)
    monkeypatch.setenv("SPECCLIENT_LEDGER", str(broken))
    code, out, err = run("cost", "report")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert str(broken) in err
    assert "SPECCLIENT_LEDGER" in err
    assert broken.read_bytes() == b"no database" * 100, "the file was changed"


def test_route_explain_names_every_candidate_and_sends_nothing(run, spent) -> None:
    asked = len(spent.requests)
    code, out, _ = run("route", "explain", "hello", "--minimize", "cost", "--max-tokens", "10")
    assert code == 0
    assert len(spent.requests) == asked
    heading, large, small = out.splitlines()
    assert heading.split() == [
        "route", "verdict", "cost", "(range)", "latency", "(interval)", "ttft", "accepted", "depth",
        "quality", "calls",
    ]  # fmt: skip
    assert large.split()[:2] == ["mine/m-large", "left"]
    assert "the chosen" in large
    assert small.split()[:2] == ["mine/m-small", "chosen"]
    assert "cheapest" in small


def test_route_explain_prints_json(run, spent) -> None:
    _, out, _ = run("route", "explain", "hello", "--policy", "cheap", "--json")
    decision = json.loads(out)
    assert decision["chosen"] == "mine/m-small"
    assert (decision["task"], decision["explored"], decision["fallbacks"]) == (
        "chat",
        False,
        ["mine/m-large"],
    )
    large, small = decision["candidates"]
    assert [large["route"], small["route"]] == ["mine/m-large", "mine/m-small"]
    named = {field.name for field in dataclasses.fields(Candidate)}
    assert set(large) == named - {"violations"} | {"broken"}, "the JSON field is still named broken"
    assert Decimal(large["cost"]) > Decimal(small["cost"])
    low, high = map(Decimal, large["cost_range"])
    assert low <= Decimal(large["cost"]) <= high
    assert large["latency_range_s"][0] <= large["latency_s"] <= large["latency_range_s"][1]
    assert large["evidence"] == 1


def test_route_explain_without_a_permitted_route_exits_with_4(run, hosted) -> None:
    code, out, err = run("route", "explain", "hello", "--max-cost", "0")
    assert (code, err.count("\n")) == (4, 1)
    assert out.count("refused") == 2
    assert "exceeds max_cost_usd 0" in out
    assert "nearest is mine/m-small: change max_cost_usd from 0 to 0.00" in err
    code, out, _ = run("route", "explain", "hello", "--max-cost", "0", "--json")
    assert (code, json.loads(out)["chosen"]) == (4, None)
    missed = json.loads(out)["candidates"][0]["broken"][0]
    assert (missed["constraint"], missed["limit"]) == ("max_cost_usd", 0.0)
    assert missed["over"] == missed["predicted"] > 0


@pytest.mark.parametrize(
    ("words", "route", "verdict", "reason"),
    [
        ("--deny mine/m-small", "mine/m-large", "chosen", "cheapest"),
        ("--allow mine/m-l --allow mine/m-x", "mine/m-small", "refused", "not among policy.allow"),
        ("--min-quality 0.5", "mine/m-small", "refused", "below min_quality 0.5 by 0.3"),
        ("--max-latency 0.0001", "mine/m-large", "refused", "exceeds max_latency_s 0.0001"),
        ("--minimize cost=1,latency=0.002", "mine/m-small", "chosen", "best by cost and latency"),
        (
            "--task code --percentile 0.5 --deadline 9 --hedge 0.1",
            "mine/m-small",
            "chosen",
            "cheapest",
        ),
    ],
)
def test_every_field_of_a_policy_has_an_option(
    run, spent, in_empty_folder, words, route, verdict, reason
) -> None:
    with (in_empty_folder / "specclient.toml").open("a") as file:
        file.write('[quality]\n"mine/m-small" = 0.2\n"mine/m-large" = 0.9\n')
    _, out, _ = run("route", "explain", "hello", "--json", *words.split())
    candidates = {c["route"]: c for c in json.loads(out)["candidates"]}
    assert candidates[route]["verdict"] == verdict
    assert reason in candidates[route]["reason"]


def test_no_fallbacks_and_local_only(run, hosted) -> None:
    _, out, _ = run("route", "explain", "hello", "--no-fallbacks", "--json")
    assert json.loads(out)["fallbacks"] == []
    with (Path("specclient.toml")).open("a") as file:
        file.write('[providers.far]\nbase_url = "https://far.example/v1"\n')
    text = Path("specclient.toml").read_text().replace('"mine/m-small"]', '"far/m"]', 1)
    Path("specclient.toml").write_text(text)
    _, out, _ = run("route", "explain", "hello", "--local-only", "--json")
    reasons = {c["route"]: c["reason"] for c in json.loads(out)["candidates"]}
    assert "local_only" in reasons["far/m"]
    assert "local_only" not in reasons["mine/m-large"]  # on loopback


def test_invalid_weights_name_a_valid_form(run, hosted) -> None:
    for wrong in ("cheap", "cost=1,speed=2", "cost=x", "cost=0"):
        code, _, err = run("route", "explain", "hello", "--minimize", wrong)
        assert code == 2
        assert "cost=1,latency=0.002" in err


def test_route_stats_lists_routes_and_tasks(run, spent) -> None:
    code, out, _ = run("route", "stats")
    assert code == 0
    heading, *lines = out.splitlines()
    assert heading.split()[:5] == ["route", "task", "calls", "ttft", "tokens/s"]
    first = next(line for line in lines if line.startswith("mine/m-large"))
    assert first.split()[1:3] == ["all", "1"]
    _, out, _ = run("route", "stats", "--json")
    stats = {(each["route"], each["task"]): each for each in json.loads(out)}
    assert stats["mine/m-large", None]["calls"] == 1
    estimate = stats["mine/m-large", None]["estimate"]
    assert estimate["token_s"] is not None
    assert {"early", "late", "doubtful", "hopeful"} <= estimate.keys(), "the JSON fields keep their names"


def test_route_stats_show_ttft_only_if_a_stream_measured_it(run, hosted) -> None:
    hosted.script(reply(200, _body(100, 50)))  # followed by a stream
    ask = {"model": "mine/m-large", "messages": ASK}
    with OpenAI() as client:
        client.chat.completions.create(**ask)
        _, out, _ = run("route", "stats")
        assert out.splitlines()[1].split()[:4] == ["mine/m-large", "all", "1", "–"]
        _, out, _ = run("route", "stats", "--json")
        assert {each["estimate"]["ttft_s"] for each in json.loads(out)} == {None}
        for _ in client.chat.completions.create(**ask, stream=True):
            pass
    _, out, _ = run("route", "stats", "--json")
    assert json.loads(out)[0]["estimate"]["ttft_s"] > 0


def test_route_stats_without_calls_say_so(run, hosted) -> None:
    code, out, _ = run("route", "stats")
    assert code == 0
    assert "The ledger has no calls yet" in out


def test_default_candidates_without_a_key_are_unavailable(run) -> None:
    _, out, _ = run("route", "explain", "hello")
    assert out.count("no key: set OPENAI_API_KEY") == 2


def test_models_shows_only_whether_a_key_is_set(run, hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "gsk-very-secret")
    code, out, _ = run("models")
    assert code == 0
    assert "gsk-very-secret" not in out
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert " set " in lines["groq"]
    assert "not set" in lines["openai"]
    assert "OPENAI_API_KEY" in lines["openai"]
    assert "not needed" in lines["mine"]
    assert "draft" in lines["local/demo"].split()
    assert "plain" in lines["local/demo-target"].split()
    _, out, _ = run("models", "--json")
    assert "gsk-very-secret" not in out
    values = json.loads(out)
    assert set(values) == {"local", "unavailable", "providers"}
    assert {m["model"] for m in values["local"]} == {"local/demo", "local/demo-target"}
    assert next(p for p in values["providers"] if p["name"] == "groq")["key"] == "set"
    assert not hosted.requests


def test_models_check_contacts_only_usable_providers(run, hosted, in_empty_folder) -> None:
    (in_empty_folder / "specclient.toml").write_text(
        f'[providers.mine]\nbase_url = "{hosted.base_url}"\n'
        f'[providers.refusing]\nbase_url = "{hosted.base_url}"\n'
        '[providers.gone]\nbase_url = "http://127.0.0.1:9/v1"\n'
    )
    code, out, _ = run("models", "--check", "--json")
    checks = {p["name"]: p["check"] for p in json.loads(out)["providers"]}
    assert code == 0
    assert checks["mine"] == checks["refusing"] == "reachable, 2 models"
    assert checks["gone"] == "unreachable"
    assert checks["openai"] is None
    hosted.script(reply(401, {"error": {"message": "who?"}}), reply(401, {"error": {"message": "who?"}}))
    assert "answers 401" in run("models", "--check")[1]


def test_models_check_times_out(run, hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specclient_cli.models.overview.CHECK_TIMEOUT_S", 0.2)
    hosted.script(*[hang] * 3)
    _, out, _ = run("models", "--check", "--json")
    assert "no answer within 0.2 s" in [p["check"] for p in json.loads(out)["providers"]]


def test_models_list_prints_a_providers_models(run, hosted) -> None:
    assert run("models", "list", "mine") == (0, "mine/m-large\nmine/m-small\n", "")
    assert [m["id"] for m in json.loads(run("models", "list", "mine", "--json")[1])] == ["m-large", "m-small"]
    assert run("models", "list", "local")[1] == "local/demo\nlocal/demo-target\n"
    code, _, err = run("models", "list", "nobody")
    assert (code, err.count("\n")) == (1, 1)
    assert "'nobody'" in err
    code, _, err = run("models", "list", "openai")
    assert code == 3
    assert "OPENAI_API_KEY" in err
