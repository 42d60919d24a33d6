"""``specclient demo`` on a tiny random pair: piped, in terminals, as JSON, killed, and with errors."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest
from forked_program import COMMAND, ForkedProgram
from pseudo_terminal import Terminal, replay
from rich.cells import cell_len
from specclient_cli import demo

from specclient.ledger.ledger import Ledger

SHORT = ("demo", "--max-tokens", "48")


def _rows():
    return Ledger(os.environ["SPECCLIENT_LEDGER"]).rows()


def _check_demonstration(text: str) -> None:
    """Check that the output contains every part of the demonstration."""
    assert "plain · local/demo-target" in text
    assert "speculative · local/demo" in text
    assert text.count("48 tokens in") == 2
    assert "the texts are identical" in text
    assert re.search(r"[\d.]+× as fast", text)
    assert len(re.findall(r"→  the (?:fastest|cheapest)", text)) == 3
    assert text.count("no key: set OPENAI_API_KEY") == 6
    assert re.search(r"specclient cost report --tag demo=\w{8}", text)
    assert "total" in text.split("cost report")[-1]


def test_piped_output_is_plain_text(shell, local) -> None:
    done = shell(*SHORT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout
    assert "drafted and accepted ·" not in done.stdout, "a legend of colours without colours"
    _check_demonstration(done.stdout)
    plain, speculative = re.findall(r"\ndef read_json\(path\):\n(.*?)\n48 tokens in", done.stdout, re.DOTALL)
    assert plain == speculative != ""


@pytest.mark.parametrize(("width", "no_color"), [(40, True), (120, False)])
def test_terminal_output_fits_the_width_and_respects_no_color(local, width: int, no_color: bool) -> None:
    terminal = Terminal(*SHORT, width=width, height=24, **({"NO_COLOR": "1"} if no_color else {}))
    assert terminal.wait() == 0, terminal.output
    output = terminal.output
    colours = re.findall(r"\x1b\[(?:\d+;)*3[0-7]m", output)
    assert bool(colours) is not no_color
    lines = replay(output, width)
    _check_demonstration(re.sub(r"\s+", " ", "\n".join(lines)).replace("→ the", "→  the"))
    side_by_side = any("plain ·" in line and "speculative ·" in line for line in lines)
    assert side_by_side is (width == 120)
    for line in replay(output, 10_000):
        assert cell_len(line) <= width, "a line is wider than the terminal"
    assert output.endswith("\n")
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h"), "the cursor was not shown again"


def test_a_dumb_terminal_gets_plain_text(local) -> None:
    terminal = Terminal(*SHORT, TERM="dumb")
    assert terminal.wait() == 0
    assert "\x1b[" not in terminal.output
    _check_demonstration(re.sub(r"\s+", " ", terminal.output).replace("→ the", "→  the"))


def test_json_and_ledger_agree(run, local) -> None:
    code, out, _ = run(*SHORT, "--json")
    result = json.loads(out)
    assert code == 0
    assert result["identical"]
    assert result["plain"]["text"] == result["speculative"]["text"]
    assert result["plain"]["usage"]["completion"] == result["speculative"]["usage"]["completion"] == 48
    assert result["plain"]["speculation"]["drafted"] == 0
    assert result["speedup"] == pytest.approx(
        result["speculative"]["tokens_per_s"] / result["plain"]["tokens_per_s"]
    )
    assert len(result["routed"]) == 3
    rows = _rows()
    assert {row.tags["demo"] for row in rows} == {result["run"]}
    assert [row.tags["step"] for row in rows] == [
        "load", "warm-up", "warm-up", "plain", "speculative", "routed", "routed", "routed",
    ]  # fmt: skip
    assert all(row.status == "ok" for row in rows)
    assert {row.id for row in rows} >= {result[name]["id"] for name in ("plain", "speculative")}
    assert Decimal(result["report"]["total"]["cost"]) == sum(row.cost for row in rows)
    assert result["report"]["total"]["calls"] == 8


def test_the_policies_choose_differently_and_a_limit_refuses_a_route(run, local) -> None:
    result = json.loads(run(*SHORT, "--json")[1])
    fastest, cheapest, limited = result["routed"]
    by = [
        {c["route"]: c for c in routed["route"]["candidates"] if c["route"].startswith("local/")}
        for routed in (fastest, cheapest, limited)
    ]
    assert by[0][fastest["route"]["chosen"]]["latency_s"] == min(c["latency_s"] for c in by[0].values())
    assert Decimal(by[1][cheapest["route"]["chosen"]]["cost"]) == min(
        Decimal(c["cost"]) for c in by[1].values()
    )
    refused = [c for c in by[2].values() if c["verdict"] == "refused"]
    assert len(refused) == 1
    assert "exceeds max_latency_s" in refused[0]["reason"]
    hosted = [c for c in limited["route"]["candidates"] if c["route"].startswith("openai/")]
    assert [c["verdict"] for c in hosted] == ["unavailable"] * 2


def test_hosted_providers_are_not_called_even_with_a_key(
    run, local, openai_server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", openai_server.base_url)
    code, out, _ = run(*SHORT)
    assert code == 0
    assert not openai_server.requests
    assert out.count("denied by policy.deny") == 6


def test_differing_texts_fail_the_demo(run, local, pair, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    from tiny_models import write_checkpoint

    other = write_checkpoint(tmp_path / "other", seed=7, max_position_embeddings=512, eos_token_id=None)
    local.write_text(local.read_text().replace(f'path = "{pair[0]}"', f'path = "{other}"', 1))
    code, _, err = run(*SHORT)
    assert (code, err.count("\n")) == (1, 1)
    assert "the texts differ from character" in err


def test_the_printed_report_command_prints_the_same_report(run, local) -> None:
    out = run(*SHORT)[1]
    heading = out.index("specclient cost report")
    command, _, table = out[heading:].partition("\n")
    assert run(*command.split()[1:])[1] == table


def test_the_demo_runs_without_a_ledger(run, local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECCLIENT_LEDGER", "off")
    code, out, _ = run(*SHORT)
    assert code == 0
    assert "The ledger is off" in out


def test_a_prompt_can_be_given(run, local) -> None:
    code, out, _ = run("demo", "--prompt", "class Stack:", "--max-tokens", "8")
    assert code == 0
    assert out.count("\nclass Stack:") == 3
    code, _, err = run("demo", "--max-tokens", "600")
    assert (code, "context of 512" in err) == (1, True)


@pytest.mark.parametrize("moment", ["plain ·", "speculative ·", "the fastest"])
def test_a_killed_demo_leaves_a_consistent_ledger(local, moment: str) -> None:
    command = [*COMMAND, "demo", "--max-tokens", "256"]
    process = ForkedProgram(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    assert process.stdout is not None
    for line in process.stdout:
        if moment in line:
            break
    process.kill()
    process.wait()
    process.stdout.close()
    file = os.environ["SPECCLIENT_LEDGER"]
    with sqlite3.connect(file) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
    rows = _rows()
    steps = [row.tags["step"] for row in rows]
    expected = ["load", "warm-up", "warm-up", "plain", "speculative", "routed", "routed", "routed"]
    known = {"plain ·": 3, "speculative ·": 4, "the fastest": 6}[moment]
    assert steps == expected[: len(steps)], "steps must be complete and in order"
    assert len(steps) >= known, "every step shown as finished must be in the ledger"
    assert all(row.status == "ok" and row.cost_nano is not None for row in rows)


def test_an_interrupted_demo_records_a_cancelled_call(local, tmp_path: Path) -> None:
    from tiny_models import write_checkpoint

    big = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 8}
    slow = write_checkpoint(
        tmp_path / "slow", max_position_embeddings=1024, eos_token_id=None, **big
    )  # an answer takes seconds
    local.write_text(f'[local.models.demo]\npath = "{slow}"\n[local.models.demo-target]\npath = "{slow}"\n')
    terminal = Terminal("demo", "--max-tokens", "900", width=100)
    terminal.read_until(lambda output: output.count("plain ·") >= 3)  # the first text is shown
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.wait() == 130
    assert terminal.output.rstrip().endswith("interrupted")
    assert terminal.output.count("\x1b[?25l") == terminal.output.count("\x1b[?25h")
    assert [(row.status, row.tags["step"]) for row in _rows()][3:] == [("cancelled", "plain")]


@pytest.mark.skipif(
    not (Path(demo.__file__).parents[2] / "local/specclient_local/bundled/target/config.json").exists(),
    reason="the bundled pair is not here",
)
def test_the_bundled_pair_accepts_drafts(shell) -> None:
    done = shell("demo", "--max-tokens", "96", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["identical"]
    assert result["speculative"]["speculation"]["acceptance_rate"] > 0.3
    assert result["speculative"]["speculation"]["mean_accepted_length"] > 1.5
