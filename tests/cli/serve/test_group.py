"""``specclient serve`` as a process of its own: it says how to use it, serves, and ends in order."""

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
from loopback_server import OpenAIServer, events

Start = Callable[..., "Serving"]


class Serving:
    """A running ``specclient serve``; ``said`` is what it printed before it took requests."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        command = [sys.executable, "-m", "specclient_cli.main", "serve", "--port", "0", *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        )  # fmt: skip
        self._timer = threading.Timer(120, self.process.kill)
        self._timer.start()
        assert self.process.stdout is not None
        self.said = ""
        for line in self.process.stdout:
            self.said += line
            if line.startswith("    try "):
                break
        else:
            pytest.fail(f"ended: {self.said} {self.process.communicate()}")
        found = re.search(r"http://\S+/v1", self.said)
        assert found
        self.url = found.group()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal and return exit code and what was printed after ``said``."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            out, err = self.process.communicate(timeout=60)
        finally:
            self._timer.cancel()
        return self.process.returncode, out, err


@pytest.fixture
def start() -> Iterator[Start]:
    """Start servers; those that a test leaves running are ended."""
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
def test_the_line_it_prints_works(start: Start, local: Path) -> None:
    serving = start("--model", "local/demo-target")
    assert serving.said.startswith("Serving local/demo-target\n")
    line = serving.said.partition("try ")[2].strip()
    done = subprocess.run(["sh", "-c", f"{line} --silent"], capture_output=True, check=True, timeout=60)
    answer = json.loads(done.stdout)
    assert answer["usage"]["completion_tokens"] == 32
    assert _ids(serving) == ["local/demo-target"]
    code, out, err = serving.end()
    assert (code, out, err) == (0, "Stopped.\n", "")


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_a_key_is_named_and_not_shown(start: Start, local: Path) -> None:
    serving = start("--host", "0.0.0.0", SPECCLIENT_SERVER_KEY="open-sesame")
    assert "open-sesame" not in serving.said
    assert serving.url.startswith("http://127.0.0.1:")
    line = serving.said.partition("try ")[2].strip().replace("local/demo ", "local/demo-target ")
    assert _ids(serving, "open-sesame")[:2] == ["local/demo", "local/demo-target"]
    with pytest.raises(urllib.error.HTTPError, match="401"):
        _ids(serving)
    env = {**os.environ, "SPECCLIENT_SERVER_KEY": "open-sesame"}
    done = subprocess.run(
        ["sh", "-c", f"{line} --silent"], capture_output=True, check=True, timeout=60, env=env
    )
    assert json.loads(done.stdout)["choices"]
    assert serving.end()[0] == 0


def test_a_gateway_to_what_is_configured(start: Start, hosted: OpenAIServer) -> None:
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
def test_a_line_of_json_for_each_request(
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


def test_its_own_configuration_file(start: Start, tmp_path: Path, openai_server: OpenAIServer) -> None:
    file = tmp_path / "other.toml"
    file.write_text(f'[providers.other]\nbase_url = "{openai_server.base_url}"\nmodels = ["m-large"]\n')
    assert "other/m-large" in _ids(start("--config", str(file)))


def test_a_signal_lets_a_stream_end(start: Start, hosted: OpenAIServer) -> None:
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
    assert rest.count(b'"content":"a"') == 5
    assert rest.endswith(b"data: [DONE]\n\n")
    assert serving.end()[:2] == (0, "Stopped.\n")


def test_a_checkpoint_s_folder_with_its_draft(start: Start, pair: tuple[Path, Path]) -> None:
    target, draft = pair
    serving = start("--model", str(target), "--draft", str(draft), "--preload")
    assert serving.said.startswith("Loading …\nServing local/target\n")
    body = {"model": "local/target", "prompt": "def f", "max_tokens": 4, "temperature": 0}
    request = urllib.request.Request(
        f"{serving.url}/completions", json.dumps(body).encode(), {"x-specclient-meta": "1"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        told = json.loads(answer.read())["specclient"]
    assert told["speculation"]["method"] == "draft"


@pytest.mark.parametrize("model", ["demo", "bundled:target", "owner/name"])
def test_what_may_be_a_checkpoint_is_taken_without_a_look(run, model: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = run("serve", "--model", model, "--port", str(taken.getsockname()[1]))
    assert (code, "is in use" in err) == (3, True), "all else was fine"


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
        (["--model", "bundled:nope"], 3, "bundled are bundled:draft"),
        (["--model", "."], 3, "config.json is missing"),
        (["--model", "bundled:target", "--draft", "nope"], 3, "nope is not a folder"),
        (["--config", "missing.toml"], 3, "missing.toml"),
    ],
)
def test_what_cannot_be_served_is_refused(run, arguments: list[str], code: int, words: str) -> None:
    found, _, err = run("serve", "--port", "0", *arguments)
    assert (found, words in err) == (code, True), err


def test_a_port_in_use(run) -> None:
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
        "signal.signal(signal.SIGTERM, lambda *_: None)  # one that comes too early is followed by another\n"
        "threading.Thread(target=end, daemon=True).start()\n"
        "code = run(['serve', '--port', '0'])\n"
        "heavy = {'torch', 'transformers', 'tokenizers', 'tiktoken', 'genai_prices'}\n"
        "print('loaded', *sorted(heavy & set(sys.modules)))\nsys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "loaded"), done.stderr
