"""``specclient serve`` of the bundled pair in a process of its own, for requests that could end it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from pathlib import Path
from typing import Any, Self

import httpx
from forked_program import COMMAND, ForkedProgram

#: Seconds between two streams of a :class:`Bystander`.
PAUSE_S = 0.2


class ServerProcess:
    """A server as a context manager.

    Args:
        folder: its working folder, to which the configuration is written.
        configuration: the rest of ``specclient.toml``.
        options: further options of ``specclient serve``.
    """

    def __init__(self, folder: Path, configuration: str = "", *options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "specclient.toml").write_text(f'ledger = "off"\n{configuration}')
        self._folder, self._options = folder, options

    def __enter__(self) -> Self:
        self.process = ForkedProgram(
            [*COMMAND, "serve", "--port", "0", "--preload",
             "--model", "local/demo", *self._options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self._folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1",
                 "SPECCLIENT_CONFIG": str(self._folder / "specclient.toml")},
        )  # fmt: skip
        assert self.process.stdout is not None
        self.output = ""
        for line in self.process.stdout:
            self.output += line
            if found := re.search(r"(http://\S+)/v1", line):
                self.url = found.group(1)
            if line.startswith("    try "):
                break
        else:
            raise AssertionError(f"the server did not start: {self.output}")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.client = httpx.Client(base_url=self.url, timeout=120, trust_env=False)
        return self

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def complete(self, **body: Any) -> httpx.Response:
        """Send a request for a completion."""
        return self.client.post("/v1/completions", json={"model": "local/demo", "max_tokens": 4, **body})

    def resident_bytes(self) -> int:
        """Return the resident memory of the server."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def running(self) -> bool:
        """Return whether the process lives and answers."""
        return self.process.poll() is None and self.client.get("/health").status_code == 200


class Bystander:
    """A client whose streams must stay as they are, whatever others send; a context manager.

    It streams a greedy completion over and over. ``wrong`` holds whatever differed from the first. Between
    two streams it pauses, so that the engine does not only work for it, but not while :meth:`check` waits.
    """

    def __init__(self, server: ServerProcess) -> None:
        self._url = f"{server.url}/v1/completions"
        self.wrong: list[str] = []
        self.streams = 0
        self._ended, self._awaited = threading.Event(), threading.Event()
        self._expected = self._stream()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._awaited.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def check(self) -> None:
        """Wait for another whole stream and compare all of them."""
        before = self.streams
        self._awaited.set()
        while self.streams < before + 2 and self._thread.is_alive() and not self.wrong:
            self._ended.wait(0.01)
        self._awaited.clear()
        assert not self.wrong, self.wrong

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                text = self._stream()
            except Exception as error:  # noqa: BLE001 - reported by check()
                self.wrong.append(repr(error))
                return
            self.streams += 1
            if text != self._expected:
                self.wrong.append(text)
            self._awaited.wait(PAUSE_S)

    def _stream(self) -> str:
        body = {"model": "local/demo", "prompt": "def fibonacci(n):", "max_tokens": 48, "temperature": 0}
        text = ""
        with httpx.stream(
            "POST", self._url, json={**body, "stream": True}, timeout=120, trust_env=False
        ) as r:
            assert r.status_code == 200
            for line in r.iter_lines():
                if line.startswith("data: {"):
                    text += json.loads(line[6:])["choices"][0]["text"]
        assert text
        return text
