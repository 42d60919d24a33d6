"""Fixtures: a server in another process, and programs run as users run them."""

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
    def whole(client, model="m"):
        return client.chat.completions.create(model=model, messages=ASK)
    def stream(client, model="m"):
        return client.chat.completions.create(model=model, messages=ASK, stream=True)
"""


class Started(subprocess.Popen[str]):
    """A process that ends with the test that began it, also where the test fails."""

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *rest)


Begin = Callable[..., subprocess.Popen[str]]
Program = Callable[..., str]


@pytest.fixture(scope="session")
def far_server() -> Iterator[str]:
    """The base URL of a server in a process of its own, which answers as the model's name asks."""
    command = [sys.executable, str(KITS / "far_server.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate()


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """Start a program, on a server where one is named, with warnings as errors; its output is piped."""

    def start(code: str, url: str = "", *, dev: bool = True) -> subprocess.Popen[str]:
        path = tmp_path / "program.py"
        head = textwrap.dedent(HEAD).format(url=url) if url else ""
        path.write_text(head + textwrap.dedent(code))
        return Started(
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
    """Run a program to its end; it must succeed and say nothing on stderr. Returns what it printed."""

    def run(code: str, url: str = "", *, dev: bool = True, timeout_s: float = 120) -> str:
        with begin(code, url, dev=dev) as process:
            out, err = process.communicate(timeout=timeout_s)
        assert (process.returncode, said(err)) == (0, []), err
        return out.strip()

    return run


def said(err: str) -> list[str]:
    """Return what stderr holds, but for asyncio's note of a slow step and ours of an unknown price."""
    lines = err.splitlines()
    return [line for line in lines if not line.startswith("Executing <") and "unpriced" not in line]
