"""The request log: one JSON line per request with its outcome and without its content."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from gateway_server import Served, upstream_settings, wait_until
from loopback_server import OpenAIServer

from specclient.serving.request_log import JSONLogFormatter, log_format

Connect = Callable[[str], openai.OpenAI]
ASK: Any = {"messages": [{"role": "user", "content": "a secret question"}]}


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Log as JSON; call the fixture to get the lines so far."""
    stream = io.StringIO()
    with log_format("json", stream):
        yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_each_request_is_logged_as_one_line_without_its_content(
    connect: Connect, openai_server: OpenAIServer, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    with Served(upstream_settings(openai_server), key="sk-ours") as served:
        client = connect(served.base_url).with_options(api_key="sk-ours")
        answer = client.chat.completions.create(model="mine/m-large", **ASK)
        list(client.chat.completions.create(model="auto", stream=True, **ASK))
        with pytest.raises(openai.AuthenticationError):
            connect(served.base_url).chat.completions.create(model="mine/m-large", **ASK)
        assert wait_until(lambda: len(lines()) >= 3)
    whole, streamed, refused = [line for line in lines() if line["logger"] == "specclient.requests"]
    assert answer.usage is not None
    assert answer._request_id == whole["id"]
    assert whole["model"] == whole["chosen"] == "mine/m-large"
    assert (whole["method"], whole["route"], whole["status"]) == ("POST", "/v1/chat/completions", 200)
    assert whole["prompt_tokens"] == answer.usage.prompt_tokens
    assert whole["completion_tokens"] == answer.usage.completion_tokens
    spent = 2 * answer.usage.prompt_tokens + 8 * answer.usage.completion_tokens
    assert float(whole["cost_usd"]) == pytest.approx(spent / 10**6)
    assert 0 <= whole["queue_s"] <= whole["latency_s"]
    assert "ttft_s" not in whole
    assert (streamed["model"], streamed["streamed"]) == ("auto", True)
    assert streamed["chosen"].startswith("mine/")
    assert 0 < streamed["ttft_s"] <= streamed["latency_s"]
    assert (refused["status"], refused["code"]) == (401, "invalid_api_key")
    assert "model" not in refused
    text = json.dumps(lines())
    assert not [word for word in ("secret", "sk-ours", "sk-upstream", "quick brown") if word in text]


def test_drafted_and_accepted_tokens_are_logged(
    connect: Connect, local_server: Served, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    connect(local_server.base_url).completions.create(model="local/demo", prompt="def f", max_tokens=24)
    assert wait_until(lambda: len(lines()) >= 1)
    (line,) = lines()
    assert 0 <= line["accepted"] <= line["drafted"]
    assert line["acceptance_rate"] == pytest.approx(line["accepted"] / line["drafted"], abs=1e-6)


def test_other_log_records_are_json_lines_too() -> None:
    error = ValueError("broken\nin two")
    exc_info = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("specclient", logging.WARNING, "f", 1, "%s\nfailed", ("it",), exc_info)
    line = JSONLogFormatter().format(record)
    assert "\n" not in line
    read = json.loads(line)
    assert (read["level"], read["message"]) == ("warning", "it\nfailed")
    assert "ValueError: broken" in read["exception"]


def test_the_environment_selects_the_log_format(
    connect: Connect,
    openai_server: OpenAIServer,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPECCLIENT_LOG_FORMAT", "json")
    with Served(upstream_settings(openai_server)) as served:
        connect(served.base_url).chat.completions.create(model="mine/m-large", **ASK)
    (line,) = capfd.readouterr().err.splitlines()
    assert json.loads(line)["route"] == "/v1/chat/completions"
    assert logging.getLogger("specclient").propagate
    monkeypatch.delenv("SPECCLIENT_LOG_FORMAT")
    with Served(upstream_settings(openai_server)) as served:
        connect(served.base_url).chat.completions.create(model="mine/m-large", **ASK)
    assert capfd.readouterr().err == ""
