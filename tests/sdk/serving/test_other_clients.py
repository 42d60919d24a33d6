"""Other clients against a server process, configured with its base URL only: openai, langchain, llm.

``make compat`` installs the clients that are not development dependencies and runs this file.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import openai
import pytest

MODEL = "local/demo"
ASK: Any = [{"role": "user", "content": "def f(x):"}]
NOT_INSTALLED = "is not installed: pip install 'specclient[compat]', or make compat"
SCHEMA: Any = {
    "type": "object",
    "properties": {"city": {"enum": ["Ulm", "Bonn"]}},
    "required": ["city"],
    "additionalProperties": False,
}


def _module(name: str) -> ModuleType:
    return pytest.importorskip(name, reason=f"{name} {NOT_INSTALLED}")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a ``specclient serve`` process."""
    home = tmp_path_factory.mktemp("served")
    dropped = ("OPENAI_", "SPECCLIENT_", "HF_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(dropped) and not k.endswith("_API_KEY")}
    env |= {"HOME": str(home), "SPECCLIENT_LEDGER": str(home / "ledger.sqlite3"), "OMP_NUM_THREADS": "1"}
    command = "from specclient_cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", command, "serve", "--port", "0"], stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"at (http://\S+/v1)$", line.rstrip()):
                yield found[1]
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.fixture
def client(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[openai.OpenAI]:
    """The official client, configured by environment variables only."""
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    with openai.OpenAI() as made:
        yield made


def test_openai_chat_choices_streams_seeds_and_stops(client: openai.OpenAI) -> None:
    ask: Any = {"model": MODEL, "messages": ASK, "max_tokens": 24, "seed": 5, "temperature": 1.0}
    both = client.chat.completions.create(n=2, **ask)
    assert [choice.index for choice in both.choices] == [0, 1]
    assert both.choices[0].message.content != both.choices[1].message.content
    again = client.chat.completions.create(n=2, **ask)
    texts = [choice.message.content for choice in both.choices]
    assert [choice.message.content for choice in again.choices] == texts
    chunks = list(client.chat.completions.create(n=2, stream=True, **ask))
    for index, text in enumerate(texts):
        parts = [c for chunk in chunks for c in chunk.choices if c.index == index]
        assert "".join(part.delta.content or "" for part in parts) == text
        assert parts[-1].finish_reason == "length"
    text = texts[0] or ""
    stop = text[len(text) // 2 :][:3]
    cut = client.chat.completions.create(stop=[stop], **ask).choices[0]
    assert cut.finish_reason == "stop"
    assert cut.message.content == text[: text.index(stop)]


def test_openai_logprobs_schemas_and_predictions(client: openai.OpenAI) -> None:
    ask: Any = {"model": MODEL, "messages": ASK, "max_tokens": 24, "temperature": 0}
    scored = client.chat.completions.create(logprobs=True, top_logprobs=3, **ask).choices[0]
    assert scored.logprobs is not None
    tokens = scored.logprobs.content or []
    assert "".join(token.token for token in tokens) == scored.message.content
    for token in tokens:  # greedy: each token is the likeliest
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].token == token.token
        assert token.top_logprobs[0].logprob == pytest.approx(token.logprob)
    form: Any = {"type": "json_schema", "json_schema": {"name": "town", "schema": SCHEMA, "strict": True}}
    held = client.chat.completions.create(response_format=form, **ask).choices[0]
    assert held.finish_reason == "stop"
    assert json.loads(held.message.content or "")["city"] in ("Ulm", "Bonn")
    prediction: Any = {"type": "content", "content": scored.message.content}
    usage = client.chat.completions.create(prediction=prediction, **ask).usage
    assert usage is not None
    assert usage.completion_tokens_details is not None
    assert (usage.completion_tokens_details.accepted_prediction_tokens or 0) > 12


def test_openai_completions_echo_and_stream(client: openai.OpenAI) -> None:
    ask: Any = {"model": MODEL, "max_tokens": 8, "temperature": 0}
    several = client.completions.create(prompt=["a = ", "b = "], **ask)
    assert [choice.index for choice in several.choices] == [0, 1]
    echoed = client.completions.create(prompt="a = ", echo=True, logprobs=2, **ask).choices[0]
    assert echoed.text == f"a = {several.choices[0].text}"
    assert echoed.logprobs is not None
    assert (echoed.logprobs.token_logprobs or [0])[0] is None
    assert "".join(echoed.logprobs.tokens or []).endswith(echoed.text)
    stream = client.completions.create(
        prompt="a = ", stream=True, stream_options={"include_usage": True}, **ask
    )
    *chunks, last = stream
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == several.choices[0].text
    assert last.usage is not None
    assert last.usage.completion_tokens == 8


def test_openai_responses_stream_and_models_are_listed(client: openai.OpenAI) -> None:
    assert MODEL in [model.id for model in client.models.list()]
    ask: Any = {"model": MODEL, "input": "def f(x):", "max_output_tokens": 16, "temperature": 0}
    whole = client.responses.create(**ask)
    deltas = [e.delta for e in client.responses.create(stream=True, **ask) if e.type.endswith("text.delta")]  # type: ignore[union-attr]
    assert "".join(deltas) == whole.output_text != ""


@pytest.mark.parametrize("responses", [False, True])
def test_langchain_chat_streams_structured_output_and_batches(url: str, responses: bool) -> None:
    made = _module("langchain_openai").ChatOpenAI(
        model=MODEL, base_url=url, api_key="any", max_tokens=16, temperature=0, use_responses_api=responses
    )
    whole = made.invoke("def f(x):")
    assert whole.text
    assert whole.usage_metadata["output_tokens"] == 16
    assert "".join(chunk.text for chunk in made.stream("def f(x):")) == whole.text
    town = made.with_structured_output({"title": "town", **SCHEMA}, method="json_schema").invoke("Where?")
    assert town["city"] in ("Ulm", "Bonn")
    assert len(made.batch(["a", "b"])) == 2


def test_langchain_completions_stream_the_same_text(url: str) -> None:
    made = _module("langchain_openai").OpenAI(
        model=MODEL, base_url=url, api_key="any", max_tokens=8, temperature=0
    )
    assert made.invoke("a = ") == "".join(made.stream("a = "))


@pytest.mark.parametrize("responses", [False, True])
def test_the_llm_command_streams_the_same_text(url: str, tmp_path: Path, responses: bool) -> None:
    _module("llm")
    if not hasattr(importlib.import_module("llm.default_plugins.openai_models"), "Responses"):
        pytest.skip("this release of llm has no command for a custom endpoint")
    command = [sys.executable, "-m", "llm", "openai", "endpoint", url, "-m", MODEL, "-o", "max_tokens", "16"]
    env = {**os.environ, "LLM_USER_PATH": str(tmp_path)}

    def say(*more: str) -> str:
        asked = [*command, *(["--responses"] if responses else []), "-o", "temperature", "0", *more]
        done = subprocess.run(
            [*asked, "def f(x):"], env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert say("--no-stream").strip() == say().strip() != ""
