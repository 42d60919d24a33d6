"""Fixtures: a server in another process, and Python programs run in subprocesses."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from paths import KITS

HEAD = """
    import asyncio, atexit, gc, os, signal, sys, threading, time
    from specclient import AsyncOpenAI, OpenAI
    ASK = [{{"role": "user", "content": "hello"}}]
    URL = {url!r}
    def create(client, model="m"):
        return client.chat.completions.create(model=model, messages=ASK)
    def stream(client, model="m"):
        return client.chat.completions.create(model=model, messages=ASK, stream=True)
"""


class ChildProcess(subprocess.Popen[str]):
    """A subprocess that is killed when its test fails."""

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *rest)


Begin = Callable[..., subprocess.Popen[str]]
Program = Callable[..., str]


@pytest.fixture(scope="session")
def far_server() -> Iterator[str]:
    """The base URL of a server in a separate process; the model's name selects its response."""
    command = [sys.executable, str(KITS / "far_server.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate()


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """Start a program with warnings as errors and piped output; with ``url``, it begins with ``HEAD``."""

    def start(code: str, url: str = "", *, dev: bool = True) -> subprocess.Popen[str]:
        path = tmp_path / "program.py"
        head = textwrap.dedent(HEAD).format(url=url) if url else ""
        path.write_text(head + textwrap.dedent(code))
        return ChildProcess(
            [sys.executable, *(["-X", "dev"] if dev else []), "-W", "error", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=dict(os.environ),
        )

    return start


@pytest.fixture
def program(begin: Begin) -> Program:
    """Run a program to its end and return its output; it must exit with 0 and write nothing to stderr."""

    def run(code: str, url: str = "", *, dev: bool = True, timeout_s: float = 120) -> str:
        with begin(code, url, dev=dev) as process:
            out, err = process.communicate(timeout=timeout_s)
        assert (process.returncode, unexpected_lines(err)) == (0, []), err
        return out.strip()

    return run


def unexpected_lines(err: str) -> list[str]:
    """Return the lines of stderr, without asyncio's slow-step warnings and warnings of unknown prices."""
    lines = err.splitlines()
    return [line for line in lines if not line.startswith("Executing <") and "unpriced" not in line]
