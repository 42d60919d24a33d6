"""``specclient cost prices``, ``update-prices`` and ``estimate``: prices and costs before a call."""

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


def test_a_models_prices_are_shown(run) -> None:
    code, out, err = run("cost", "prices", "anthropic/claude-sonnet-4-5")
    assert (code, err) == (0, "")
    heading, line, catalogue = out.splitlines()
    assert heading.split() == ["model", "input", "cached", "written", "written", "1", "h", "output"]
    assert line.split()[:6] == ["anthropic/claude-sonnet-4-5", "$3", "$0.3", "$3.75", "$6", "$15"]
    assert "genai-prices: anthropic/claude-sonnet-4-5 on " in line
    assert catalogue.startswith("catalogue of genai-prices ")


def test_configured_prices_are_listed(run, hosted: OpenAIServer) -> None:
    shown = json.loads(run("cost", "prices", "--json")[1])
    prices = {each["model"]: each for each in shown["prices"]}
    assert list(prices) == ["local/demo", "mine/m-large", "mine/m-small"]
    assert prices["mine/m-large"]["per_million"] == {"input": "2", "output": "8"}
    assert prices["mine/m-large"]["source"] == '[prices."mine/m-large"] in the configuration'
    assert prices["local/demo"]["per_hour"] == {"engine": "0.10"}
    assert prices["local/demo"]["estimated"]
    assert set(shown["catalogue"]) == {"package", "fetched", "path"}


def test_a_model_without_a_price_names_the_setting(run, hosted: OpenAIServer) -> None:
    code, out, _ = run("cost", "prices", "mine/other")
    assert code == 0
    assert 'no price; set [prices."mine/other"] in specclient.toml' in out
    assert json.loads(run("cost", "prices", "mine/other", "--json")[1])["prices"][0]["source"] is None


def test_a_gateways_price_by_model_name_is_marked(run, hosted: OpenAIServer) -> None:
    _, out, _ = run("cost", "prices", "mine/gpt-4.1")
    assert "~$2" in out
    assert "priced by model name; the endpoint is not known" in out


def test_prices_of_an_unknown_provider_are_an_error(run) -> None:
    code, _, err = run("cost", "prices", "nowhere/m")
    assert code == 1
    assert "unknown provider 'nowhere'" in err


# --- update-prices


def test_a_fetched_catalogue_is_used_and_its_date_shown(run, openai_server: OpenAIServer) -> None:
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
    catalogue = json.loads(run("cost", "prices", "openai/gpt-x", "--json")[1])["catalogue"]
    assert Path(catalogue["path"]).is_file()
    assert catalogue["models"] == 1


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        (reply(503, b"busy"), "answered 503"),
        (reply(200, b"<html>"), "not a price catalogue"),
        (reply(200, []), "not a price catalogue"),
    ],
)
def test_an_unusable_download_keeps_the_present_catalogue(
    run, openai_server, behaviour: Any, message: str
) -> None:
    url = f"{openai_server.url}/prices.json"
    openai_server.script(reply(200, CATALOGUE), behaviour)
    assert run("cost", "update-prices", "--url", url, "--json")[0] == 0
    code, out, err = run("cost", "update-prices", "--url", url)
    assert code in (1, 3)
    assert out == ""
    assert message in err
    assert "$3" in run("cost", "prices", "openai/gpt-x")[1]


def test_update_prices_offline_is_an_error(run, openai_server: OpenAIServer) -> None:
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


def run_estimate(run, *arguments: str) -> dict[str, Any]:
    code, out, err = run("cost", "estimate", *arguments, "--json")
    assert (code, err) == (0, "")
    result: dict[str, Any] = json.loads(out)
    return result


def test_a_text_file_is_estimated(run, hosted: OpenAIServer, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("Write a poem about cats.")
    estimate = run_estimate(run, str(file), "-m", "mine/m-large")
    assert estimate["calls"] == 1
    assert estimate["completion_tokens"] == {"low": 32, "likely": 256, "high": 1024}
    tokens = estimate["prompt_tokens"]
    assert 8 < tokens < 30
    assert estimate["prompt_tokens_estimated"]
    for end in ("low", "likely", "high"):
        spent = (tokens * 2 + estimate["completion_tokens"][end] * 8) / Decimal(1_000_000)
        assert Decimal(estimate["cost"][end]) == spent
    assert not hosted.requests


def test_an_estimate_is_shown_as_a_table(run, hosted: OpenAIServer, tmp_path: Path) -> None:
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


def test_a_batch_estimate_is_summed_by_model(run, hosted: OpenAIServer, tmp_path: Path) -> None:
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
    estimate = run_estimate(run, str(file))
    assert estimate["calls"] == 2
    assert [each["model"] for each in estimate["models"]] == ["mine/m-large", "mine/m-small"]
    assert estimate["completion_tokens"] == {"low": 32 + 15, "likely": 50 + 15, "high": 50 + 15}
    half = estimate["prompt_tokens"] // 2
    assert Decimal(estimate["cost"]["high"]) == Decimal(half * 2 + 50 * 8 + half * 1 + 15 * 4) / 1_000_000
    other = run_estimate(run, str(file), "-m", "mine/m-small", "--max-tokens", "1")
    assert [each["model"] for each in other["models"]] == ["mine/m-small"]
    assert other["completion_tokens"]["high"] == 1 + 3


def test_answer_lengths_are_estimated_from_earlier_calls(run, hosted: OpenAIServer, tmp_path: Path) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 40, "total_tokens": 50}
    body = {"id": "x", "choices": [{"index": 0, "message": {"content": "hi"}}], "usage": usage}
    with OpenAI() as client:
        for tokens in range(31, 51):
            usage["completion_tokens"] = tokens
            hosted.script(reply(200, body))
            client.chat.completions.create(model="mine/m-large", messages=[{"role": "user", "content": "x"}])
    file = tmp_path / "prompt.txt"
    file.write_text("hi")
    estimate = run_estimate(run, str(file), "-m", "mine/m-large")
    assert estimate["completion_tokens"] == {"low": 32, "likely": 40, "high": 48}
    assert estimate["models"][0]["earlier_calls"] == 20
    assert run_estimate(run, str(file), "-m", "mine/m-small")["models"][0]["earlier_calls"] == 0


def test_a_local_models_tokenizer_counts_the_prompt(run, local: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompt.jsonl"
    file.write_text(json.dumps({"prompt": "def fibonacci(n):"}))
    estimate = run_estimate(run, str(file), "-m", "local/demo", "--max-tokens", "10")
    from tokenizers import Tokenizer

    path = next(line.split('"')[1] for line in local.read_text().splitlines() if line.startswith("path"))
    exact = len(Tokenizer.from_file(f"{path}/tokenizer.json").encode("def fibonacci(n):").ids)
    assert (estimate["prompt_tokens"], estimate["prompt_tokens_estimated"]) == (exact, False)
    assert Decimal(estimate["cost"]["high"]) > 0


def test_a_prompt_is_read_from_standard_input(shell, hosted: OpenAIServer) -> None:
    chat = json.dumps([{"role": "user", "content": "hi"}])
    done = shell("cost", "estimate", "-", "-m", "mine/m-large", "--json", input=chat)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["calls"] == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "is not UTF-8 text"),
        (b'{"prompt": "x"}\n{"prompt": 1', "line 2 is not a request"),
        (b'{"messages": []}\n{"url": "/v1/files", "body": {}}\n', "line 2 is not a request"),
    ],
)
def test_an_unreadable_prompt_file_is_an_error(
    run, hosted: OpenAIServer, tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "prompts"
    file.write_bytes(content)
    code, _, err = run("cost", "estimate", str(file), "-m", "mine/m-large")
    assert code == 2
    assert message in err


def test_a_missing_file_or_model_is_an_error_and_no_price_is_reported(
    run, hosted: OpenAIServer, tmp_path: Path
) -> None:
    file = tmp_path / "prompt.txt"
    code, _, err = run("cost", "estimate", str(file))
    assert (code, "cannot read" in err) == (2, True)
    file.write_text("hi")
    code, _, err = run("cost", "estimate", str(file), "-m", "auto")
    assert (code, "give one with -m" in err) == (2, True)
    estimate = run_estimate(run, str(file), "-m", "mine/other")
    assert estimate["cost"] == {"low": None, "likely": None, "high": None}
    assert estimate["models"][0]["source"] == 'no price; set [prices."mine/other"] in specclient.toml'


# --- forms of prompt files


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
def test_every_form_of_prompt_file_is_recognized(text: str, operations: list[str]) -> None:
    assert [asked.request.operation for asked in read_prompt_file(text)] == operations


def test_a_plain_text_is_one_unchanged_prompt() -> None:
    (asked,) = read_prompt_file("  [brackets first\nand a second line\n")
    assert asked.request.params["messages"][0]["content"] == "  [brackets first\nand a second line\n"


def test_model_limit_and_number_of_answers_are_read() -> None:
    line = {"model": "m", "messages": [], "max_completion_tokens": 5, "n": 3}
    (asked,) = read_prompt_file(json.dumps(line))
    assert (asked.model, asked.most, asked.answers) == ("m", 5, 3)
    (odd,) = read_prompt_file(json.dumps({"model": 5, "messages": [], "max_tokens": "many", "n": True}))
    assert (odd.model, odd.most, odd.answers) == (None, None, 1)


def test_json_nested_too_deeply_is_an_error() -> None:
    with pytest.raises(click.UsageError, match="line 2"):
        read_prompt_file('{"prompt": "x"}\n' + "[" * (sys.getrecursionlimit() * 10))


def test_prices_by_units_are_shown(run, in_empty_folder: Path) -> None:
    _, out, _ = run("cost", "prices", "openai/whisper-1")
    assert "$0.36 per 3,600 × audio second" in out
    _, out, _ = run("cost", "prices", "openai/dall-e-3")
    assert "$0.12 per image hd 1024x1792" in out
    values = json.loads(run("cost", "prices", "openai/tts-1", "--json")[1])
    assert values["prices"][0]["units"] == {"character": {"dollars": "15", "per": 1_000_000}}
