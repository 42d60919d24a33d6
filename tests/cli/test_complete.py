"""``specclient complete``: stdout, stderr, options and errors."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from forked_program import COMMAND, ForkedProgram
from loopback_server import TEXT, broken_stream, hang, reply

from specclient.ledger.ledger import Ledger

FRAME = b'data: {"choices": [{"index": 0, "delta": {"content": "half "}}]}\n\n'


def _rows():
    return Ledger(os.environ["SPECCLIENT_LEDGER"]).rows()


def test_stdout_contains_only_the_text(run, hosted) -> None:
    assert run("complete", "hello", "-m", "mine/m-large") == (0, f"{TEXT}\n", "")
    assert run("complete", "hello", "-m", "mine/m-large", "--no-stream") == (0, f"{TEXT}\n", "")
    streamed, whole = hosted.requests
    assert streamed.path == whole.path == "/v1/chat/completions"
    assert streamed.json["messages"] == [{"role": "user", "content": "hello"}]
    assert streamed.json["stream"]
    assert "temperature" not in whole.json
    assert "max_tokens" not in whole.json


def test_options_reach_the_server_and_the_ledger(run, hosted) -> None:
    words = "--max-tokens 7 --temperature 0.5 --top-p 0.9 --seed 3 --stop END --stop FIN --tag team=a --stats"
    code, _, err = run("complete", "hello", "-m", "mine/m-large", "--system", "Be brief.", *words.split())
    assert code == 0
    sent = hosted.requests[0].json
    expected = {"max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "seed": 3, "stop": ["END", "FIN"]}
    assert {name: sent[name] for name in expected} == expected
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
    (row,) = _rows()
    assert (row.route, row.status, row.tags) == ("mine/m-large", "ok", {"team": "a"})
    assert f"{row.completion_tokens} tokens" in err
    assert "mine/m-large" in err
    assert f"${row.cost.normalize():f}"[:6] in err


def test_as_text_uses_the_completions_endpoint(run, hosted) -> None:
    assert run("complete", "once upon", "-m", "mine/m-large", "--as", "text")[1] == f"{TEXT}\n"
    sent = hosted.requests[0]
    assert (sent.path, sent.json["prompt"]) == ("/v1/completions", "once upon")


def test_json_prints_one_object_with_the_call_record(run, hosted) -> None:
    code, out, _ = run("complete", "hello", "-m", "mine/m-large", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["text"] == TEXT
    assert set(result) == {
        "text", "id", "status", "model", "served_model", "route", "usage", "cost", "speculation", "ttft_s",
        "latency_s", "engine_s", "tokens_per_s", "attempts", "tags",
    }  # fmt: skip
    (row,) = _rows()
    assert (result["id"], result["usage"]["completion"]) == (row.id, row.completion_tokens)
    assert Decimal(result["cost"]["usd"]) == row.cost
    assert (result["route"]["chosen"], result["speculation"]) == ("mine/m-large", None)
    assert not hosted.requests[0].json.get("stream")


def test_json_stream_prints_a_line_per_chunk_and_one_for_the_record(run, hosted) -> None:
    _, out, _ = run("complete", "hello", "-m", "mine/m-large", "--json", "--stream")
    *pieces, last = [json.loads(line) for line in out.splitlines()]
    assert len(pieces) > 1
    assert "".join(piece["text"] for piece in pieces) == TEXT
    assert (last["text"], last["status"]) == (None, "ok")


def test_a_prompt_is_read_from_stdin(run, hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe\n"))
    assert run("complete", "-", "-m", "mine/m-large")[0] == 0
    assert hosted.requests[0].json["messages"][0]["content"] == "from a pipe\n"


@pytest.mark.parametrize("utf8_mode", ["0", "1"])
def test_a_prompt_that_is_not_utf8_is_an_error(shell, hosted, utf8_mode: str) -> None:
    settings = {"text": False, "env": os.environ | {"PYTHONUTF8": utf8_mode}}
    for words, given, where in (("-", b"\xff\xfe", b"stdin"), (b"\xff\xfe", b"", b"the prompt")):
        done = shell("complete", words, "-m", "mine/m-large", input=given, **settings)
        assert (done.returncode, done.stdout) == (2, b"")
        assert where + b" is not UTF-8 text" in done.stderr
    assert not hosted.requests


def test_policy_options_choose_the_route(run, hosted) -> None:
    code, out, _ = run("complete", "hello", "--policy", "cheap", "--json")
    assert code == 0
    assert json.loads(out)["route"]["chosen"] == "mine/m-small"
    code, _, err = run("complete", "hello", "--policy", "cheap", "--max-cost", "0.000000001")
    assert code == 4
    assert "mine/m-large" in err
    assert "max_cost_usd 1E-9" in err or "max_cost_usd 0.000000001" in err
    code, _, err = run("complete", "hello", "--policy", "nope")
    assert (code, "'nope'" in err, "cheap" in err) == (3, True, True)
    code, _, err = run("complete", "hello", "--policy", "cheap", "-m", "mine/m-large")
    assert code == 2
    assert "mine/m-large" in err


def test_local_model_continues_text_greedily(run, local) -> None:
    first = run("complete", "def f", "--max-tokens", "12")
    assert (first[0], first[2]) == (0, "")
    assert run("complete", "def f", "-m", "local/demo-target", "--max-tokens", "12") == first
    code, out, err = run(
        "complete", "def f", "--max-tokens", "12", "--draft-length", "3", "--json", "--stats"
    )
    result = json.loads(out)
    assert code == 0
    assert result["text"] + "\n" == first[1]
    assert result["speculation"]["drafted"] > 0
    assert result["cost"]["estimated"]
    assert "of drafts accepted" in err
    assert "~$" in err
    _, out, _ = run("complete", "def f", "--max-tokens", "12", "--draft-length", "0", "--json")
    assert json.loads(out)["speculation"]["drafted"] == 0


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            reply(401, {"error": {"message": "bad key", "type": "auth"}}),
            ["401", "bad key", "specclient models"],
        ),
        (reply(404, {"error": {"message": "no model m"}}), ["404", "no model m", "models list"]),
        (
            reply(429, {"error": {"message": "slow down"}}, {"retry-after-ms": "1"}),
            ["429", "slow down", "wait"],
        ),
        (reply(200, b"<html>hi</html>", {"content-type": "text/html"}), ["base_url", "<html>"]),
        (reply(400, {"error": {"message": "two\nlines"}}), ["two lines"]),
    ],
    ids=["401", "404", "429", "html", "newline"],
)
def test_a_providers_error_is_printed_as_one_line(run, hosted, answer, words: list[str]) -> None:
    hosted.script(*[answer] * 3)
    code, out, err = run("complete", "hello", "-m", "mine/m-large")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("specclient: ")
    assert all(word in err for word in words), err
    assert [row.status for row in _rows()] == ["error"]


def test_an_unreachable_server_is_named(run, hosted) -> None:
    hosted.close()
    code, out, err = run("complete", "hello", "-m", "mine/m-large")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert f"127.0.0.1:{hosted.port}" in err
    assert "base_url" in err


def test_a_broken_stream_keeps_the_received_text(run, hosted) -> None:
    hosted.script(broken_stream(FRAME, FRAME, how="reset"))
    code, out, err = run("complete", "hello", "-m", "mine/m-large")
    assert (code, out, err.count("\n")) == (1, "half half ", 1)


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["-m", "openai/gpt-4.1"], 3, ["OPENAI_API_KEY"]),
        (["-m", "nobody/gpt"], 1, ["'nobody'", "openai", "[providers.nobody]"]),
        (["-m", "local/nothing"], 1, ["local/nothing", "local/demo"]),
        (["-m", "local/."], 1, ["config.json"]),
        (["--max-tokens", "100000"], 1, ["100000", "512"]),
        (["--draft-length", "99"], 1, ["draft_length", "99"]),
        (["-m", "mine/m", "--draft-length", "2"], 2, ["mine/m", "local/demo"]),
        (["--temperature", "nan"], 2, ["--temperature", "'nan'"]),
        (["--temperature", "-1"], 2, ["--temperature", "-1", "0 or more"]),
        (["--top-p", "inf"], 2, ["--top-p"]),
        (["--top-p", "0"], 2, ["--top-p", "above 0"]),
        (["--max-tokens", "0"], 2, ["--max-tokens", "x>=1"]),
        (["--max-cost", "-1"], 2, ["--max-cost"]),
        (["--max-latency", "nan"], 2, ["--max-latency"]),
        (["--tag", "x"], 2, ["NAME=VALUE"]),
        (["--as", "text", "--system", "s"], 2, ["--system"]),
    ],
    ids=str,
)
def test_invalid_input_is_named_with_a_remedy(run, local, words, code: int, named: list[str]) -> None:
    got, out, err = run("complete", "def f", *words)
    assert (got, out) == (code, "")
    assert all(word in err for word in named), err
    assert "Traceback" not in err
    if code != 2:
        assert err.count("\n") == 1


def test_a_prompt_longer_than_the_context_is_an_error(run, local) -> None:
    code, out, err = run("complete", "word " * 5000)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "allowed are 512" in err
    (row,) = _rows()
    assert (row.status, row.error, row.cost_nano) == ("error", "ContextOverflowError", 0)


def test_a_draft_with_another_vocabulary_warns_or_is_refused(run, local, pair, tmp_path: Path) -> None:
    from tiny_models import byte_tokenizer, write_checkpoint

    other = write_checkpoint(tmp_path / "other", vocab_size=280, tokenizer=byte_tokenizer(280))
    local.write_text(f'[local.models.odd]\npath = "{pair[0]}"\ndraft = "{other}"\n')
    code, out, err = run("complete", "def f", "-m", "local/odd", "--max-tokens", "4")
    assert code == 0
    assert "it is restricted to the tokens that both have" in err
    local.write_text(f"{local.read_text()}draft_vocabulary = 'same'\n")
    code, out, err = run("complete", "def f", "-m", "local/odd")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert str(other) in err
    assert "vocabularies differ" in err


def test_an_unwritable_ledger_does_not_break_a_call(run, hosted, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("SPECCLIENT_LEDGER", str(tmp_path / "file" / "ledger"))
    code, out, err = run("complete", "hello", "-m", "mine/m-large")
    assert (code, out) == (0, f"{TEXT}\n")
    assert "SPECCLIENT_LEDGER" in err
    assert "Traceback" not in err


def test_debug_shows_the_traceback(run, hosted) -> None:
    hosted.script(reply(401, {"error": {"message": "bad key"}}))
    code, _, err = run("--debug", "complete", "hello", "-m", "mine/m-large")
    assert code == 1
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("specclient: 401")


def test_the_key_is_never_printed(run, hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", hosted.base_url)
    hosted.script(reply(401, {"error": {"message": "the key sk-very-secret is wrong"}}))
    code, out, err = run("--debug", "complete", "hello", "-m", "gpt")
    assert code == 1
    assert hosted.requests[0].headers["authorization"] == "Bearer sk-very-secret"
    assert "sk-very-secret" not in out + err


def _start(*words: str, **options: object) -> subprocess.Popen[str]:
    command = [*COMMAND, "complete", "hello", "-m", "mine/m-large", *words]
    pipe = subprocess.PIPE
    return ForkedProgram(command, stdout=pipe, stderr=pipe, text=True, **options)


def test_an_interrupt_ends_a_stream_and_records_it(hosted) -> None:
    hosted.script(broken_stream(FRAME, FRAME, how="hang"))
    process = _start()
    assert process.stdout is not None
    assert process.stdout.read(10) == "half half "
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.strip()) == (130, "interrupted")
    assert hosted.wait_left(1)
    (row,) = _rows()
    assert (row.status, row.usage_estimated) == ("cancelled", True)


def test_an_interrupt_before_the_response_is_recorded(hosted) -> None:
    hosted.script(hang)
    process = _start("--no-stream")
    while not hosted.requests:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.strip()) == (130, "interrupted")
    assert [row.status for row in _rows()] == ["cancelled"]


def test_a_closed_output_pipe_causes_no_error_message(hosted) -> None:
    hosted.script(broken_stream(*[FRAME] * 20000, how="close"))
    process = _start()
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(5)
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(60) == 141
    assert [row.status for row in _rows()] == ["cancelled"]
