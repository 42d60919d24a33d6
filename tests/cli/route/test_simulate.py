"""``specclient route simulate``: simulated worlds and traces."""

from __future__ import annotations

import json
from pathlib import Path


def test_a_world_is_compared_and_saved_and_replayed(run, tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    code, out, err = run("route", "simulate", "--world", "mixed", "--calls", "200", "--save", str(file))
    assert (code, err) == (0, "")
    assert "the policy" in out
    assert out.count("always ") >= 8
    assert "of its calls exceeded a limit; 5% were allowed to" in out
    assert len(file.read_text().splitlines()) == 200
    code, out, err = run("route", "simulate", str(file), "--minimize", "latency", "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert (result["name"], result["calls"], len(result["fixed"])) == (str(file), 200, 8)
    assert result["policy"]["p95_s"] < result["clairvoyant"]["p95_s"] * 5
    code, out, _ = run("route", "simulate", str(file), "--deny", "own/")
    assert code == 0
    assert "always own/" not in out
    assert "drawn from their nearest calls in the trace" in out


def test_a_part_of_a_trace_is_replayed_after_measuring_every_route(run, tmp_path: Path) -> None:
    file = tmp_path / "azure.csv"
    lines = (f"2023-11-16 18:{n // 60:02}:{n % 60:02},{900 + n},{50 + n % 90}\n" for n in range(400))
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(lines))
    part = ("route", "simulate", str(file), "--world", "mixed", "--skip-calls", "250", "--stretch", "4")
    code, out, err = run(*part, "--warm", "2")
    assert (code, err) == (0, "")
    assert "150 calls in" in out
    assert "The calls that measured every route beforehand cost $" in " ".join(out.split())
    cold = json.loads(run(*part, "--json")[1])
    assert (cold["warm_cost"], cold["calls"]) == (0, 150)
    code, _, err = run(*part, "--longest-gap", "0.5")
    assert code != 0
    assert "azure.csv:3: 1 s without a call before it; at most 0.5 s are allowed" in " ".join(err.split())


def test_wrong_arguments_are_named(run, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"at": 1}\n')
    for arguments, message in (
        ((), "Give a TRACE, --world NAME, or both"),
        (("--world", "mixed", "--stretch", "2"), "--skip-invalid and --longest-gap need a TRACE and --world"),
        (("--world", "flat"), "There is no world 'flat'; the worlds are: mixed."),
        ((str(tmp_path / "bad.jsonl"),), "bad.jsonl:1: prompt_tokens is None"),
        ((str(tmp_path / "bad.jsonl"), "--calls", "200"), "need --world"),
        ((str(tmp_path / "bad.jsonl"), "--warm", "2"), "--save, --calls and --warm need --world"),
    ):
        code, _, err = run("route", "simulate", *arguments)
        assert code != 0
        assert message in " ".join(err.split())


def test_a_policy_without_an_answer_is_not_compared(run) -> None:
    world = ("route", "simulate", "--world", "mixed", "--calls", "200")
    code, out, _ = run(*world, "--max-cost", "0.0000001")
    text = " ".join(out.split())
    assert code == 0
    assert "No candidate met the policy for 200 of 200 calls; relax max_cost_usd, or add candidates." in text
    assert "The policy costs" not in text
    assert "of its calls exceeded" not in text
    assert "No candidate met" not in run(*world)[1]


def test_local_only_permits_engines_and_loopback_addresses_as_live_calls_do(run, tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    routes = ("local/demo", "ollama/llama3", "groq/llama3")
    outcomes = {route: {"latency_s": 1.0, "cost_usd": 0.1} for route in routes}
    call = {"task": "chat", "prompt_tokens": 9, "completion_tokens": 9, "outcomes": outcomes}
    file.write_text("".join(json.dumps({"at": float(at), **call}) + "\n" for at in range(20)))
    code, out, err = run("route", "simulate", str(file), "--local-only", "--json")
    assert (code, err) == (0, "")
    assert [each["name"] for each in json.loads(out)["fixed"]] == ["local/demo", "ollama/llama3"]
