"""Start gateways in front of the canned upstream, each in its own process on the loopback interface."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MODEL = "gpt-4.1-mini"
KEY = "sk-benchmark"
#: Base paths of the upstream: it responds immediately below the first, and like a model below the second.
QUICK, THINKING = "/v1", "/model/v1"
_SERVE = "from specclient_cli.main import main; main()"


@dataclass(frozen=True)
class Running:
    """A gateway that is ready for requests.

    Attributes:
        name: its name in tables.
        port: its port on the loopback interface.
        models: its names of the upstream's model, by the upstream's base path.
        started_s: seconds from the start of its process to its first response.
        process: the number of its process.
        headers: headers that its requests need.
        streams: whether it streams the upstream's response.
    """

    name: str
    port: int
    models: dict[str, str]
    started_s: float
    process: int
    headers: dict[str, str] = field(default_factory=dict)
    streams: bool = True


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextlib.contextmanager
def ours(upstream: str, folder: Path, options: Sequence[str] = ()) -> Iterator[Running]:
    """Run ``specclient serve`` with a key and a ledger inside the block."""
    config = folder / "specclient.toml"
    tables = (("quick", QUICK), ("thinking", THINKING))
    config.write_text(
        "".join(
            f'[providers.{name}]\nbase_url = "{upstream}{path}"\napi_key = "sk-1"\n'
            'price_provider = "openai"\n'
            for name, path in tables
        )
    )
    port = free_port()
    command = [sys.executable, "-c", _SERVE, "--config", str(config), "serve", "--port", str(port), *options]
    env = {"SPECCLIENT_SERVER_KEY": KEY, "SPECCLIENT_LEDGER": str(folder / "ledger.sqlite3")}
    with _process(command, env, folder / "ours.log", port, "/health") as started:
        yield Running("specclient", port, {path: f"{name}/{MODEL}" for name, path in tables}, *started)


@contextlib.contextmanager
def litellm(upstream: str, folder: Path, python: Path) -> Iterator[Running]:
    """Run LiteLLM's proxy, configured for one provider and without a database, inside the block.

    Args:
        upstream: URL of the upstream.
        folder: folder for its configuration and log.
        python: Python of an environment with ``litellm[proxy]``.
    """
    names = {QUICK: "quick", THINKING: "thinking"}
    rows = [
        {
            "model_name": name,
            "litellm_params": {"model": f"openai/{MODEL}", "api_base": upstream + path, "api_key": "sk-1"},
        }
        for path, name in names.items()
    ]
    config = folder / "litellm.yaml"  # JSON is YAML
    config.write_text(json.dumps({"model_list": rows, "general_settings": {"master_key": KEY}}))
    port = free_port()
    command = [str(python.with_name("litellm")), "--config", str(config), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--telemetry", "False"]
    env = {"LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with _process(command, env, folder / "litellm.log", port, "/health/liveliness") as started:
        yield Running("LiteLLM", port, names, *started)


@contextlib.contextmanager
def portkey(upstream: str, folder: Path, package: Path) -> Iterator[Running]:
    """Run Portkey's gateway inside the block. Its requests name the upstream, and have the upstream's key.

    Version 1.15.2 answers 500 to every request for a stream under Node.js 20 (``TypeError: immutable``).

    Args:
        upstream: URL of the upstream.
        folder: folder for its log.
        package: folder of the npm package ``@portkey-ai/gateway``.
    """
    port = free_port()
    command = ["node", str(package / "build" / "start-server.js"), "--headless", f"--port={port}"]
    headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": upstream + QUICK}
    with _process(command, {"NODE_ENV": "production"}, folder / "portkey.log", port, "/") as started:
        yield Running("Portkey", port, {QUICK: MODEL}, *started, headers, streams=False)


@contextlib.contextmanager
def _process(
    command: list[str], env: dict[str, str], log: Path, port: int, path: str
) -> Iterator[tuple[float, int]]:
    """Run a server inside the block; yields the seconds until its first response, and its process."""
    home = log.with_suffix(".home")
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if re.match(r"PATH$|LANG|LC_|TMPDIR", name)}
    begun = time.perf_counter()
    with (
        log.open("wb") as out,
        subprocess.Popen(command, env={**kept, "HOME": str(home), **env}, stdout=out, stderr=out) as process,
    ):
        try:
            yield _first_response(process, f"http://127.0.0.1:{port}{path}", log) - begun, process.pid
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


def _first_response(process: subprocess.Popen[bytes], url: str, log: Path, within_s: float = 120) -> float:
    """Wait until a server responds; return the time of its first response."""
    end = time.perf_counter() + within_s
    while process.poll() is None and time.perf_counter() < end:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return time.perf_counter()
        time.sleep(0.01)
    raise SystemExit(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")
