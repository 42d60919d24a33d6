"""``specclient route warm``: a few calls measure the candidates within a budget."""

from __future__ import annotations

import json
from pathlib import Path

from loopback_server import OpenAIServer, reply


def test_every_candidate_is_measured_and_learned(run, hosted: OpenAIServer) -> None:
    code, out, err = run("route", "warm", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [each["route"] for each in found["routes"]] == ["mine/m-large", "mine/m-small"]
    for each in found["routes"]:
        assert each["calls"] == 2
        assert 0 < each["ttft_s"] < 60
        assert 0 < each["long_ttft_s"] < 60
        assert each["tokens_per_s"] > 0
        assert each["skipped"] == ""
    assert float(found["spent"]) > 0
    bodies = [request.json for request in hosted.requests]
    assert [body["model"] for body in bodies] == ["m-large", "m-small"] * 2
    assert {body["max_tokens"] for body in bodies} == {48}
    texts = [body["messages"][0]["content"] for body in bodies]
    assert len({text[:20] for text in texts}) == 4, "no cache holds the beginning of a prompt"
    assert len(texts[0]) < 200
    assert len(texts[2]) > 2000 * 3.9
    code, out, _ = run("route", "stats", "--json")
    rows = [row for row in json.loads(out) if row["task"] is None]
    assert [(row["route"], row["calls"]) for row in rows] == [("mine/m-large", 2), ("mine/m-small", 2)]
    assert [row["length"] for row in rows] == [None, None], "the lengths of measured answers say nothing"
    code, out, _ = run("cost", "export", "--format", "jsonl")
    assert {json.loads(line)["tags"]["route_warm"] for line in out.splitlines()} == {"1"}


def test_no_call_is_sent_that_may_exceed_the_budget(run, hosted: OpenAIServer) -> None:
    code, out, err = run("route", "warm", "--budget", "0.0000001")
    assert code != 0
    assert not hosted.requests
    assert "over --budget" in " ".join(out.split())
    assert "no candidate could be measured" in err
    code, out, _ = run("route", "warm", "--budget", "0.002", "--calls", "8", "--json")
    assert code == 0
    found = json.loads(out)
    assert 0 < float(found["spent"]) <= 0.002
    assert all("over --budget" in each["skipped"] for each in found["routes"])
    assert 0 < len(hosted.requests) < 16


def test_unpriced_and_failing_routes_are_named(run, hosted: OpenAIServer, in_empty_folder: Path) -> None:
    code, out, _ = run("route", "warm", "mine/other", "mine/m-small", "nobody/x", "auto", "--json")
    assert code == 0
    other, small, nobody, auto = json.loads(out)["routes"]
    assert (other["calls"], small["calls"]) == (0, 2)
    assert "its price is unknown" in other["skipped"]
    assert "unknown provider 'nobody'" in nobody["skipped"]
    assert "auto stands for several models" in auto["skipped"]
    refusal = {
        "error": {"message": "no such model", "type": "invalid_request_error", "code": "model_not_found"}
    }
    hosted.script(reply(404, refusal))
    code, out, _ = run("route", "warm", "mine/other", "mine/m-small", "--unpriced", "--json")
    other, small = json.loads(out)["routes"]
    assert (code, other["calls"], small["calls"]) == (0, 0, 2)
    assert "no such model" in other["skipped"]
