"""One line of JSON tells of a request what it came to, and nothing of what was said."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from served import Served, upstream_settings, wait_until
from servers import OpenAIServer

from specclient.serving.requests_log import JSONLines, log_as_json

Connect = Callable[[str], openai.OpenAI]
ASK: Any = {"messages": [{"role": "user", "content": "a secret question"}]}


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Log as JSON, and return the lines so far."""
    loggers = [logging.getLogger(name) for name in ("specclient", "uvicorn", "specclient.requests")]
    before = [(logger, logger.propagate, logger.level) for logger in loggers]
    stream = io.StringIO()
    handler = log_as_json(stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    for logger, propagate, level in before:
        logger.removeHandler(handler)
        logger.propagate = propagate
        logger.setLevel(level)


def test_a_line_for_each_request(
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
    assert not [said for said in ("secret", "sk-ours", "sk-upstream", "quick brown") if said in text]


def test_what_the_engine_accepted_is_in_the_line(
    connect: Connect, local_server: Served, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    connect(local_server.base_url).completions.create(model="local/demo", prompt="def f", max_tokens=24)
    assert wait_until(lambda: len(lines()) >= 1)
    (line,) = lines()
    assert 0 <= line["accepted"] <= line["drafted"]
    assert line["acceptance_rate"] == pytest.approx(line["accepted"] / line["drafted"], abs=1e-6)


def test_other_records_are_lines_too() -> None:
    error = ValueError("broken\nin two")
    told = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("specclient", logging.WARNING, "f", 1, "%s\nfailed", ("it",), told)
    line = JSONLines().format(record)
    assert "\n" not in line
    read = json.loads(line)
    assert (read["level"], read["message"]) == ("warning", "it\nfailed")
    assert "ValueError: broken" in read["exception"]
