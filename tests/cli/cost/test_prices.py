"""``specclient cost prices``, ``update-prices`` and ``estimate``: what would be charged, before it is."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pytest
from loopback_server import OpenAIServer, reply
from specclient_cli.cost.prompt_file import read_prompt_file

from specclient import OpenAI

CATALOGUE = [
    {
        "id": "openai",
        "name": "OpenAI",
        "api_pattern": "https://api\\.openai\\.com",
        "models": [
            {"id": "gpt-x", "match": {"equals": "gpt-x"}, "prices": {"input_mtok": 3, "output_mtok": 9}},
        ],
    }
]


# --- prices


def test_prices_of_a_model(run) -> None:
    code, out, err = run("cost", "prices", "anthropic/claude-sonnet-4-5")
    assert (code, err) == (0, "")
    heading, line, catalogue = out.splitlines()
    assert heading.split() == ["model", "input", "cached", "written", "written", "1", "h", "output"]
    assert line.split()[:6] == ["anthropic/claude-sonnet-4-5", "$3", "$0.3", "$3.75", "$6", "$15"]
    assert "genai-prices: anthropic/claude-sonnet-4-5 on " in line
    assert catalogue.startswith("catalogue of genai-prices ")


def test_prices_of_what_is_configured(run, hosted: OpenAIServer) -> None:
    told = json.loads(run("cost", "prices", "--json")[1])
    prices = {each["model"]: each for each in told["prices"]}
    assert list(prices) == ["local/demo", "mine/m-large", "mine/m-small"]
    assert prices["mine/m-large"]["per_million"] == {"input": "2", "output": "8"}
    assert prices["mine/m-large"]["source"] == '[prices."mine/m-large"] in the configuration'
    assert prices["local/demo"]["per_hour"] == {"engine": "0.10"}
    assert prices["local/demo"]["estimated"]
    assert set(told["catalogue"]) == {"package", "fetched", "path"}


def test_a_model_without_a_price_names_the_setting(run, hosted: OpenAIServer) -> None:
    code, out, _ = run("cost", "prices", "mine/other")
    assert code == 0
    assert 'no price; set [prices."mine/other"] in specclient.toml' in out
    assert json.loads(run("cost", "prices", "mine/other", "--json")[1])["prices"][0]["source"] is None


def test_a_gateway_is_priced_by_model_name_and_says_so(run, hosted: OpenAIServer) -> None:
    _, out, _ = run("cost", "prices", "mine/gpt-4.1")
    assert "~$2" in out
    assert "priced by model name; the endpoint is not known" in out


def test_an_unknown_provider(run) -> None:
    code, _, err = run("cost", "prices", "nowhere/m")
    assert code == 1
    assert "unknown provider 'nowhere'" in err


# --- update-prices


def test_a_fetched_catalogue_is_used_and_its_age_shown(run, openai_server: OpenAIServer) -> None:
    assert "no price" in run("cost", "prices", "openai/gpt-x")[1]
    openai_server.script(reply(200, CATALOGUE))
    url = f"{openai_server.url}/prices.json"
    code, out, err = run("cost", "update-prices", "--url", url)
    assert (code, err) == (0, "")
    assert out.startswith("1 models in ")
    assert "before: catalogue of genai-prices" in out
    assert "authorization" not in openai_server.requests[0].headers
    shown = run("cost", "prices", "openai/gpt-x")[1]
    assert "$3" in shown
    assert "genai-prices (fetched " in shown
    assert "catalogue fetched today, on 20" in shown
    told = json.loads(run("cost", "prices", "openai/gpt-x", "--json")[1])["catalogue"]
    assert Path(told["path"]).is_file()
    assert told["models"] == 1


@pytest.mark.parametrize(
    ("behaviour", "told"),
    [
        (reply(503, b"busy"), "answered 503"),
        (reply(200, b"<html>"), "not a price catalogue"),
        (reply(200, []), "not a price catalogue"),
    ],
)
def test_what_cannot_be_used_leaves_what_there_is(run, openai_server, behaviour: Any, told: str) -> None:
    url = f"{openai_server.url}/prices.json"
    openai_server.script(reply(200, CATALOGUE), behaviour)
    assert run("cost", "update-prices", "--url", url, "--json")[0] == 0
    code, out, err = run("cost", "update-prices", "--url", url)
    assert code in (1, 3)
    assert out == ""
    assert told in err
    assert "$3" in run("cost", "prices", "openai/gpt-x")[1]


def test_offline(run, openai_server: OpenAIServer) -> None:
    url = openai_server.url
    openai_server.close()
    code, _, err = run("cost", "update-prices", "--url", f"{url}/prices.json")
    assert code == 1
    assert "could not be fetched" in err
    assert "the catalogue of genai-prices" in err
    code, _, err = run("cost", "update-prices", "--url", "no-url")
    assert code == 1
    assert "no-url could not be fetched" in err


# --- estimate


def estimated(run, *arguments: str) -> dict[str, Any]:
    code, out, err = run("cost", "estimate", *arguments, "--json")
    assert (code, err) == (0, "")
    told: dict[str, Any] = json.loads(out)
    return told


def test_a_text_file(run, hosted: OpenAIServer, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("Write a poem about cats.")
    told = estimated(run, str(file), "-m", "mine/m-large")
    assert told["calls"] == 1
    assert told["completion_tokens"] == {"low": 32, "likely": 256, "high": 1024}
    tokens = told["prompt_tokens"]
    assert 8 < tokens < 30
    assert told["prompt_tokens_estimated"]
    for end in ("low", "likely", "high"):
        spent = (tokens * 2 + told["completion_tokens"][end] * 8) / Decimal(1_000_000)
        assert Decimal(told["cost"][end]) == spent
    assert not hosted.requests


def test_a_table_for_people(run, hosted: OpenAIServer, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("hi")
    code, out, _ = run("cost", "estimate", str(file), "-m", "mine/m-large", "--max-tokens", "100")
    assert code == 0
    assert out.splitlines()[0] == "1 call"
    assert out.splitlines()[3].split() == ["answer", "tokens", "32", "100", "100"]
    assert (
        '[prices."mine/m-large"] in the configuration; assumed answer lengths; there are no earlier calls'
        in out
    )


def test_a_batch_is_summed_over_its_models(run, hosted: OpenAIServer, tmp_path: Path) -> None:
    def line(model: str, **body: Any) -> str:
        request = {"model": model, "messages": [{"role": "user", "content": "hi"}], **body}
        return json.dumps(
            {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": request}
        )

    file = tmp_path / "batch.jsonl"
    file.write_text(
        "\n".join(
            [line("mine/m-large", max_tokens=50), "", line("mine/m-small", max_completion_tokens=5, n=3)]
        )
    )
    told = estimated(run, str(file))
    assert told["calls"] == 2
    assert [each["model"] for each in told["models"]] == ["mine/m-large", "mine/m-small"]
    assert told["completion_tokens"] == {"low": 32 + 15, "likely": 50 + 15, "high": 50 + 15}
    half = told["prompt_tokens"] // 2
    assert Decimal(told["cost"]["high"]) == Decimal(half * 2 + 50 * 8 + half * 1 + 15 * 4) / 1_000_000
    other = estimated(run, str(file), "-m", "mine/m-small", "--max-tokens", "1")
    assert [each["model"] for each in other["models"]] == ["mine/m-small"]
    assert other["completion_tokens"]["high"] == 1 + 3


def test_earlier_answers_are_what_is_expected(run, hosted: OpenAIServer, tmp_path: Path) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 40, "total_tokens": 50}
    body = {"id": "x", "choices": [{"index": 0, "message": {"content": "hi"}}], "usage": usage}
    with OpenAI() as client:
        for tokens in range(31, 51):
            usage["completion_tokens"] = tokens
            hosted.script(reply(200, body))
            client.chat.completions.create(model="mine/m-large", messages=[{"role": "user", "content": "x"}])
    file = tmp_path / "prompt.txt"
    file.write_text("hi")
    told = estimated(run, str(file), "-m", "mine/m-large")
    assert told["completion_tokens"] == {"low": 32, "likely": 40, "high": 48}
    assert told["models"][0]["earlier_calls"] == 20
    assert estimated(run, str(file), "-m", "mine/m-small")["models"][0]["earlier_calls"] == 0


def test_a_local_model_is_counted_by_its_own_tokenizer(run, local: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompt.jsonl"
    file.write_text(json.dumps({"prompt": "def fibonacci(n):"}))
    told = estimated(run, str(file), "-m", "local/demo", "--max-tokens", "10")
    from tokenizers import Tokenizer

    path = next(line.split('"')[1] for line in local.read_text().splitlines() if line.startswith("path"))
    exact = len(Tokenizer.from_file(f"{path}/tokenizer.json").encode("def fibonacci(n):").ids)
    assert (told["prompt_tokens"], told["prompt_tokens_estimated"]) == (exact, False)
    assert Decimal(told["cost"]["high"]) > 0


def test_standard_input(shell, hosted: OpenAIServer) -> None:
    chat = json.dumps([{"role": "user", "content": "hi"}])
    done = shell("cost", "estimate", "-", "-m", "mine/m-large", "--json", input=chat)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["calls"] == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\xff\xfe", "is not UTF-8 text"),
        (b'{"prompt": "x"}\n{"prompt": 1', "line 2 is not a request"),
        (b'{"messages": []}\n{"url": "/v1/files", "body": {}}\n', "line 2 is not a request"),
    ],
)
def test_what_cannot_be_read(run, hosted: OpenAIServer, tmp_path: Path, content: bytes, told: str) -> None:
    file = tmp_path / "prompts"
    file.write_bytes(content)
    code, _, err = run("cost", "estimate", str(file), "-m", "mine/m-large")
    assert code == 2
    assert told in err


def test_what_cannot_be_estimated(run, hosted: OpenAIServer, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    code, _, err = run("cost", "estimate", str(file))
    assert (code, "cannot read" in err) == (2, True)
    file.write_text("hi")
    code, _, err = run("cost", "estimate", str(file), "-m", "auto")
    assert (code, "give one with -m" in err) == (2, True)
    told = estimated(run, str(file), "-m", "mine/other")
    assert told["cost"] == {"low": None, "likely": None, "high": None}
    assert told["models"][0]["source"] == 'no price; set [prices."mine/other"] in specclient.toml'


# --- what is in a file


@pytest.mark.parametrize(
    ("text", "operations"),
    [
        ("plain words", ["chat"]),
        ("", ["chat"]),
        ("[not json", ["chat"]),
        ("{'no': 'json'}", ["chat"]),
        ("[1, 2]", ["chat"]),
        ('{"a": 1}', ["chat"]),
        ('[{"role": "user", "content": "x"}]', ["chat"]),
        ('{"messages": []}', ["chat"]),
        ('{"prompt": "x"}', ["completion"]),
        ('{"input": "x"}', ["response"]),
        ('{"url": "/v1/embeddings", "body": {"input": "x"}}', ["embedding"]),
        ('{"url": "https://h/v1/responses/", "body": {"input": "x"}}', ["response"]),
        ('[{"prompt": "x"}, {"messages": []}]', ["completion", "chat"]),
        ('{"prompt": "x"}\n\n{"messages": []}\n', ["completion", "chat"]),
    ],
)
def test_what_is_read(text: str, operations: list[str]) -> None:
    assert [asked.request.operation for asked in read_prompt_file(text)] == operations


def test_a_text_is_one_prompt_word_for_word() -> None:
    (asked,) = read_prompt_file("  [brackets first\nand a second line\n")
    assert asked.request.params["messages"][0]["content"] == "  [brackets first\nand a second line\n"


def test_limits_models_and_answers_are_read() -> None:
    line = {"model": "m", "messages": [], "max_completion_tokens": 5, "n": 3}
    (asked,) = read_prompt_file(json.dumps(line))
    assert (asked.model, asked.most, asked.answers) == ("m", 5, 3)
    (odd,) = read_prompt_file(json.dumps({"model": 5, "messages": [], "max_tokens": "many", "n": True}))
    assert (odd.model, odd.most, odd.answers) == (None, None, 1)


def test_a_depth_that_no_reader_takes() -> None:
    with pytest.raises(click.UsageError, match="line 2"):
        read_prompt_file('{"prompt": "x"}\n' + "[" * (sys.getrecursionlimit() * 10))
