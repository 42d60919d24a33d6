"""``specclient serve`` as a subprocess: its printed instructions, serving, and orderly shutdown."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from forked_program import COMMAND, ForkedProgram
from loopback_server import OpenAIServer, events

Start = Callable[..., "Serving"]


class Serving:
    """A running ``specclient serve``; ``output`` is what it printed before it accepted requests."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = ForkedProgram(
            [*COMMAND, "serve", "--port", "0", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        )  # fmt: skip
        self._timer = threading.Timer(120, self.process.kill)
        self._timer.start()
        assert self.process.stdout is not None
        self.output = ""
        for line in self.process.stdout:
            self.output += line
            if line.startswith("    try "):
                break
        else:
            pytest.fail(f"ended: {self.output} {self.process.communicate()}")
        found = re.search(r"http://\S+/v1", self.output)
        assert found
        self.url = found.group()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal; return the exit code and what was printed after ``output``."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            out, err = self.process.communicate(timeout=60)
        finally:
            self._timer.cancel()
        return self.process.returncode, out, err


@pytest.fixture
def start() -> Iterator[Start]:
    """Start servers; kill those that the test leaves running."""
    with ExitStack() as stack:

        def started(*arguments: str, **environment: str) -> Serving:
            serving = Serving(*arguments, **environment)
            stack.callback(lambda: serving.process.returncode is None and serving.end(signal.SIGKILL))
            return serving

        yield started


def _get(url: str, key: str = "") -> Any:
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def _ids(serving: Serving, key: str = "") -> list[str]:
    return [row["id"] for row in _get(f"{serving.url}/models", key)["data"]]


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_printed_curl_command_works(start: Start, local: Path) -> None:
    serving = start("--model", "local/demo-target")
    assert serving.output.startswith("Serving local/demo-target\n")
    line = serving.output.partition("try ")[2].strip()
    done = subprocess.run(["sh", "-c", f"{line} --silent"], capture_output=True, check=True, timeout=60)
    answer = json.loads(done.stdout)
    assert answer["usage"]["completion_tokens"] == 32
    assert _ids(serving) == ["local/demo-target"]
    code, out, err = serving.end()
    assert (code, out, err) == (0, "Stopped.\n", "")


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_key_is_not_printed_and_is_required(start: Start, local: Path) -> None:
    serving = start("--host", "0.0.0.0", SPECCLIENT_SERVER_KEY="open-sesame")
    assert "open-sesame" not in serving.output
    assert serving.url.startswith("http://127.0.0.1:")
    line = serving.output.partition("try ")[2].strip().replace("local/demo ", "local/demo-target ")
    assert _ids(serving, "open-sesame")[:2] == ["local/demo", "local/demo-target"]
    with pytest.raises(urllib.error.HTTPError, match="401"):
        _ids(serving)
    env = {**os.environ, "SPECCLIENT_SERVER_KEY": "open-sesame"}
    done = subprocess.run(
        ["sh", "-c", f"{line} --silent"], capture_output=True, check=True, timeout=60, env=env
    )
    assert json.loads(done.stdout)["choices"]
    assert serving.end()[0] == 0


def test_configured_providers_are_served(start: Start, hosted: OpenAIServer) -> None:
    serving = start()
    assert {"mine/m-large", "mine/m-small", "local/demo", "auto"} == set(_ids(serving)) - {
        "local/demo-target"
    }
    body = {"model": "mine/m-small", "messages": [{"role": "user", "content": "x"}]}
    request = urllib.request.Request(f"{serving.url}/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.loads(answer.read())["model"] == "m-small"
    assert serving.end(signal.SIGINT)[:2] == (0, "Stopped.\n")


@pytest.mark.parametrize("options", [("--log-format", "json"), ("--log-format", "json", "--workers", "2")])
def test_each_request_is_logged_as_one_json_line(
    start: Start, hosted: OpenAIServer, options: tuple[str, ...]
) -> None:
    serving = start(*options)
    body = {"model": "mine/m-small", "messages": [{"role": "user", "content": "a secret"}]}
    request = urllib.request.Request(f"{serving.url}/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        number = answer.headers["x-request-id"]
    code, _, err = serving.end()
    lines = [json.loads(line) for line in err.splitlines()]
    (line,) = [line for line in lines if line.get("id") == number]
    assert (code, line["route"], line["model"]) == (0, "/v1/chat/completions", "mine/m-small")
    assert (line["status"], line["chosen"]) == (200, "mine/m-small")
    assert "secret" not in err


def test_another_configuration_file_can_be_given(
    start: Start, tmp_path: Path, openai_server: OpenAIServer
) -> None:
    file = tmp_path / "other.toml"
    file.write_text(f'[providers.other]\nbase_url = "{openai_server.base_url}"\nmodels = ["m-large"]\n')
    assert "other/m-large" in _ids(start("--config", str(file)))


def test_a_signal_lets_a_stream_finish(start: Start, hosted: OpenAIServer) -> None:
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunk["choices"] = [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]
    frame = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    hosted.script(events(*[frame] * 6, b"data: [DONE]\n\n", gap=0.2))
    serving = start()
    body = {"model": "mine/m-large", "messages": [{"role": "user", "content": "x"}], "stream": True}
    request = urllib.request.Request(f"{serving.url}/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.readline().startswith(b"data: {")
        serving.process.send_signal(signal.SIGTERM)
        rest = answer.read()
    assert rest.count(b'"content": "a"') == 5
    assert rest.endswith(b"data: [DONE]\n\n")
    assert serving.end()[:2] == (0, "Stopped.\n")


def test_a_checkpoint_folder_is_served_with_a_draft(start: Start, pair: tuple[Path, Path]) -> None:
    target, draft = pair
    serving = start("--model", str(target), "--draft", str(draft), "--preload")
    assert serving.output.startswith("Loading …\nServing local/target\n")
    body = {"model": "local/target", "prompt": "def f", "max_tokens": 4, "temperature": 0}
    request = urllib.request.Request(
        f"{serving.url}/completions", json.dumps(body).encode(), {"x-specclient-meta": "1"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        meta = json.loads(answer.read())["specclient"]
    assert meta["speculation"]["method"] == "draft"


@pytest.mark.parametrize("model", ["demo", "bundled:target", "owner/name"])
def test_bundled_and_hub_models_are_not_checked_before_the_start(run, model: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = run("serve", "--model", model, "--port", str(taken.getsockname()[1]))
    assert (code, "is in use" in err) == (3, True), "the model was refused before the port"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--host", "0.0.0.0"], 3, "there is no key: set SPECCLIENT_SERVER_KEY"),
        (["--host", "::"], 3, "there is no key"),
        (["--host", "not-a-host.invalid", "--api-key", "k"], 3, "is not an address of this machine"),
        (["--port", "70000"], 2, "70000"),
        (["--draft", "x"], 2, "requires exactly one --model"),
        (["--model", "local/demo", "--draft", "x"], 2, "has its own draft"),
        (["--model", "local/nothing", "--preload"], 1, "local/nothing is unknown"),
        (["--model", "./no-such-folder"], 3, "no-such-folder is not a folder; name one with config.json"),
        (["--model", "nope"], 3, "nope is not a folder; name one with config.json"),
        (["--model", "bundled:nope"], 3, "allowed are bundled:draft"),
        (["--model", "."], 3, "config.json is missing"),
        (["--model", "bundled:target", "--draft", "nope"], 3, "nope is not a folder"),
        (["--config", "missing.toml"], 3, "missing.toml"),
    ],
)
def test_arguments_that_cannot_be_served_are_refused(
    run, arguments: list[str], code: int, words: str
) -> None:
    found, _, err = run("serve", "--port", "0", *arguments)
    assert (found, words in err) == (code, True), err


def test_a_port_in_use_is_an_error(run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, out, err = run("serve", "--port", str(taken.getsockname()[1]))
    assert code == 3
    assert "is in use" in err
    assert "--port 0 takes a free one" in err
    assert out == ""


def test_nothing_heavy_is_imported_before_a_request() -> None:
    code = (
        "import sys, threading, os, signal, time\n"
        "from specclient_cli.main import run\n"
        "def end():\n"
        "    while True: time.sleep(0.5); os.kill(os.getpid(), signal.SIGTERM)\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)  # may come too early, so it is repeated\n"
        "threading.Thread(target=end, daemon=True).start()\n"
        "code = run(['serve', '--port', '0'])\n"
        "heavy = {'torch', 'transformers', 'tokenizers', 'tiktoken', 'genai_prices'}\n"
        "print('loaded', *sorted(heavy & set(sys.modules)))\nsys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "loaded"), done.stderr
