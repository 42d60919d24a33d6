"""``specclient local`` on tiny random models: text, tables, JSON, and errors."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from specclient_cli.local.engine_options import CountList, MethodList
from specclient_local.decoding.speculate import Speculator
from specclient_local.decoding.verify import AcceptedPath
from tiny_models import write_checkpoint

SHORT = ("--count", "2", "--new", "8")


@pytest.fixture(autouse=True)
def _configured(local) -> None:
    """Configure ``demo`` as the tiny pair for all tests."""


def test_generate_prints_text_and_one_line_of_figures(run) -> None:
    code, out, err = run("local", "generate", "def f(x):", "--max-tokens", "12", "--draft-length", "2")
    assert code == 0
    assert out.endswith("\n")
    assert re.fullmatch(
        r"12 tokens · [\d.e+]+ tokens/s · TTFT [\d.e+]+ ms · \d+% of drafts accepted · "
        r"[\d.]+ tokens a pass · draft\n",
        err,
    )
    plain = run("local", "generate", "def f(x):", "--max-tokens", "12", "--method", "plain")
    assert plain[1] == out
    assert "accepted" not in plain[2]


def test_generate_prints_all_results_as_json(run, pair) -> None:
    arguments = ("local", "generate", "def f(x):", "--max-tokens", "9", "--draft-length", "3", "--json")
    code, out, err = run(*arguments)
    result = json.loads(out)
    assert (code, err) == (0, "")
    assert (result["model"], result["drafts"]) == (str(pair[0]), [str(pair[1])])
    assert (result["tokens"], len(result["token_ids"]), result["finish_reason"]) == (9, 9, "length")
    assert result["speculation"]["method"] == "draft"
    assert result["speculation"]["steps"] + result["speculation"]["accepted"] >= 9
    assert 0 < result["ttft_s"] <= result["seconds"]
    assert result["tokens_per_s"] == pytest.approx(9 / result["seconds"])
    sampled = [run(*arguments, "--temperature", "1", "--seed", "4")[1] for _ in range(2)]
    assert len({json.loads(each)["text"] for each in sampled}) == 1


def test_generate_reads_stdin_and_loads_a_folder(run, pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("import "))
    code, _, err = run("local", "generate", "-", "-m", str(pair[0]), "--max-tokens", "4")
    assert (code, err.endswith(" · plain\n")) == (0, True), "a folder has no draft"


def test_accepted_draft_text_is_coloured_in_a_terminal(run, pair, monkeypatch: pytest.MonkeyPatch) -> None:
    own = ("-m", str(pair[0]), "--draft", str(pair[0]), "--draft-length", "3")
    arguments = ("local", "generate", "def f(x):", *own, "--max-tokens", "12", "--show-drafts")
    _, unmarked, _ = run(*arguments)
    assert "\x1b" not in unmarked, "a pipe gets plain text"
    monkeypatch.setenv("FORCE_COLOR", "1")
    code, out, _ = run(*arguments)
    assert code == 0
    assert "\x1b[1;32m" in out


def test_bench_compares_with_plain_decoding(run) -> None:
    code, out, err = run("local", "bench", *SHORT, "--repeat", "2", "--draft-length", "3", "--json")
    result = json.loads(out)
    assert (code, err) == (0, "")
    rows = {row["method"]: row for row in result["rows"]}
    assert {"plain", "draft", "ngram"} <= set(rows)
    assert rows["plain"]["speed_up"] == 1.0
    assert rows["plain"]["expected"] is None
    assert all(row["identical"] for row in rows.values())
    assert rows["draft"]["mean_accepted_length"] >= 1.0
    assert 0.0 <= rows["draft"]["acceptance_rate"] <= 1.0


def test_bench_shows_a_table_for_given_prompts(run, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "def a():"}\n\n{"prompt": "' + "x" * 900 + '"}\n')
    code, out, err = run(
        "local", "bench", "--methods", "draft", "--prompts", str(file), "--new", "8", "--repeat", "1",
        "--batch", "2",
    )  # fmt: skip
    assert code == 0
    assert err == "1 of 2 prompts exceed the context and are skipped\n"
    heading, columns, *rows = out.splitlines()
    assert "1 prompts, 8 new tokens each" in heading
    assert columns.split()[:3] == ["method", "tokens/s", "speed-up"]
    assert [row.split()[0] for row in rows] == ["plain", "draft"]


def test_bench_fails_if_outputs_differ(run, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Speculator._keep

    def wrong(self, move, verdict):
        if len(move.tree):
            verdict = AcceptedPath(verdict.path, (verdict.token + 1) % 300)
        return right(self, move, verdict)

    monkeypatch.setattr(Speculator, "_keep", wrong)
    arguments = ("local", "bench", *SHORT, "--repeat", "1", "--methods", "draft", "--draft-length", "1")
    code, out, err = run(*arguments)
    assert code == 1
    assert "plain" in out
    assert "draft generated other tokens than plain decoding" in err
    code, _, err = run(*arguments, "--dtype", "bfloat16")
    assert (code, err) == (0, "draft: other tokens than plain decoding, because of rounding in bfloat16\n")


def test_profile_shares_add_up_to_one(run) -> None:
    result = json.loads(run("local", "profile", *SHORT, "--draft-length", "3", "--json")[1])
    stages = {stage["name"]: stage for stage in result["stages"]}
    assert {"prefill", "draft passes", "target pass", "sampling", "verification", "text"} <= set(stages)
    assert sum(stage["share"] for stage in result["stages"]) == pytest.approx(1.0)
    assert stages["target pass"]["calls"] == result["rounds"]
    assert {(one["model"], one["rows"]) for one in result["passes"]} >= {
        ("target", 1),
        ("target", 5),
        ("draft", 1),
    }
    code, out, _ = run("local", "profile", *SHORT, "--method", "plain")
    assert code == 0
    assert "draft passes" not in out
    assert "after 64 tokens" in out


def test_profile_prefills_its_prompts_without_a_cached_prefix(run, tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_text("".join(chr(97 + i * i % 26) for i in range(400)))
    out = run("local", "profile", "--prompts", str(file), "--new", "4", "--method", "plain", "--json")[1]
    (prefill,) = [stage for stage in json.loads(out)["stages"] if stage["name"] == "prefill"]
    assert prefill["calls"] == 2, "two prefill chunks: the warm-up's cache is not reused"


def test_pick_depth_names_the_fastest(run) -> None:
    code, out, _ = run("local", "pick-depth", *SHORT, "--lengths", "0,2-3", "--batch", "1,2", "--repeat", "1")
    assert code == 0
    assert re.findall(r"^(\d) prompts? at a time", out, re.MULTILINE) == ["1", "2"]
    assert len(re.findall(r"^(?:K = \d is fastest|drafting is slower)", out, re.MULTILINE)) == 2
    result = json.loads(run("local", "pick-depth", *SHORT, "--lengths", "2", "--repeat", "1", "--json")[1])
    (table,) = result["batches"]
    assert [row["length"] for row in table["rows"]] == [0, 2]
    assert table["best"] in (0, 2)
    assert table["rows"][0]["measured"] == 1.0
    assert table["rows"][0]["expected"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("generate", "x", "-m", "./nowhere"), 1, "./nowhere is not a folder"),
        (("generate", "x", "--method", "magic"), 2, "'magic' is not one of"),
        (("bench", "--methods", "plain,magic"), 2, "'magic' is not a method; the methods are plain"),
        (("bench", "--prompts", "empty.txt"), 3, "empty.txt is empty"),
        (("bench", "--prompts", "bad.jsonl"), 3, "bad.jsonl, line 2 has no prompt"),
        (("bench", "--new", "600"), 3, "no prompt fits"),
        (("pick-depth", "--lengths", "11"), 2, "'11' are not whole numbers from 0 to 10"),
        (("generate", "x" * 2000), 1, "exceed the context of 512"),
    ],
)  # fmt: skip
def test_errors_are_reported_without_a_traceback(run, arguments, code, message) -> None:
    Path("empty.txt").write_text("\n")
    Path("bad.jsonl").write_text('{"prompt": "a"}\n{"text": "b"}\n')
    found, out, err = run("local", *arguments)
    assert (found, out) == (code, "")
    assert message in err
    assert "Traceback" not in err


def test_an_incompatible_draft_is_refused_on_request(run, pair, tmp_path: Path) -> None:
    other = write_checkpoint(tmp_path / "other", vocab_size=280)
    asked = ("--draft", str(other), "--draft-vocabulary", "same")
    code, _, err = run("local", "bench", "-m", str(pair[0]), *asked, *SHORT)
    assert code == 1
    assert "does not fit the target" in err
    code, _, err = run("local", "pick-depth", "-m", str(pair[0]))
    assert (code, "give one with --draft" in err) == (2, True)
    code, _, err = run("local", "bench", "-m", str(pair[0]), "--methods", "draft", *SHORT)
    assert code == 3
    assert "method is 'draft', but this engine was loaded with plain, ngram" in err


def test_list_options_are_parsed() -> None:
    assert CountList(0, 10).convert("0-2,5,2", None, None) == (0, 1, 2, 5)
    assert MethodList().convert("plain, draft,plain", None, None) == ("plain", "draft")
