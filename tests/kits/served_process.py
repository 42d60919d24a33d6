"""``specclient serve`` with a loopback upstream, in processes of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import forked_program
import httpx
import pytest
from forked_program import COMMAND, ForkedProgram
from loopback_server import OpenAIServer
from watched_server import worker_ids

BODY = {"model": "mine/m-large", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 9}


class ServedProcess:
    """The server, started.

    Args:
        folder: its working folder, to which the configuration is written.
        upstream: the provider ``mine``.
        arguments: further options of ``specclient serve``.
        prefix: a command that runs the server and the commands, such as ``nsenter``.
        configuration: the rest of ``specclient.toml``.
        environment: further variables of the environment.
    """

    def __init__(
        self,
        folder: Path,
        upstream: OpenAIServer,
        *arguments: str,
        prefix: Sequence[str] = (),
        configuration: str = "",
        **environment: str,
    ) -> None:
        self.folder, self.prefix = folder, tuple(prefix)
        (folder / "specclient.toml").write_text(
            f'default_provider = "mine"\n{configuration}\n'
            f'[providers.mine]\nbase_url = "{upstream.base_url}"\napi_key = "sk-up"\nmodels = ["m-large"]\n'
            '[prices."mine/*"]\ninput = 2\noutput = 8\n'
        )
        self._errors = folder / "stderr.txt"
        self.environment = {**os.environ, "PYTHONUNBUFFERED": "1", **environment}
        with self._errors.open("w") as errors:
            self.process = ForkedProgram(
                [*self.prefix, *COMMAND, "serve", "--port", "0", *arguments],
                stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder, env=self.environment,
            )  # fmt: skip
        assert self.process.stdout is not None
        self.output = ""
        for line in self.process.stdout:
            self.output += line
            if found := re.search(r"at (http://\S+)/v1", line):
                self.url = found.group(1)
            if line.startswith("    try "):
                return
        pytest.fail(f"ended: {self.output} {self.process.communicate()} {self.errors()}")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command beside the server."""
        return forked_program.run(
            [*self.prefix, *COMMAND, *words], text=True, cwd=self.folder, env=self.environment, timeout=60
        )

    def command(self, *words: str) -> str:
        """Run a command that must succeed; return its output."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def ask(self, key: str = "", body: Any = BODY) -> httpx.Response:
        """Send a request on a new connection, which any worker may accept."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        url = f"{self.url}/v1/chat/completions"
        return httpx.post(url, json=body, headers=headers, timeout=60, trust_env=False)

    def workers(self) -> set[int]:
        """Return the process ids of the workers."""
        return worker_ids(self.process.pid)

    def errors(self) -> str:
        """Return what the server has written to stderr."""
        return self._errors.read_text()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal and wait for the end; return the status, output and errors."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, out, self.errors()
