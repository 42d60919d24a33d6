"""``specclient route simulate``: worlds and traces as users run them."""

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
    told = json.loads(out)
    assert (told["name"], told["calls"], len(told["fixed"])) == (str(file), 200, 8)
    assert told["policy"]["p95_s"] < told["clairvoyant"]["p95_s"] * 5
    code, out, _ = run("route", "simulate", str(file), "--deny", "own/")
    assert code == 0
    assert "always own/" not in out
    assert "drawn from their nearest calls in the trace" in out


def test_what_is_asked_wrongly_is_said(run, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"at": 1}\n')
    for arguments, said in (
        ((), "Give either a TRACE or --world NAME"),
        (("--world", "flat"), "There is no world 'flat'; the worlds are: mixed."),
        ((str(tmp_path / "bad.jsonl"),), "bad.jsonl:1: prompt_tokens is None"),
        ((str(tmp_path / "bad.jsonl"), "--calls", "200"), "need --world"),
    ):
        code, _, err = run("route", "simulate", *arguments)
        assert code != 0
        assert said in " ".join(err.split())
